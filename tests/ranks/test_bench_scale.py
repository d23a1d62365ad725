"""Steps of few ranks and of more, while the others sleep."""

from __future__ import annotations

from cec_mpi.bench.steps.scale import Scale


def test_all_numbers_of_ranks_are_measured_and_modelled(comm, mpi_tmp_path):
    scale = Scale(turns=1, steps=3, recovery=2, directory=str(mpi_tmp_path))
    figures = scale.measure_together(comm)
    if comm.rank:
        assert figures == []
        return
    assert list(mpi_tmp_path.iterdir()) == []
    assert len({each.key for each in figures}) == len(figures)
    found = {each.name: each for each in figures}
    for ranks in (2, 4):
        ratio = found[f"{ranks} ranks, collectives"]
        assert ratio.value > 0
        assert ratio.over == "a bare Bcast and Gatherv"
        for shape in ("small", "tall", "wide"):
            of = f"{ranks} ranks, collectives, {shape} X"
            assert (found[of].unit, found[f"{of}: model"].unit) == ("s", "s")
            assert found[of].value > 0
    (each,) = (
        figure
        for name, figure in found.items()
        if name.startswith("model, collectives, 2 to 4 ranks, ")
        and name.endswith(": rank 0, for each machine")
    )
    assert each.value >= 0
