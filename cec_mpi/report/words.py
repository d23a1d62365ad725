"""What a report says at the top: what ran, how long, what happened, what it cost and who did."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from cec_mpi.report.gathered import BROKEN, DONE, GOING, Run
from cec_mpi.report.kinds import MARKED
from cec_mpi.text import few, listed, plural

_NAMED = 5  # machines


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> duration(0.00123), duration(12.34), duration(150), duration(7300)
    ('1.23 ms', '12.3 s', '2 min 30 s', '2 h 1 min')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def facts_of(run: Run) -> list[dict[str, str]]:
    """What ran, as labels and texts."""
    header, summary = run.header, run.summary
    about = summary.get("run", {})
    options = about.get("options") if isinstance(about, dict) else None
    task = str(summary.get("task") or _text(header, "task"))
    found = {
        "Task": task,
        "Options": _options(options) if isinstance(options, dict) else "",
        "X": f"{_text(header, 'rows')} x {_text(header, 'columns')}, {_text(header, 'dtype')}",
        "Code": f"{_text(header, 'code')}: {_text(header, 'machines')} machines, any "
        f"{_text(header, 'recovery')} are enough",
        "Scheme": _text(header, "scheme"),
        "Speeds": "learned" if header.get("speeds") in (None, "learn") else "given",
        "Shards": _text(header, "shards"),
        "Hosts": few(list(dict.fromkeys(_hosts(header))), _NAMED) if _hosts(header) else "",
        "Begin": str(header.get("started", "")),
        "End": run.last_time,
        "Parts": plural(len(run.headers), "part") if run.resumes else "",
        "MPI": str(header.get("mpi_library", "")).splitlines()[0][:80]
        if header.get("mpi_library")
        else "",
        "State": run.state,
    }
    return [{"label": label, "text": text} for label, text in found.items() if text]


def words_of(run: Run) -> list[str]:
    """Sentences: how long, steps, machines, events, time lost, and who cost most."""
    if not run.steps:
        return ["No step has been recorded yet."]
    said = [_what(run), _machines(run), _events(run)]
    said += [*_costs(run), _stalls(run), _waited(run), _costliest(run)]
    return [each for each in said if each]


def warnings_of(run: Run) -> list[str]:
    """What a user should act on."""
    found = run.summary.get("warnings")
    return [str(each) for each in found] if isinstance(found, list) else []


def _what(run: Run) -> str:
    n = run.numbers
    how = {
        DONE: "The run is done",
        BROKEN: "The run broke off",
        GOING: "The run is still going",
    }[run.state]
    converged = run.summary.get("converged")
    if run.state == DONE and converged is not None:
        how = "The run converged" if converged else "The run ended without convergence"
    steps = plural(run.steps, "step")
    text = f"{how}: {steps} in {duration(float(n['time'][-1]))}"
    if run.resumes:
        after = listed(run.resumes, _NAMED)
        text += f", in {len(run.headers)} parts (resumed after {after} steps)"
    spent = sum(float(n[name].sum()) for name in _PARTS)
    return f"{text}; the steps themselves took {duration(spent)}."


_PARTS = ("announce_seconds", "share_seconds", "collect_seconds", "decode_seconds")


def _machines(run: Run) -> str:
    present = run.bins.present[: run.bins.bins].sum(axis=0)
    always = int((present == run.steps).sum())
    never = [n + 1 for n in np.flatnonzero(present == 0)]
    text = (
        f"{plural(run.machines, 'machine')}, any {run.header['recovery']} of which are enough: "
        f"{present.sum() / run.steps:.3g} were available in a step on average, {always} always"
    )
    if never:
        text += f", {listed(never, _NAMED)} never"
    changes = run.costs.changes
    return f"{text}. Who was available changed {plural(changes, 'time')}."


def _events(run: Run) -> str:
    if not run.events:
        return "No machine was lost, late or wrong."
    counts = Counter(kind for _, kind, _, _ in run.events)
    parts = []
    for index, count in sorted(counts.items()):
        who = sorted({machine for _, kind, machine, _ in run.events if kind == index})
        words = MARKED[index].words or "had another event"
        name = "machine" if len(who) == 1 else "machines"
        text = f"{name} {listed(who, _NAMED)} {words if len(who) == 1 else _several(words)}"
        parts.append(text + (f" ({count} times)" if count > len(who) else ""))
    joined = "; ".join(parts)
    return f"{joined[0].upper()}{joined[1:]}."


def _several(words: str) -> str:
    return "were" + words.removeprefix("was") if words.startswith("was ") else words


def _costs(run: Run) -> list[str]:
    costs = run.costs
    said = []
    if costs.uncounted:
        said.append(
            "What the optimum in hindsight, the cyclic assignment and equal shares would have cost "
            f"cannot be told with answers that do not count (stragglers: {costs.uncounted})."
        )
    if costs.known:
        where = "" if costs.known == run.steps else f" of {plural(costs.known, 'step')}"
        said.append(
            f"Computing took {duration(costs.computing)}, the makespans{where} added up: "
            f"{against(costs.computing, costs.hindsight)} the optimum in hindsight."
        )
    if not costs.compared:
        if costs.uncounted:
            return said
        said.append(
            "What equal loads would have cost is not known: in no step did all available machines "
            "compute enough rows to tell."
        )
        return said
    where = "The"
    if costs.compared < run.steps:
        which = (
            "only step that tells" if costs.compared == 1 else f"{costs.compared} steps that tell"
        )
        where = f"In the {which}, the"
    said.append(
        f"{where} cyclic assignment would have computed for {duration(costs.cyclic)} at "
        f"the same speeds: this run took {against(costs.measured, costs.cyclic)} that."
    )
    equal = f"Equal shares without a code would have computed for {duration(costs.equal)}"
    reload = costs.reload_seconds(bytes_per_row(run.header))
    mine = costs.measured
    if costs.shared_anew:
        again = f"and shared X out anew {plural(costs.shared_anew, 'time')}"
        if reload is None:
            return [*said, f"{equal} {again}; what reading takes, this run has not shown."]
        equal += f" {again}, with {duration(reload)} of reading"
        mine += costs.waited_for_loads
        reload += costs.equal
    else:
        reload = costs.equal
    said.append(f"{equal} (an estimate): this run took {against(mine, reload)} that.")
    return said


def against(mine: float, other: float) -> str:
    """How much more or less than another time, in words.

    Examples
    --------
    >>> against(1.1, 1.0), against(1.0, 2.0), against(1.0, 1.0)
    ('100 ms (10.0 %) more than', '1 s (50.0 %) less than', 'as long as')
    """
    lost = mine - other
    if not other or abs(lost) < 0.0005 * other:
        return "as long as"
    share = f"({100 * abs(lost) / other:.1f} %)"
    return f"{duration(abs(lost))} {share} {'more' if lost > 0 else 'less'} than"


def bytes_per_row(header: dict[str, Any]) -> int:
    """Of X."""
    columns, dtype = header.get("columns"), header.get("dtype")
    if type(columns) is not int or columns < 1:
        return 0
    return columns * (4 if dtype == "float32" else 8)


def _stalls(run: Run) -> str:
    costs = run.costs
    if not costs.stalled:
        return ""
    return (
        f"Stalls cost {duration(float(costs.stalls.sum()))}: {costs.stalled} of "
        f"{plural(run.steps, 'step')} took longer to collect than usual because of machines that "
        "were lost, given up, late or wrong."
    )


def _waited(run: Run) -> str:
    waiting = run.numbers["waiting"]
    if not waiting.any():
        return ""
    often = int(np.count_nonzero(waiting))
    return (
        f"The run waited {duration(float(waiting.sum()))} for enough machines, before {often} of "
        f"{plural(run.steps, 'step')}."
    )


def _costliest(run: Run) -> str:
    costs = run.costs
    cost = costs.cost
    if not len(cost) or not cost.max() > 0:
        return ""
    n = int(cost.argmax())
    why = {}
    if costs.slowest[n]:
        why[_was_last(run, n)] = float(costs.excess[n])
    if costs.loads[n] > 0.05 * cost[n]:
        waited = float(costs.loads[n])
        why[f"rows that it read after the first step held up steps for {duration(waited)}"] = waited
    lost = sum(kind == 0 and machine == n + 1 for _, kind, machine, _ in run.events)
    was_lost = f"it was lost{f' {lost} times' if lost > 1 else ''}" if lost else ""
    stalls = float(costs.stalls[n])
    if stalls > 0.05 * cost[n]:
        text = f"stalled steps for {duration(stalls)}"
        why[f"{was_lost} and {text}" if lost else f"it {text}"] = stalls
    elif lost:
        why[was_lost] = 0.0
    said = sorted(why, key=lambda reason: -why[reason])
    return f"Machine {n + 1} cost most, {duration(float(cost[n]))}: {', and '.join(said)}."


def _was_last(run: Run, n: int) -> str:
    costs = run.costs
    text = f"it was the last in {int(costs.slowest[n])} of {plural(run.steps, 'step')}"
    plan = float(costs.over_plan[n])
    if plan > 0 and plan > 0.5 * costs.excess[n]:
        return f"{text} and took {duration(plan)} longer there than planned"
    if costs.excess[n] > 0:
        return f"{text}, as planned, with more rows than were best in hindsight"
    return text


def _hosts(header: dict[str, Any]) -> list[str]:
    hosts = header.get("hosts")
    return [str(each) for each in hosts] if isinstance(hosts, list) else []


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())[:300]


def _text(header: dict[str, Any], name: str) -> str:
    return str(header.get(name, "?"))[:80]
