"""Results of tasks: arrays in files, numbers and text for the summary."""

import math

import numpy as np
import pytest

from cec_mpi.cli.run.outputs import Outputs, convert_outcome

RAGGED = [[1.0], [2.0, 3.0]]
MASKED = np.ma.array([1.0, 2.0], mask=[False, True])


@pytest.mark.parametrize(
    ("returned", "arrays", "numbers"),
    [
        (np.arange(2.0), {"result": [0.0, 1.0]}, {}),
        (2.5, {"result": 2.5}, {}),
        ((np.arange(2.0), 2.5), {"result_0": [0.0, 1.0]}, {"result_1": 2.5}),
        ({"eigenvalue": 1 + 2j, "a b": 3}, {"eigenvalue": 1 + 2j}, {"a_b": 3}),
        ({"seconds": 7, "name": "x", "a": None}, {"seconds": 7}, {"name": "x", "a": None}),
        ({"ragged": RAGGED, "masked": MASKED}, {"ragged": RAGGED, "masked": [1.0, math.nan]}, {}),
        ({"n" * 300: 1, "a": math.inf}, {}, {"n" * 100: 1, "a": "inf"}),
        ({"a": np.longdouble(2), "?": 1, "!": 2}, {}, {"a": 2.0, "_": 1, "__": 2}),
        (None, {}, {}),
    ],
)
def test_arrays_are_saved_in_files_and_numbers_returned(tmp_path, returned, arrays, numbers):
    saved = Outputs(tmp_path, "task").save(convert_outcome(returned), {"seconds"})
    found = {
        name: np.load(tmp_path / f"{name}.npy", allow_pickle=True).tolist()
        for name in saved.array_names
    }
    assert repr(found) == repr(arrays)
    assert saved.summary_values == numbers
    assert saved.unsaved == []
    assert ["allow_pickle=True" in text for text in saved.warnings] == [True] * ("ragged" in arrays)


def test_a_value_that_cannot_be_saved_does_not_prevent_saving_others(tmp_path):
    deep = []
    for _ in range(3000):
        deep = [deep]
    returned = {"deep": deep, "result": np.ones(1), "f": lambda: 0}
    saved = Outputs(tmp_path, "task").save(convert_outcome(returned), set())
    assert [text.split(",")[0] for text in saved.unsaved] == [
        "'deep' of type list",
        "'f' of type function",
    ]
    assert saved.array_names == ["result"]
