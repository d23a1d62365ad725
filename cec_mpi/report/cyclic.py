"""What the steps of a run would have taken with the cyclic assignment."""

from __future__ import annotations

from typing import Any

from cec_mpi.report.gathered import Run
from cec_mpi.text import duration


def against(mine: float, other: float) -> str:
    """Return by how much a time is above or below another one.

    Examples
    --------
    >>> against(1.1, 1.0), against(1.0, 2.0), against(1.0, 1.0)
    ('100 ms (10.0 %) more', '1.00 s (50.0 %) less', 'as long')
    """
    lost = mine - other
    if not other or abs(lost) < 0.0005 * other:
        return "as long"
    share = f"({100 * abs(lost) / other:.1f} %)"
    return f"{duration(abs(lost))} {share} {'more' if lost > 0 else 'less'}"


def cyclic_of(run: Run) -> dict[str, Any] | None:
    """Return what the cyclic assignment would have taken; None if no step tells it.

    Returns
    -------
    dict or None
        ``steps`` (how many tell), ``theirs`` and ``mine`` (seconds of computing) and ``text`` (by
        how much this run took more or less).
    """
    costs = run.costs
    if not costs.compared or run.header.get("copies") is not None:
        return None
    return {
        "steps": costs.compared,
        "theirs": costs.cyclic,
        "mine": costs.measured,
        "text": against(costs.measured, costs.cyclic),
    }


def unknown_of(run: Run) -> list[str]:
    """Return why that is not known."""
    if run.costs.uncounted:
        return [
            "With stragglers the records lack the answers that did not count, so what the cyclic "
            "assignment would have taken, and which machine cost most, is not known."
        ]
    if not run.costs.compared:
        return [
            "What equal loads would have taken is not known: in no step did all available machines "
            "compute enough rows."
        ]
    return []
