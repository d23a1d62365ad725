"""Attributes that change the meaning of the values in HDF5, NetCDF-4 and Zarr arrays."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.files.formats import import_library
from cec_mpi.text import as_text, truncate

_MAX_LISTED = 6
# Names without case and punctuation. CF defines the first group; formulas of other attributes vary
# between files, for example scale * (x - offset) and scale * x + offset.
_CF_NAMES = {
    "scalefactor": "scale_factor",
    "addoffset": "add_offset",
    "fillvalue": "_FillValue",
    "missingvalue": "missing_value",
    "unsigned": "_Unsigned",
    "validmin": "valid_min",
    "validmax": "valid_max",
    "validrange": "valid_range",
}
_FACTORS = (
    "scalefactor",
    "scale",
    "scaling",
    "scalingfactor",
    "factor",
    "slope",
    "gain",
    "conversion",
)
_OFFSETS = ("addoffset", "addoff", "offset", "intercept")
_MISSING = (
    *("fillvalue", "missingvalue", "nodata", "nodatavalue", "undetect", "badvalue", "undef"),
    *("badvaluescaled", "codemissingvalue", "missingdata", "nullvalue", "navalue", "invalidvalue"),
)


@dataclass(frozen=True)
class Attribute:
    """An attribute that changes the meaning of the stored values.

    Attributes
    ----------
    name : str
        Name in the file.
    key : str
        Name without case and punctuation.
    value : ndarray or str
        Numbers, or text that is not a number.
    """

    name: str
    key: str
    value: NDArray[Any] | str

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else self.value.tolist()
        if isinstance(value, list) and len(value) == 1:
            (value,) = value
        return f"{self.name} ({value})"


def effective_attributes(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> list[Attribute]:
    """Return the attributes that change the meaning of stored values of this dtype.

    Attributes without effect are excluded: a factor of 1, an offset of 0, and missing values of NaN
    or infinity, which X cannot have. Other missing values are included, although they may not occur
    in X.
    """
    found = []
    for name in attributes:
        key = re.sub(r"[\W_]", "", name).lower()
        if key in _CF_NAMES or key in (*_FACTORS, *_OFFSETS, *_MISSING):
            attribute = Attribute(name, key, _parse_value(attributes[name], dtype))
            if _has_effect(attribute, dtype):
                found.append(attribute)
    return found


def _parse_value(value: Any, dtype: np.dtype[Any]) -> NDArray[Any] | str:
    """Return the numbers of an attribute, which may be stored as text; else its text."""
    if getattr(value, "shape", ()) is None:  # an HDF5 null dataspace
        return np.empty(0)
    values = np.ravel(np.asarray(value))
    if values.dtype.kind in "biuf":
        return values
    texts = list(map(as_text, values))
    for number_type in (np.int64, np.float64):
        try:
            return np.array([number_type(text) for text in texts])
        except (ValueError, OverflowError):
            continue
    if len(texts) == 1 and dtype.kind == "f":
        try:  # the format in which xarray writes a float _FillValue to Zarr 3
            return np.array(struct.unpack("<d", base64.b64decode(texts[0], validate=True)))
        except (ValueError, struct.error):
            pass
    return ", ".join(texts)


def _has_effect(attribute: Attribute, dtype: np.dtype[Any]) -> bool:
    value = attribute.value
    if attribute.key == "unsigned":
        text = str(value).lower()
        return (text, dtype.kind) in (("true", "i"), ("false", "u"))
    if isinstance(value, str):
        return bool(value)
    if attribute.key in _FACTORS:
        return bool((value != 1).any())
    if attribute.key in _OFFSETS:
        return bool(value.any())
    if attribute.key in _MISSING:
        return bool(np.isfinite(value).any())
    return value.size > 0


def reject_attributes(name: str, attributes: Iterable[Attribute]) -> None:
    """Raise if attributes change the meaning of the stored values.

    Raises
    ------
    InputError
        Names the attributes.
    """
    attributes = list(attributes)
    if not attributes:
        return
    advice = "expected --raw-values, which encodes the stored values"
    if all(map(_is_cf, attributes)):
        advice = f"expected --decode-cf, which applies them, or {advice.removeprefix('expected ')}"
    raise InputError(
        f"{name} has attributes that change the meaning of the stored values, "
        f"{truncate(list(map(str, attributes)), _MAX_LISTED)}: {advice}"
    )


@dataclass(frozen=True)
class Decoder:
    """Decodes stored values following the CF conventions; missing values become NaN.

    Attributes
    ----------
    stored_dtype : numpy.dtype
        Dtype of the stored values; with ``_Unsigned`` it differs from that of the file.
    attributes : dict of str to number
        Attributes that xarray applies: ``scale_factor``, ``add_offset``, and one ``_FillValue``.
    sentinels : tuple of number
        Other stored values that stand for missing values.
    limits : tuple of number
        Smallest and largest valid stored value; values beyond them are missing.
    decoded_limits : tuple of number
        Smallest and largest valid decoded value; values beyond them are missing.
    """

    stored_dtype: np.dtype[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    sentinels: tuple[Any, ...] = ()
    limits: tuple[Any, Any] = (None, None)
    decoded_limits: tuple[Any, Any] = (None, None)

    def __call__(self, stored: Any) -> NDArray[Any]:
        """Decode a slice."""
        import xarray

        numbers = np.asarray(stored).view(self.stored_dtype)
        packed = xarray.Variable(
            [f"axis_{k}" for k in range(numbers.ndim)], numbers, self.attributes
        )
        decoded: NDArray[Any] = xarray.decode_cf(
            xarray.Dataset({"X": packed}), decode_times=False, decode_coords=False
        )["X"].values
        if self._has_wide_integers and decoded.dtype.kind == "f":
            # float64 may have rounded the integers.
            decoded = np.where(np.isnan(decoded), decoded, numbers.astype(np.longdouble))
        if self.limits != (None, None) and decoded.dtype.kind != "f":
            decoded = decoded.astype(np.longdouble if self._has_wide_integers else np.float64)
        is_missing = _is_out_of_limits(numbers, self.limits) | _is_out_of_limits(
            decoded, self.decoded_limits
        )
        for sentinel in self.sentinels:
            is_missing |= numbers == sentinel
        if is_missing.any():
            decoded = np.where(is_missing, decoded.dtype.type(np.nan), decoded)
        return decoded

    @property
    def _has_wide_integers(self) -> bool:
        """Whether decoded values are 64-bit integers, whose rounding is counted."""
        is_packed = {"scale_factor", "add_offset"} & set(self.attributes)
        return self.stored_dtype.kind in "iu" and self.stored_dtype.itemsize == 8 and not is_packed

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of decoded values."""
        return self(np.ones(1, self.stored_dtype)).dtype


def make_decoder(
    name: str, attributes: Iterable[Attribute], dtype: np.dtype[Any], unwritten_value: Any
) -> Decoder:
    """Return the decoder of an array with these attributes.

    Parameters
    ----------
    name : str
        Name of the array, for messages.
    attributes : iterable of Attribute
    dtype : numpy.dtype
        Dtype in the file.
    unwritten_value : number, optional
        Fill value of entries that were never written.

    Raises
    ------
    InputError
        Names attributes that CF does not define, or that have invalid values.
    """
    import_library("xarray", name, "decoded")
    attributes = list(attributes)
    invalid = [str(attribute) for attribute in attributes if not _is_cf(attribute)]
    if invalid:
        raise InputError(
            f"{name} cannot be decoded, because CF does not define these attributes or their "
            f"values, {truncate(invalid, _MAX_LISTED)}: use --raw-values, or decode the values and "
            "encode the result"
        )
    values: dict[str, Any] = {_CF_NAMES[attribute.key]: attribute.value for attribute in attributes}
    stored_dtype = dtype
    if "_Unsigned" in values:
        stored_dtype = np.dtype(dtype.str.translate(str.maketrans("iu", "ui")))
    packing: dict[str, Any] = {
        key: values[key] for key in ("scale_factor", "add_offset") if key in values
    }
    is_float32 = dtype.itemsize <= (4 if dtype.kind == "f" else 2) and all(
        value.dtype == np.float32 for value in packing.values()
    )
    float_type = np.float32 if is_float32 else np.float64
    xarray_attributes: dict[str, Any] = {
        key: float_type(value[0]) for key, value in packing.items()
    }
    sentinels = [
        sentinel
        for attribute in ("_FillValue", "missing_value")
        for value in values.get(attribute, ())
        if (sentinel := _to_stored(value, dtype, stored_dtype)) is not None
    ]
    if unwritten_value is not None:
        sentinels.append(unwritten_value)
    if sentinels:
        xarray_attributes["_FillValue"] = sentinels[0]
    low, high = values.get("valid_range", (None, None))
    low, high = values.get("valid_min", [low])[0], values.get("valid_max", [high])[0]
    limits, decoded_limits = (low, high), (None, None)
    # Floating-point limits of packed integers are limits of the decoded values.
    if packing and dtype.kind != "f" and any(isinstance(limit, np.floating) for limit in limits):
        limits, decoded_limits = decoded_limits, limits
    elif stored_dtype != dtype:
        limits = _to_stored(low, dtype, stored_dtype), _to_stored(high, dtype, stored_dtype)
    return Decoder(stored_dtype, xarray_attributes, tuple(sentinels[1:]), limits, decoded_limits)


def _is_cf(attribute: Attribute) -> bool:
    """Return whether CF defines an attribute, and its value is valid."""
    sizes = {"scalefactor": 1, "addoffset": 1, "validmin": 1, "validmax": 1, "validrange": 2}
    value = attribute.value
    if attribute.key == "unsigned":
        return True
    if attribute.key not in _CF_NAMES or isinstance(value, str):
        return False
    return value.size == sizes.get(attribute.key, value.size)


def _to_stored(value: Any, dtype: np.dtype[Any], stored_dtype: np.dtype[Any]) -> Any:
    """Convert a value to the dtype of an array.

    Return None if the value is None or not finite, or if no entry can equal it.
    """
    if value is None or not np.isfinite(value):
        return None
    if stored_dtype.kind == "f":
        with np.errstate(over="ignore"):
            return stored_dtype.type(value)
    if int(value) != value:
        return None
    integer = int(value)
    if stored_dtype != dtype:  # -1 and 255 are the same byte
        bits = 8 * stored_dtype.itemsize
        integer %= 1 << bits
        integer -= (1 << bits) * (stored_dtype.kind == "i" and integer >> (bits - 1))
    bounds = np.iinfo(stored_dtype)
    return stored_dtype.type(integer) if bounds.min <= integer <= bounds.max else None


def _is_out_of_limits(values: NDArray[Any], limits: tuple[Any, Any]) -> NDArray[np.bool_]:
    low, high = limits
    is_outside = np.zeros(values.shape, np.bool_)
    if low is not None:
        is_outside |= values < low
    if high is not None:
        is_outside |= values > high
    return is_outside
