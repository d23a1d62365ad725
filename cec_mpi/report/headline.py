"""The head of a report: facts of the run, three key figures, and the table of machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cec_mpi.report.absences import Absence
from cec_mpi.report.breakdown import format_sum
from cec_mpi.report.chunks import Floats
from cec_mpi.report.cyclic import comparison_notes
from cec_mpi.report.recorded_run import DONE, INTERRUPTED, RUNNING, STOPPED, Run
from cec_mpi.runtime.records.events import KINDS
from cec_mpi.text import format_count, format_duration, join_names, plural, truncate

_MAX_NAMED = 5  # machines, hosts or parts
_MIN_SHOWN_SECONDS = 5e-10  # shorter times are omitted
_MAX_ABSENCES = 3  # of a machine in the table


class KeyFigure(NamedTuple):
    """A figure that summarises a run at the head of its report.

    Attributes
    ----------
    label, value : str
    note : str
        Explanation of the value.
    """

    label: str
    value: str
    note: str


def _threshold_fact(run: Run) -> dict[str, str]:
    """Return the code or the number of copies, and the number of machines that suffice."""
    copies, machines = run.header.get("copies"), format_count(run.machines, "machine")
    if isinstance(copies, int):
        threshold = run.machines - copies + 1
        copies_text = plural(copies, "machine")
        return {"Copies": f"each row is on {copies_text}: any {threshold} of {machines} suffice"}
    family, threshold = _field_text(run.header, "code"), run.header["recovery"]
    return {"Code": f"{family}: any {threshold} of {machines} suffice"}


def run_facts(run: Run) -> list[dict[str, str]]:
    """Return facts about a run as dicts of ``label`` and ``text``."""
    header, summary = run.header, run.summary
    hosts = list(dict.fromkeys(host for names in run.hosts.values() for host in names))
    options = summary.get("run", {}).get("options")
    event_counts = Counter(kind for _, kind, _, _ in run.events)
    facts = {
        "Options": _format_options(options) if isinstance(options, dict) else "",
        "X": f"{_shape_text(header)}, {_field_text(header, 'dtype')}",
        **_threshold_fact(run),
        "Scheme": _field_text(header, "scheme"),
        "Speeds": "learned" if header.get("speeds") in (None, "learn") else "given",
        "Shards": _field_text(header, "shards"),
        "Simulated": _simulation_note(header),
        "Hosts": truncate(hosts, _MAX_NAMED) if hosts else "",
        "Begin": str(header["started"]),
        "End": run.last_timestamp,
        "MPI": _field_text(header, "mpi_library").splitlines()[0]
        if header.get("mpi_library")
        else "",
        "Events": ", ".join(
            f"{count:,} {KINDS[kind].label(count)}" for kind, count in sorted(event_counts.items())
        ),
        "Restarting": _restart_fact(run),
        "Digits": _digits_fact(run),
    }
    return [{"label": label, "text": text} for label, text in facts.items() if text]


def _restart_fact(run: Run) -> str:
    """Return the restart time above which the run would have been slower without a code."""
    changes = {
        step
        for absence in run.absences.periods
        for step in (absence.step, absence.return_step)
        if step is not None and not (run.time_totals.stragglers and absence.reason == "late")
    }
    if not changes or not run.steps:
        return ""
    decoding = float(run.step_columns["decode_seconds"].sum())
    changes_text = "the change" if len(changes) == 1 else f"each of {len(changes):,} changes"
    return (
        f"slower without a code if a restart after {changes_text} had taken more than "
        f"{format_duration(decoding / len(changes))} (decoding took {format_duration(decoding)})"
    )


def _digits_fact(run: Run) -> str:
    """Return the number of correct digits in the worst step; empty if unknown."""
    dtype = run.header.get("dtype")
    if not run.steps or dtype not in ("float32", "float64"):
        return ""
    errors = run.step_columns["condition_number"] * run.step_columns["cancellation"]
    finite_errors = errors[np.isfinite(errors)]
    if not finite_errors.size:
        return ""
    digits = -math.log10(max(float(finite_errors.max()), 1.0) * float(np.finfo(dtype).eps))
    return f"at least about {max(int(digits), 0)} are correct in all steps"


def status_sentences(run: Run) -> list[str]:
    """Return sentences about the outcome of a run, and about times that are unknown."""
    task = str(run.summary.get("task") or _field_text(run.header, "task"))
    if not run.steps:
        return ["No step has been recorded yet."]
    status = {
        DONE: "is done",
        STOPPED: "stopped, and --resume continues it",
        INTERRUPTED: "was interrupted",
        RUNNING: "is running",
    }[run.state]
    converged = run.summary.get("converged")
    if run.state == DONE and converged is not None:
        status = "converged" if converged else "did not converge"
    simulated = ["All times are simulated."] if "simulated" in run.header else []
    return [f"{'The run' if task == '?' else task} {status}.", *simulated, *comparison_notes(run)]


def key_figures(run: Run) -> list[KeyFigure]:
    """Return three key figures: duration, time lost and imbalance."""
    if not run.steps:
        return []
    totals, duration = run.time_totals, float(run.step_columns["time"][-1])
    steps = format_count(run.steps, "step")
    if run.resumptions:
        counts = join_names((f"{count:,}" for count in run.resumptions), _MAX_NAMED)
        steps += f" in {len(run.headers)} parts, resumed after {counts} steps"
    lost = {
        name: seconds
        for name, seconds in totals.lost_seconds.items()
        if seconds >= _MIN_SHOWN_SECONDS
    }
    total, texts = format_sum(list(lost.values()))
    share = f" ({100 * sum(lost.values()) / duration:.1f} %)" if lost and duration else ""
    return [
        KeyFigure("Duration", format_duration(duration), steps),
        KeyFigure(
            "Time lost",
            f"{total if lost else format_duration(0)}{share}",
            ", ".join(f"{text} {name}" for name, text in zip(lost, texts, strict=True)),
        ),
        _imbalance(run),
    ]


def _imbalance(run: Run) -> KeyFigure:
    totals = run.time_totals
    label = "Imbalance"
    if not totals.hindsight_steps or not totals.hindsight_seconds:
        return KeyFigure(label, "unknown", "")
    excess_percent = max(0.0, 100 * (totals.computing_seconds / totals.hindsight_seconds - 1))
    is_complete = totals.hindsight_steps == run.steps
    scope = "" if is_complete else f" in {format_count(totals.hindsight_steps, 'step')}"
    return KeyFigure(
        label,
        f"{excess_percent:.1f} %",
        f"Computing took {format_duration(totals.computing_seconds)}{scope}; the optimal "
        f"assignment for the measured speeds takes {format_duration(totals.hindsight_seconds)}.",
    )


def run_warnings(run: Run) -> list[str]:
    """Return the warnings in the summary of a run."""
    warnings = run.summary.get("warnings")
    return [str(warning) for warning in warnings] if isinstance(warnings, list) else []


def machine_table(run: Run) -> dict[str, Any]:
    """Return the table of machines.

    The order is descending, by delay or, in a run with stragglers, by missing answers.

    Returns
    -------
    dict
        ``caption``, ``columns`` (each ``label`` and ``unit``: seconds, whole, percent or text) and
        ``rows``: the number of a machine and a value for each column. Columns of zeros are
        omitted.
    """
    totals, absences = run.time_totals, run.absences
    machines = range(1, run.machines + 1)
    rows, seconds = (
        sums[: run.bins.count].sum(axis=0) for sums in (run.bins.rows, run.bins.seconds)
    )
    absences_by_machine: dict[int, list[Absence]] = {}
    for absence in absences.periods:
        if absence.reason != "late" or not totals.stragglers:  # stragglers are often late
            absences_by_machine.setdefault(absence.machine, []).append(absence)
    delays = totals.total_delays
    table: dict[str, tuple[str, Any]] = {
        "Delay": ("seconds", delays),
        "Left": (
            "text",
            [_describe_absences(absences_by_machine.get(n, []), run) for n in machines],
        ),
        "Delay by slowness": ("seconds", np.maximum(totals.slowness_delays, 0)),
        "Delay by reading": ("seconds", totals.reading_delays),
        "Delay by stalls": ("seconds", totals.stall_delays),
        "Delay by absence": ("seconds", totals.absence_delays),
        "Steps unanswered": ("whole", [absences.unanswered_steps[n] for n in machines]),
        "Steps late": ("whole", [absences.late_steps[n] for n in machines]),
        "Steps as slowest": ("whole", totals.slowest_steps),
        "Over plan": ("seconds", np.maximum(totals.plan_excess, 0)),
        "Computing": ("seconds", seconds),
        "Rows": ("whole", rows),
        "Available": ("percent", available_steps(run) / run.steps),
    }
    columns = {
        name: (unit, values)
        for name, (unit, values) in table.items()
        if any(value if unit == "text" else value >= _MIN_SHOWN_SECONDS for value in values)
    }
    visible_delays = delays if "Delay" in columns else np.zeros(len(delays))
    missing_answers = np.array(
        [absences.unanswered_steps[n] + absences.late_steps[n] for n in machines]
    )
    sort_keys = -missing_answers, -visible_delays  # the last one counts most
    order = np.lexsort(sort_keys[::-1] if totals.stragglers else sort_keys)
    criterion = "missing answers" if totals.stragglers else "delay"
    return {
        "caption": f"Machines, in descending order of {criterion}",
        "columns": [{"label": name, "unit": unit} for name, (unit, _) in columns.items()],
        "rows": [
            [int(n) + 1, *(v[n] if unit == "text" else float(v[n]) for unit, v in columns.values())]
            for n in order
        ],
    }


def _describe_absences(absences: list[Absence], run: Run) -> str:
    """Return a description of the absences of a machine."""
    sentences = []
    for absence in absences[:_MAX_ABSENCES]:
        if absence.return_step is None:
            end = "not returned yet" if run.state == RUNNING else "not returned"
        elif absence.return_step == absence.step:
            end = "returned in the same step"
        else:
            end = f"returned in step {absence.return_step:,}"
        sentences.append(f"step {absence.step:,} ({absence.reason}), {end}")
    if len(absences) > len(sentences):
        sentences.append(f"{len(absences) - len(sentences):,} more")
    return "; ".join(sentences)


def available_steps(run: Run) -> Floats:
    """Return the number of steps during which each machine stayed available."""
    steps = run.bins.available_steps[: run.bins.count].sum(axis=0)
    for machine, departures in run.absences.departure_steps.items():
        steps[machine - 1] -= departures
    return np.asarray(steps, np.float64)


def _simulation_note(header: Mapping[str, Any]) -> str:
    """Return a note about a simulated run; empty for a real run."""
    simulated = header.get("simulated")
    if not isinstance(simulated, dict):
        return ""
    return f"times and bytes are modelled for an X of {_shape_text(simulated)} numbers"


def _format_options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())[:300]


def _field_text(header: dict[str, Any], name: str) -> str:
    return str(header.get(name, "?"))[:80]


def _shape_text(header: Mapping[str, Any]) -> str:
    return " x ".join(f"{header[k]:,}" if k in header else "?" for k in ("rows", "columns"))
