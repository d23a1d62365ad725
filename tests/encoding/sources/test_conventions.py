"""HDF5, NetCDF-4 and Zarr: attributes that change numbers, missing parts, MATLAB, bad files."""

import sys
import warnings

import h5py
import numpy as np
import pytest
import xarray
import zarr
from scipy.io import savemat

from cec_mpi import encode
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources import open_array, open_source
from cec_mpi.errors import InputError
from helpers.matrices import read_matrix

X = np.arange(12.0).reshape(4, 3)
PACKED = {"scale_factor": 0.5, "add_offset": -3.0}


def hdf5(directory, data=X, **attributes):
    with h5py.File(directory / "x.he5", "w") as file:
        file.create_dataset("x", data=data).attrs.update(attributes)
    return directory / "x.he5"


def zarr_writer(version):
    def write(directory, data=X, **attributes):
        path = directory / f"x{version}.zarr"
        values = {name: np.asarray(value).tolist() for name, value in attributes.items()}
        zarr.create_array(path, data=data, zarr_format=version, attributes=values)
        return path

    return write


writers = pytest.mark.parametrize("write", [hdf5, zarr_writer(2), zarr_writer(3)])


def read(path, **options):
    """Return X of a file as encode reads it."""
    return read_matrix(path, **options)[1]


def read_array(array, **options):
    """Return X of an object as encode reads it."""
    source = open_array(array, EncodeOptions(**options))
    out = np.empty(source.shape)
    source.read(0, source.shape[0], 0, source.shape[1], out)
    return out


# --- attributes ---------------------------------------------------------------------------


@writers
@pytest.mark.parametrize(
    "attributes",
    [
        {"scale_factor": 0.5},
        {"add_offset": [1.0]},
        {"MissingValue": -1.267e30},
        {"SCALE FACTOR": "2"},
        {"Slope": 0.1, "Intercept": 4},
        {"valid_range": [0, 5]},
        {"missing_value": [np.nan, -1]},
    ],
    ids=lambda attributes: next(iter(attributes)),
)
def test_attributes_that_change_numbers_are_refused_by_name(tmp_path, write, attributes):
    path = write(tmp_path, **attributes)
    with pytest.raises(InputError) as error:
        encode(path, tmp_path / "store", 3, 2)
    for text in (str(path), *attributes, "raw_values=True"):
        assert text in str(error.value)
    assert ("decode_cf=True" in str(error.value)) == ("Slope" not in attributes)  # not in CF
    assert not (tmp_path / "store").exists()
    assert np.array_equal(read(path, raw_values=True), X)


@writers
def test_attributes_without_effect_are_accepted(tmp_path, write):
    attributes = {"scale_factor": 1.0, "add_offset": 0, "units": "K", "_Unsigned": "true"}
    if write is hdf5:  # JSON has no NaN
        attributes |= {"_FillValue": np.nan, "missing_value": np.array([np.inf])}
    path = write(tmp_path, **attributes)
    assert np.array_equal(read(path), X)
    assert np.array_equal(read(path, decode_cf=True), X)


INT16 = np.array([[1, 2, 3]], "i2")
UNSIGNED = {"_Unsigned": "true"}


@pytest.mark.parametrize(
    ("data", "attributes", "expected"),
    [
        (np.array([[1, -2]], "i1"), UNSIGNED, [[1, 254]]),
        (np.array([[1, 254]], "u1"), {"_Unsigned": b"false"}, [[1, -2]]),
        (np.array([[7, -1]], "i1"), UNSIGNED | {"_FillValue": 255}, [[7, np.nan]]),
        (np.array([[7, -1]], "i1"), UNSIGNED | {"missing_value": -1}, [[7, np.nan]]),
        (
            np.array([[1, -2, -1]], "i1"),
            UNSIGNED | {"valid_range": np.array([0, -2], "i1")},
            [[1, 254, np.nan]],
        ),
        (np.array([[0.1, -9999.9]], "f4"), {"missing_value": -9999.9}, [[0.1, np.nan]]),
        (INT16, {"_FillValue": 2, "missing_value": [3, 9]}, [[1, np.nan, np.nan]]),
        (INT16, {"_FillValue": 1e30}, [[1, 2, 3]]),
        (INT16, {"valid_range": np.array([2, 3], "i2")}, [[np.nan, 2, 3]]),
        (INT16, {"valid_max": 2, "scale_factor": 10.0}, [[10, 20, np.nan]]),
        (INT16, {"valid_min": 15.0, "scale_factor": 10.0}, [[np.nan, 20, 30]]),  # decoded limit
        (np.array([[2**24 + 1, 2]], "i4"), {"scale_factor": np.float32(2)}, [[2**25 + 2, 4]]),
        (INT16, {"scale_factor": b"0.25"}, [[0.25, 0.5, 0.75]]),
    ],
)
def test_numbers_are_decoded_by_the_cf_conventions(tmp_path, data, attributes, expected):
    decoded = read(hdf5(tmp_path, data, **attributes), decode_cf=True)
    assert np.allclose(decoded, expected, rtol=1e-7, atol=0, equal_nan=True)


@pytest.mark.parametrize("missing", [{"_FillValue": -1}, {"valid_range": [0, 2**62]}])
def test_integers_that_decoding_rounds_are_counted(tmp_path, missing):
    path = hdf5(tmp_path, np.array([[2**53 + 1, 3], [-1, 2**61 + 1], [2**54, 5]]), **missing)
    for treatment, message in (("mean", "2 numbers were"), ("drop-rows", "1 number was")):
        with pytest.warns(UserWarning, match=f"{message} rounded, by at most 1,"):
            encode(path, tmp_path / treatment, 3, 2, decode_cf=True, missing=treatment)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("encoding", "message"),
    [
        (PACKED | {"dtype": "i2", "_FillValue": -32768}, r"scale_factor \(0\.5\)"),
        ({"_FillValue": -1.0}, r"_FillValue \(-1\.0\)"),
    ],
)
def test_zarr_arrays_are_decoded_as_xarray_decodes_them(tmp_path, encoding, message, version):
    dataset = xarray.Dataset({"x": (("t", "s"), np.where(X == 3, np.nan, X))})
    dataset.to_zarr(
        tmp_path / "x.zarr", encoding={"x": encoding}, zarr_format=version, consolidated=False
    )
    with pytest.raises(InputError, match=message):
        open_source(f"{tmp_path}/x.zarr::/x")
    decoded = read(f"{tmp_path}/x.zarr::/x", decode_cf=True)
    assert np.allclose(decoded, dataset["x"], rtol=0, atol=1e-12, equal_nan=True)


def test_a_fill_value_of_zarr_itself_is_a_number(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=X, fill_value=-1.0, zarr_format=3)
    assert np.array_equal(read(tmp_path / "x.zarr"), X)


@pytest.mark.parametrize("name", ["Offset", "nodata", "scale_factor"])
def test_attributes_that_cf_does_not_define_are_not_decoded(tmp_path, name):
    path = hdf5(tmp_path, **{name: [2.0, 3.0]})
    with pytest.raises(InputError, match=rf"CF does not define .*{name}.*--raw-values"):
        read(path, decode_cf=True)


def test_objects_are_decoded_like_files(tmp_path):
    data = X.astype("i2")
    array = xarray.DataArray(data, dims=("a", "b"), attrs=PACKED)
    with h5py.File(hdf5(tmp_path, data, **PACKED)) as file:
        for name, source in {
            "h5py": file["x"],
            "zarr": zarr.open(zarr_writer(3)(tmp_path, data, **PACKED), mode="r"),
            "xarray": array,
            "xarray with Dask": array.chunk({"a": 2}),
        }.items():
            with pytest.raises(InputError, match=r"scale_factor \(0\.5\)"):
                encode(source, tmp_path / name, 3, 2)
            manifest = encode(source, tmp_path / name, 3, 2, decode_cf=True)
            assert manifest.dtype == "float64"
            if "Dask" not in name:
                assert np.array_equal(read_array(source, decode_cf=True), X / 2 - 3)
                assert np.array_equal(read_array(source, raw_values=True), X)


def test_arrays_that_xarray_has_decoded_are_not_decoded_again():
    limits = {"valid_range": np.array([0, 12], "i2")}
    packed = xarray.Dataset({"x": (("a", "b"), X.astype("i2"), PACKED | limits)})
    decoded = xarray.decode_cf(packed)["x"]
    assert "valid_range" in decoded.attrs  # limits of stored numbers
    assert np.array_equal(read_array(decoded), X / 2 - 3)


def test_decoding_needs_xarray(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(InputError, match=r"cannot be decoded without xarray: pip install .*xarray"):
        read(hdf5(tmp_path, **PACKED), decode_cf=True)


# --- missing parts ------------------------------------------------------------------------


def virtual_dataset(directory, source="parts.h5", name="d", rows=4, stored=4):
    if source == "parts.h5":
        with h5py.File(directory / source, "w") as file:
            file["d"] = X[:stored]
    layout = h5py.VirtualLayout((rows, 3), "f8")
    layout[:] = h5py.VirtualSource(source, name, (4, 3))[4 - rows :]
    with h5py.File(directory / "virtual.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    return directory / "virtual.h5"


def test_a_virtual_dataset_is_read_from_its_sources(tmp_path):
    path = virtual_dataset(tmp_path)
    assert np.array_equal(read(path), X)
    before = open_source(path).stamps
    with h5py.File(tmp_path / "parts.h5", "a") as file:
        file["more"] = X
    assert open_source(path).stamps != before
    (tmp_path / "parts.h5").write_bytes(b"truncated")
    with pytest.raises(InputError, match=r"source .*parts\.h5::d cannot be read: "):
        open_source(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "gone.h5"}, r"source gone\.h5 does not exist"),
        ({"source": "/nowhere/gone.h5"}, r"source /nowhere/gone\.h5 does not exist"),
        ({"name": "nothing"}, r"parts\.h5::nothing cannot be read"),
        ({"rows": 3, "stored": 2}, r"has shape \(2, 3\): expected at least \(4, 3\)"),
    ],
)
def test_a_virtual_dataset_needs_its_sources(tmp_path, options, message):
    path = virtual_dataset(tmp_path, **options)
    with pytest.raises(InputError, match=rf"virtual\.h5::/x is a virtual dataset, .*{message}"):
        open_source(path)
    with h5py.File(path) as file, pytest.raises(InputError, match=message):
        open_array(file["x"])


def test_an_external_file_must_be_complete(tmp_path):
    raw = tmp_path / "raw.bin"
    X.tofile(raw)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (4, 3), "f8", external=[(str(raw), 0, 96)])
    assert np.array_equal(read(tmp_path / "x.h5"), X)
    raw.write_bytes(raw.read_bytes()[:50])
    with pytest.raises(InputError, match=r"stored in .*raw\.bin, which has 50 bytes: expected 96"):
        open_source(tmp_path / "x.h5")


@pytest.mark.parametrize("version", [2, 3])
def test_missing_chunks_of_zarr_are_counted(tmp_path, version):
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(40, 3), chunks=(10, 3), dtype="f8", zarr_format=version
    )
    array[:20] = 1
    with pytest.warns(UserWarning, match=r"lacks 2 of its 4 chunks, .* fill value 0\.0"):
        encode(tmp_path / "x.zarr", tmp_path / "store", 3, 2)
    array[:] = 1
    with warnings.catch_warnings(action="error"):
        encode(tmp_path / "x.zarr", tmp_path / "full", 3, 2)


def test_missing_parts_of_hdf5_are_counted(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (40, 3), "f8", chunks=(10, 3), fillvalue=7)[:10] = 1
        file.create_dataset("y", (40, 3), "f8")
        file["z"], file["t"] = X, np.arange(6.0)
        file["t"].make_scale("t")
        file["z"].dims[0].attach_scale(file["t"])
        file["w"], file["deleted"] = X, np.arange(6.0)
        file["deleted"].make_scale("deleted")
        file["w"].dims[0].attach_scale(file["deleted"])
        del file["deleted"]
    for name, message in {
        "x": "lacks 3 of its 4 chunks, .* 7",
        "y": "was never written",
        "z": "holds 4 of the 6 entries of axis 0: the other entries were not written",
    }.items():
        with pytest.warns(UserWarning, match=message):
            encode(f"{tmp_path}/x.h5::/{name}", tmp_path / name, 3, 2)
    assert np.array_equal(read(f"{tmp_path}/x.h5::/w"), X)


def test_the_fill_value_of_netcdf_marks_missing_values(tmp_path):
    value = 9.969209968386869e36
    with h5py.File(tmp_path / "x.nc", "w") as file:
        dataset = file.create_dataset("x", (3, 3), "f4", chunks=(1, 3), fillvalue=value)
        dataset.attrs["_Netcdf4Dimid"] = np.int32(0)
        dataset[:2], dataset[2, :2] = 1, 2
    with pytest.raises(InputError, match=r"holds 9\.96.* at row 2, column 2 .*decode_cf=True"):
        encode(f"{tmp_path}/x.nc", tmp_path / "store", 3, 2)
    decoded = read(f"{tmp_path}/x.nc", decode_cf=True)
    assert np.array_equal(decoded, [[1, 1, 1], [1, 1, 1], [2, 2, np.nan]], equal_nan=True)


@pytest.mark.parametrize("version", [2, 3])
def test_outdated_consolidated_metadata_are_not_used(tmp_path, version):
    path = tmp_path / "x.zarr"
    zarr.open_group(path, mode="w", zarr_format=version).create_array("x", data=X, chunks=(2, 3))
    with warnings.catch_warnings(action="ignore"):  # version 3 does not define them
        zarr.consolidate_metadata(path)
    zarr.open_group(path, mode="a", use_consolidated=False)["x"].append(X + 100)
    for source in (path, f"{path}::/x"):
        assert np.array_equal(read(source), np.vstack([X, X + 100]))


# --- MATLAB and Octave --------------------------------------------------------------------


def matlab(directory, data=X.T, matlab_class="double", name="x", **attributes):
    with h5py.File(directory / "x.mat", "w", userblock_size=512) as file:
        file.create_dataset(name, data=data).attrs.update(
            {"MATLAB_class": np.bytes_(matlab_class), **attributes}
        )
        file["#refs#/a"] = X
    return directory / "x.mat"


@pytest.mark.parametrize(
    ("matlab_class", "data"),
    [("double", X), ("int16", X.astype("i2")), ("logical", (X > 4).astype("u1"))],
)
def test_matlab_arrays_keep_their_shape(tmp_path, matlab_class, data):
    path = matlab(tmp_path, data.T, matlab_class)
    assert np.array_equal(read(path), data)
    with pytest.warns(UserWarning, match="written column by column: X is 4 x 3, as in MATLAB"):
        assert encode(path, tmp_path / "store", 3, 2).rows == 4
    with h5py.File(path) as file:
        assert np.array_equal(read_array(file["x"]), data)


def test_octave_arrays_keep_their_shape(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file.create_group("a")
        group.attrs["OCTAVE_NEW_FORMAT"] = np.uint8(1)
        group["type"], group["value"] = np.bytes_("matrix"), X.T
    assert np.array_equal(read(f"{tmp_path}/x.h5::/a/value"), X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"matlab_class": "char", "data": np.full((3, 4), 65, "u2")}, "is a char array of MATLAB"),
        ({"matlab_class": "cell", "data": np.ones((3, 4))}, "is a cell array of MATLAB"),
        ({"data": np.array([0, 3], "u8"), "MATLAB_empty": np.uint8(1)}, r"is empty \(0 x 3\)"),
    ],
)
def test_matlab_values_that_are_not_numbers_are_refused(tmp_path, options, message):
    with pytest.raises(InputError, match=rf"x\.mat::/x {message}, expected"):
        open_source(f"{matlab(tmp_path, **options)}::/x")


def test_fields_of_a_matlab_struct_are_read(tmp_path):
    path = matlab(tmp_path, name="s/field")
    with h5py.File(path, "a") as file:
        file["s"].attrs["MATLAB_class"] = np.bytes_("struct")
    with pytest.raises(InputError, match="::/s is a struct of MATLAB, expected"):
        open_source(f"{path}::/s")
    assert np.array_equal(read(f"{path}::/s/field"), X)


# --- bad files ----------------------------------------------------------------------------


def test_similar_formats_are_named(tmp_path):
    savemat(tmp_path / "old.mat", {"x": X})
    xarray.Dataset({"x": (("t", "s"), X)}).to_netcdf(tmp_path / "old.nc", engine="scipy")
    (tmp_path / "old.hdf").write_bytes(b"\x0e\x03\x13\x01" + bytes(100))
    for name, message in {
        "old.mat": "a MATLAB file older than version 7.3",
        "old.nc": "a classic NetCDF file",
        "old.hdf": "an HDF4 file",
    }.items():
        with pytest.raises(InputError, match=rf"{name} is {message}.*expected HDF5"):
            open_source(tmp_path / name)


def test_a_filter_that_is_not_installed_is_named(tmp_path):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk((4, 3))
    properties.set_filter(33333, h5py.h5z.FLAG_OPTIONAL)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple(X.shape)
        dataset = h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(X.dtype), space, properties)
        dataset.write_direct_chunk((0, 0), X.tobytes())
    with pytest.raises(InputError, match=r"filter 33333, which is not installed: .* hdf5plugin"):
        open_source(tmp_path / "x.h5")


def test_a_broken_link_is_named(tmp_path):
    path = hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        file["away"] = h5py.ExternalLink("gone.h5", "/x")
    with pytest.raises(InputError, match="::/away is a broken link"):
        open_source(f"{path}::/away")


def test_an_enumeration_is_refused_unless_raw_values_are_chosen(tmp_path):
    dtype = h5py.enum_dtype({"clear": 0, "cloud": 1, "nodata": 255}, basetype="u1")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.array([[0, 1], [255, 1]], "u1"), dtype=dtype)
        file["flags"] = X > 4
    with pytest.raises(InputError, match=r"is an enumeration \(clear, cloud, nodata\)"):
        open_source(f"{tmp_path}/x.h5::/x")
    assert read(f"{tmp_path}/x.h5::/x", raw_values=True).tolist() == [[0, 1], [255, 1]]
    assert np.array_equal(read(f"{tmp_path}/x.h5::/flags"), X > 4)


def test_a_file_with_a_sparse_and_a_dense_matrix_needs_a_choice(tmp_path):
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        for name in ("data", "indices", "indptr"):
            file[f"X/{name}"] = [0]
        file["obsm/pca"] = X
    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_group("X").attrs["encoding-type"] = "csr_matrix"
    group.create_array("pca", data=X)
    for name in ("x.h5ad", "x.zarr"):
        with pytest.raises(InputError, match=r"has 2 matrices \(/X, /.*pca\): choose one"):
            open_source(tmp_path / name)
    with pytest.raises(InputError, match=r"::/X is a sparse matrix in Zarr, .*save_npz"):
        open_source(f"{tmp_path}/x.zarr::/X")
