"""Comparison of a run with the cyclic assignment."""

from __future__ import annotations

from typing import Any

from cec_mpi.report.recorded_run import Run
from cec_mpi.text import format_duration


def compare_times(seconds: float, reference: float) -> str:
    """Return the absolute and relative difference of two times as text.

    Examples
    --------
    >>> compare_times(1.1, 1.0), compare_times(1.0, 2.0), compare_times(1.0, 1.0)
    ('100 ms (10.0 %) more', '1.00 s (50.0 %) less', 'the same')
    """
    difference = seconds - reference
    if not reference or abs(difference) < 0.0005 * reference:
        return "the same"
    percentage = f"({100 * abs(difference) / reference:.1f} %)"
    return f"{format_duration(abs(difference))} {percentage} {'more' if difference > 0 else 'less'}"


def cyclic_comparison(run: Run) -> dict[str, Any] | None:
    """Compare a run with the cyclic assignment; return None if no step can be compared.

    Returns
    -------
    dict or None
        ``steps`` (number of compared steps), ``cyclic`` and ``measured`` (seconds of computing),
        and ``text`` (the difference).
    """
    totals = run.time_totals
    if not totals.compared_steps or run.header.get("copies") is not None:
        return None
    return {
        "steps": totals.compared_steps,
        "cyclic": totals.cyclic_seconds,
        "measured": totals.measured_seconds,
        "text": compare_times(totals.measured_seconds, totals.cyclic_seconds),
    }


def comparison_notes(run: Run) -> list[str]:
    """Return sentences that explain why a comparison is missing."""
    if run.time_totals.stragglers:
        return [
            "Unused answers are not recorded in a run with stragglers, so the time of the cyclic "
            "assignment and the delays caused by machines are unknown."
        ]
    if not run.time_totals.compared_steps:
        return [
            "The time of the cyclic assignment is unknown, because there was no step in which all "
            "available machines computed enough rows."
        ]
    return []
