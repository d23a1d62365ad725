"""What a report says at the top: what ran, how long, what happened, what it cost and who did."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from cec_mpi.records.events import KIND_OF, KINDS
from cec_mpi.report.away import Absence, late_words
from cec_mpi.report.comparisons import against, duration, unknown_of
from cec_mpi.report.costs import Costs
from cec_mpi.report.gathered import BROKEN, DONE, GOING, STOPPED, Run
from cec_mpi.report.reading import Floats
from cec_mpi.report.sums import added, made_with, sum_of
from cec_mpi.text import counted, few, listed

_NAMED = 5  # machines
_MOST_LEFT = 6  # sentences of who left
_ENOUGH = 5  # steps, for a median


def facts_of(run: Run) -> list[dict[str, str]]:
    """What ran, as labels and texts."""
    header, summary = run.header, run.summary
    about = summary.get("run", {})
    options = about.get("options") if isinstance(about, dict) else None
    task = str(summary.get("task") or _text(header, "task"))
    found = {
        "Task": task,
        "Options": _options(options) if isinstance(options, dict) else "",
        "X": f"{_whole(header, 'rows')} x {_whole(header, 'columns')}, {_text(header, 'dtype')}",
        "Code": f"{_text(header, 'code')}: {_text(header, 'machines')} machines, any "
        f"{_text(header, 'recovery')} are enough",
        "Scheme": _text(header, "scheme"),
        "Speeds": "learned" if header.get("speeds") in (None, "learn") else "given",
        "Shards": _text(header, "shards"),
        "Hosts": few(_hosts(run), _NAMED) if _hosts(run) else "",
        "Begin": str(header.get("started", "")),
        "End": run.last_time,
        "Parts": counted(len(run.headers), "part") if run.resumes else "",
        "MPI": str(header.get("mpi_library", "")).splitlines()[0][:80]
        if header.get("mpi_library")
        else "",
        "State": run.state,
    }
    return [{"label": label, "text": text} for label, text in found.items() if text]


def words_of(run: Run) -> list[str]:
    """Sentences: how long, steps, machines, who left when, what that cost, who cost most."""
    if not run.steps:
        return ["No step has been recorded yet."]
    said = [_what(run), _machines(run), _events(run), _left(run)]
    said += [_stalls(run), _fewer(run)]
    said += [_waited(run), _optimum(run), *unknown_of(run), _costliest(run)]
    return [each for each in said if each]


def warnings_of(run: Run) -> list[str]:
    """What a user should act on."""
    found = run.summary.get("warnings")
    return [str(each) for each in found] if isinstance(found, list) else []


def _what(run: Run) -> str:
    how = {
        DONE: "The run is done",
        STOPPED: "The run stopped, and can be resumed",
        BROKEN: "The run broke off",
        GOING: "The run is still going",
    }[run.state]
    converged = run.summary.get("converged")
    if run.state == DONE and converged is not None:
        how = "The run converged" if converged else "The run ended without convergence"
    steps = counted(run.steps, "step")
    text = f"{how}: {steps} in {sum_of(run)['whole']}"
    if run.resumes:
        after = listed((f"{each:,}" for each in run.resumes), _NAMED)
        text += f", in {len(run.headers)} parts (resumed after {after} steps)"
    return f"{text}."


def _machines(run: Run) -> str:
    present, absences = present_of(run), run.absences
    always = int((present >= run.steps).sum()) or "none"
    never = [n + 1 for n in np.flatnonzero(present <= 0)]
    text = (
        f"{counted(run.machines, 'machine')}, any {run.header['recovery']} of which are enough: "
        f"{present.sum() / run.steps:.3g} were available in a step on average, {always} throughout"
    )
    if never:
        text += f", {listed(never, _NAMED)} never"
    late = late_words(absences.late, run.steps, _NAMED)
    if not absences.left and not absences.came:
        return f"{text}. None left or came{f', but {late}' if late else ''}."
    times = f"Machines left {_times(absences.left)} and came {_times(absences.came)}"
    if not absences.came:
        times = f"Machines left {_times(absences.left)}"
    preempted = absences.preempted
    if preempted == absences.left > 0:
        times += ", preempted"
    elif preempted:
        times += f"; {_times(preempted)} they were preempted"
    return f"{text}. {times}{f'; besides, {late}' if late else ''}."


def present_of(run: Run) -> Floats:
    """In how many steps each machine was available from its begin to its end."""
    present = run.bins.present[: run.bins.bins].sum(axis=0)
    for machine, steps in run.absences.cut_short.items():
        present[machine - 1] -= steps
    return np.asarray(present, np.float64)


def _times(count: int) -> str:
    return "never" if not count else counted(count, "time")


def _events(run: Run) -> str:
    events = run.events
    counts = Counter(kind for _, kind, _, _ in events)
    if not events:
        late = "" if run.absences.late or run.absences.unanswered else ", late"
        return f"No machine was lost{late} or wrong."
    parts = []
    for index, count in sorted(counts.items()):
        who = sorted({machine for _, kind, machine, _ in events if kind == index})
        words = KINDS[index].words
        name = "machine" if len(who) == 1 else "machines"
        text = f"{name} {listed(who, _NAMED)} {words if len(who) == 1 else _several(words)}"
        parts.append(text + (f" ({count:,} times)" if count > len(who) else ""))
    joined = "; ".join(parts)
    return f"{joined[0].upper()}{joined[1:]}."


def _several(words: str) -> str:
    return "were" + words.removeprefix("was") if words.startswith("was ") else words


def _left(run: Run) -> str:
    """Which machines left when, of what else than being preempted, and whether they came back."""
    known = run.absences.known
    if not known:
        return ""
    said = [_absence(each, run) for each in known[:_MOST_LEFT]]
    more = len(known) - len(said)
    if more:
        said.append(f"{more:,} more, which the events have")
    return f"When machines left: {'; '.join(said)}."


def _absence(each: Absence, run: Run) -> str:
    text = f"machine {each.machine} in step {each.step:,} ({each.why})"
    if each.back is not None:
        same = each.back == each.step
        return f"{text}, back in {'the same step' if same else f'step {each.back:,}'}"
    if run.state == GOING:
        return f"{text}, not back so far"
    return f"{text}, not back in {counted(run.steps - each.index, 'step')} to the end"


def _stalls(run: Run) -> str:
    stalled = run.costs.stalled
    if not stalled:
        return ""
    parts = [
        f"{duration(stalled[each][1])} in {counted(stalled[each][0], 'step')} in which a machine "
        f"{kind.words}"
        for each, kind in KIND_OF.items()
        if each in stalled
    ]
    total = duration(sum(seconds for _, seconds in stalled.values()))
    worst = int(run.numbers["stall_seconds"].argmax())
    text = f"Stalls cost {total}: {listed(parts, 9)}"
    if sum(often for often, _ in stalled.values()) > 1:
        longest = duration(float(run.numbers["stall_seconds"][worst]))
        text += f"; the longest {longest} in step {int(run.numbers['step'][worst]):,}"
    return f"{text}."


def _fewer(run: Run) -> str:
    """How much longer steps computed with fewer machines."""
    made = [each for each in made_with(run) if each[1] >= _ENOUGH]
    if len(made) < 2 or not run.absences.left:
        return ""
    (few, _, longer), (many, _, shorter) = made[0], made[-1]
    if longer < 1.02 * shorter:
        return ""
    return (
        f"With {counted(many, 'machine')} a step computed for {duration(shorter)}, with {few:,} "
        f"for {duration(longer)} (medians): that fewer machines compute longer counts as no stall."
    )


def _optimum(run: Run) -> str:
    costs = run.costs
    if not costs.known:
        return ""
    where = "" if costs.known == run.steps else f" in {counted(costs.known, 'step')}"
    return (
        f"Computing took {duration(costs.computing)}{where}, {_than(costs)} the optimum in "
        "hindsight: the best shares of rows for the speeds that machines turned out to have."
    )


def _than(costs: Costs) -> str:
    text = against(costs.computing, costs.hindsight)
    return "as long as" if text == "as long" else f"{text} than"


def _waited(run: Run) -> str:
    waiting = run.numbers["waited_seconds"]
    if not waiting.any():
        return ""
    often = int(np.count_nonzero(waiting))
    return (
        f"The run waited {duration(float(waiting.sum()))} for enough machines, before {often:,} of "
        f"{counted(run.steps, 'step')}."
    )


def _costliest(run: Run) -> str:
    costs = run.costs
    cost = costs.cost
    if costs.uncounted:
        return _unanswered(run)
    if not len(cost) or not cost.max() > 0:
        return ""
    n = int(cost.argmax())
    lost = sum(kind == 0 and machine == n + 1 for _, kind, machine, _ in run.events)
    was_lost = f", as it was lost{f' {lost:,} times' if lost > 1 else ''}" if lost else ""
    why = {
        _was_last(run, n): float(costs.excess[n]),
        "waiting for rows that it read later than at the start": float(costs.loads[n]),
        f"in steps that it stalled{was_lost}": float(costs.stalls[n]),
    }
    said = sorted((reason for reason in why if why[reason] > 0), key=lambda each: -why[each])
    whole, parts = added([why[reason] for reason in said])
    shown = [(part, text) for part, text in zip(parts, said, strict=True) if part.strip("0. msh")]
    if len(shown) < 2:
        return f"Machine {n + 1} cost most, {duration(float(cost[n]))}: all of it {said[0]}."
    words = [f"{part} {text}" for part, text in shown]
    return f"Machine {n + 1} cost most, {whole}: {'; '.join(words)}."


def _was_last(run: Run, n: int) -> str:
    costs = run.costs
    text = (
        "over the optimum in hindsight where it was the last, in "
        f"{int(costs.slowest[n]):,} of {counted(run.steps, 'step')}"
    )
    plan = float(costs.over_plan[n])
    if plan > 0 and plan > 0.5 * costs.excess[n]:
        return f"{text}, which took {duration(plan)} longer than planned"
    return f"{text}, which took as long as planned, with more rows than were best"


def _unanswered(run: Run) -> str:
    """Who had no answer in time most often; what that cost is not in the records."""
    none, silent = run.absences.unanswered, run.absences.late
    order = sorted(none | silent, key=lambda n: (-none[n] - silent[n], n))
    text = "Nor can it be told which machine cost most"
    if not order:
        return f"{text}: all answers came in time."
    machine, *others = order
    text += f". Machine {machine} was usually still computing when enough answers had arrived"
    text += f": in {none[machine]:,} of {counted(run.steps, 'step')}"
    if silent[machine]:
        text += f", and in {silent[machine]:,} more it was late with an earlier one"
    then = [f"{n} ({none[n] + silent[n]:,})" for n in others[:_NAMED]]
    then += [f"{len(others) - len(then):,} more"] if len(others) > len(then) else []
    name = "machine" if len(others) == 1 else "machines"
    return f"{text}; then {name} {listed(then, 9)}." if then else f"{text}."


def _hosts(run: Run) -> list[str]:
    return list(dict.fromkeys(host for hosts in run.hosts.values() for host in hosts))


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())[:300]


def _text(header: dict[str, Any], name: str) -> str:
    return str(header.get(name, "?"))[:80]


def _whole(header: dict[str, Any], name: str) -> str:
    value = header.get(name)
    return f"{value:,}" if type(value) is int else _text(header, name)
