"""Machines with several shards of a store, which may be late or away."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_operator
from helpers.elastic_here import opened_here
from helpers.products import check_products
from helpers.recording import Kept

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_launcher")]

COLUMNS = 30


@pytest.fixture(scope="module")
def several(make_store):
    """Eight shards, any four of which are enough."""
    return make_store(np.random.default_rng(12).standard_normal((400, COLUMNS)), 8, 4)


@pytest.mark.parametrize(("way", "options"), [((4, 2, 2), {"stragglers": 1}), (3, {})])
def test_products(several, way, options):
    kept = Kept()
    options = {"shards_per_machine": way, "recorder": kept, **options}
    with opened_here(several.path, **options) as operator:
        for columns in (1, 4):
            check_products(operator, several.X, columns)
        operator.available = {1, 2}
        check_products(operator, several.X, 2)
        assert {len(record.rows) for record in kept.records} == {3}


def test_a_machine_that_is_late_is_not_waited_for(several):
    """With two shards on each of four, any one of which may be late; here three machines."""
    kept = Kept()
    options = {"shards_per_machine": (2, 2, 2), "stragglers": 1, "inject": "slow:2@0x500"}
    with open_operator(several.path, local=3, recorder=kept, **options) as operator:
        w = np.random.default_rng(2).standard_normal(COLUMNS)
        for _ in range(4):
            np.testing.assert_allclose(operator @ w, several.X @ w, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("check", "way"), [("sample", (3, 3, 2)), ("parity", (4, 2, 2))])
def test_answers_of_several_shards_are_compared(several, check, way):
    kept = Kept()
    options = {"shards_per_machine": way, "check": check, "stragglers": 1, "recorder": kept}
    with opened_here(several.path, **options) as operator:
        for columns in (1, 4):
            check_products(operator, several.X, columns)
        assert not any("wrong" in event for record in kept.records for event in record.events)
