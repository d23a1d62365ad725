"""How steps are made: the options of a session, checked against a store."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from cec_mpi.availability import as_availability
from cec_mpi.core.load import check_speeds
from cec_mpi.core.planner import Scheme, check_scheme
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.deadline import Deadline, as_deadline
from cec_mpi.runtime.emulation import SpeedChange
from cec_mpi.runtime.faults import read_faults
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import HOLDINGS, VERIFYING, Holding, Verify

__all__ = [
    "Check",
    "OnLoss",
    "Replacement",
    "SessionOptions",
    "SpeedsOption",
    "needs_messages",
]

OnLoss = Literal["end", "continue"]
Replacement = Literal["spare", "spawn"]
Check = Literal["none", "parity", "sample"]
SpeedsOption = Sequence[float] | Mapping[str, float] | Literal["learn"]
_PATIENT = Deadline(factor=10.0, least=2.0)  # where losing a machine may show in no other way


def needs_messages(options: Mapping[str, Any]) -> bool:
    """Whether these options of a session need messages in place of collectives."""
    return bool(
        options.get("stragglers")
        or options.get("deadline") is not None
        or options.get("on_loss", "end") != "end"
        or options.get("spares")
        or options.get("check", "none") != "none"
    )


@dataclass(frozen=True)
class SessionOptions:
    """How steps are made.

    Attributes
    ----------
    availability : Availability, path, callable, set of int, sequence of sets, optional
        Who is available (see `as_availability`); by default all machines, always.
    speeds : sequence of float, mapping of str to float, or "learn"
        Relative speed of machines 1..N, or of hosts by their names, for each machine there;
        by default they are learned from the times that machines measure.
    scheme : {"heterogeneous", "cyclic"}
    machines : iterable of int, optional
        Machines that take part; the others are preempted for good. By default all.
    tick_seconds : float, optional
        Wall-clock length of a tick of availability; by default each step is a tick.
    wait : bool
        Wait for the next tick when too few machines are available.
    threads : int, optional
        BLAS threads per rank; by default its share of the node's cores.
    shards : {"mmap", "ram"}
        Whether machines compute with rows in the page cache or in memory of their own.
    verify : {"first-read", "never"}
        Whether a machine checks a block when it reads it for the first time.
    staged : str, optional
        Where copies of the shards are on each node, with ``{host}`` for its name; by
        default where the store was staged to last. Empty: nowhere.
    stragglers : int
        S: each row is computed by L + S machines, and X W needs the first L answers only.
    deadline : float or str, optional
        A machine that has not answered after so many seconds, or ``"x1.5"`` times the time
        that was to be expected, is given up for the step. By default never, and with
        ``on_loss="continue"`` ten times that time, at least 2 s.
    on_loss : {"end", "continue"}
        What a machine that is lost ends: the job, or only its part in it.
    spares : int
        Ranks more than there are machines, to take the place of lost ones.
    replace : {"spare", "spawn"}
        What takes the place of a lost machine: a spare, or where there is none a process that
        is started then.
    check : {"none", "parity", "sample"}
        With "parity", rows of X W need L + 1 answers that agree; the machine whose answers
        are wrong is named by one more, and replaced. Needs ``stragglers`` of at least 1.
        With "sample" this holds for four random rows of the shards in each step.
    emulate_speeds : tuple of float, optional
        Make machine n take at least ``rows / (emulate_speeds[n - 1] * base)`` seconds.
    emulate_base : float, optional
        Rows per second; by default measured, so that half of each node is enough.
    emulate_noise : float
    emulate_changes : iterable of SpeedChange
    seed : int
        For the noise, and for random faults.
    inject : str
        Faults of machines, as ``kill:3@10`` (see `read_faults`).
    """

    availability: Any = None
    speeds: SpeedsOption = "learn"
    scheme: Scheme = "heterogeneous"
    machines: tuple[int, ...] | None = None
    tick_seconds: float | None = None
    wait: bool = False
    threads: int | None = None
    shards: Holding = "mmap"
    verify: Verify = "first-read"
    staged: str | None = None
    stragglers: int = 0
    deadline: float | str | Deadline | None = None
    on_loss: OnLoss = "end"
    spares: int = 0
    replace: Replacement = "spare"
    check: Check = "none"
    emulate_speeds: tuple[float, ...] | None = None
    emulate_base: float | None = None
    emulate_noise: float = 0.0
    emulate_changes: tuple[SpeedChange, ...] = ()
    seed: int = 0
    inject: str = ""

    def checked(self, manifest: Manifest) -> SessionOptions:
        """These options with every default filled in, checked against a store.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        InfeasibleError
            Fewer machines take part than the recovery threshold.
        """
        try:
            return self._checked(manifest)
        except (InputError, InfeasibleError):
            raise
        except (TypeError, ValueError) as error:
            raise InputError(f"an option of the session has the wrong type: {error}") from None

    def _checked(self, manifest: Manifest) -> SessionOptions:
        total, recovery = manifest.code.machines, manifest.code.recovery
        machines = tuple(range(1, total + 1))
        if self.machines is not None:
            machines = tuple(sorted(_whole("machines", n) for n in self.machines))
            if len(set(machines)) != len(machines):
                raise InputError(f"machines {_listed(machines)}: one is named twice")
            if not machines or machines[0] < 1 or machines[-1] > total:
                raise InputError(f"machines {_listed(machines)}: the store has machines 1..{total}")
        if len(machines) < recovery:
            raise InfeasibleError(
                f"{len(machines)} machines take part: a step needs {recovery} of this store"
            )
        if not 0 <= _whole("stragglers", self.stragglers) <= total - recovery:
            raise InputError(
                f"stragglers {self.stragglers}: expected 0 to {total - recovery} (N - L)"
            )
        if _whole("spares", self.spares) < 0:
            raise InputError(f"spares {self.spares}: expected at least 0")
        if self.on_loss not in get_args(OnLoss):
            raise InputError(f"on_loss {self.on_loss!r}: expected {' or '.join(get_args(OnLoss))}")
        if self.spares and self.on_loss == "end":
            raise InputError("spares: expected on_loss='continue' (--on-loss continue) too")
        if self.replace not in get_args(Replacement):
            raise InputError(
                f"replace {self.replace!r}: expected {' or '.join(get_args(Replacement))}"
            )
        if self.replace == "spawn" and self.on_loss == "end":
            raise InputError("replace spawn: expected on_loss='continue' (--on-loss continue) too")
        if self.check not in get_args(Check):
            raise InputError(f"check {self.check!r}: expected {' or '.join(get_args(Check))}")
        if self.check != "none":
            _check_sensitivity(self.check, manifest)
        if self.check == "parity" and self.stragglers < 1:
            raise InputError(
                "check parity: expected stragglers of at least 1 (--stragglers 1): each row needs "
                "one answer more than it is decoded from"
            )
        deadline = None if self.deadline is None else as_deadline(self.deadline)
        if deadline is None and self.on_loss == "continue":
            deadline = _PATIENT
        read_faults(self.inject, total, self.seed)
        check_scheme(self.scheme)
        if self.shards not in HOLDINGS:
            raise InputError(f"shards {self.shards!r}: expected {' or '.join(HOLDINGS)}")
        if self.verify not in VERIFYING:
            raise InputError(f"verify {self.verify!r}: expected {' or '.join(VERIFYING)}")
        speeds = self.speeds
        if speeds is None or isinstance(speeds, str):
            if speeds not in (None, "learn"):
                raise InputError(f"speeds {speeds!r}: expected {total} numbers, or learn")
            speeds = "learn"
        elif isinstance(speeds, Mapping):
            check_speeds(list(speeds.values()))
        else:
            speeds = _checked_speeds("speeds", speeds, total)
        changes = tuple(self.emulate_changes)
        emulated = self.emulate_speeds
        if emulated is not None:
            emulated = _checked_speeds("emulated speeds", emulated, total)
        elif self.emulate_base is not None or self.emulate_noise or changes:
            raise InputError("emulation of a base, noise or change: expected emulated speeds too")
        if self.threads is not None and _whole("threads", self.threads) < 1:
            raise InputError(f"threads {self.threads}: expected at least 1")
        if self.staged is not None and not isinstance(self.staged, str):
            raise InputError(f"staged {self.staged!r}: expected text")
        if not isinstance(self.wait, bool):
            raise InputError(f"wait {self.wait!r}: expected True or False")
        if _whole("seed", self.seed) < 0:
            raise InputError(f"seed {self.seed}: expected at least 0")
        base = self.emulate_base
        if base is not None and not 0 < base < float("inf"):
            raise InputError(f"emulation base {base}: expected a positive number")
        if self.tick_seconds is not None and not 1e-6 <= self.tick_seconds < float("inf"):
            raise InputError(
                f"tick {self.tick_seconds}: expected a positive number of seconds, at least 1e-6"
            )
        if not 0 <= self.emulate_noise <= 10:
            raise InputError(f"emulation noise {self.emulate_noise}: expected 0 to 10")
        slowest = (self.emulate_base or 1.0) * min(emulated or (1.0,))
        if emulated is not None and self.emulate_base is not None and slowest < 1e-3:
            raise InputError(f"emulation of {slowest} rows per second: expected at least 0.001")
        for change in changes:
            if not isinstance(change, SpeedChange):
                raise InputError(f"emulated change {change!r}: expected a SpeedChange")
            if not (1 <= change.machine <= total and 1e-6 <= change.factor <= 1e6):
                raise InputError(
                    f"emulated change of machine {change.machine} by {change.factor}: expected "
                    f"a machine 1..{total} and a factor of 1e-6 to 1e6"
                )
        return replace(
            self,
            availability=as_availability(self.availability, total),
            machines=machines,
            speeds=speeds,
            deadline=deadline,
            emulate_speeds=emulated,
            emulate_changes=changes,
        )


def _listed(machines: tuple[int, ...]) -> str:
    return ",".join(map(str, machines))


def _check_sensitivity(check: Check, manifest: Manifest) -> None:
    """Refuse to look for wrong answers with a code that does not show them."""
    seen = manifest.sensitivity
    if seen is not None and seen.detectable * float(np.finfo(manifest.dtype).eps) >= 1:
        raise InputError(
            f"check {check}: this code ({manifest.code.family}, {manifest.dtype}) does not show a "
            f"wrong answer of machine {seen.machines[0]} beside all sets of others: encode with "
            "dtype float64, or another code"
        )


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} {value!r}: expected whole numbers") from None


def _checked_speeds(name: str, speeds: Sequence[float], total: int) -> tuple[float, ...]:
    if len(speeds) != total:
        raise InputError(f"{len(speeds)} {name}: the store has {total} machines")
    try:
        return tuple(check_speeds(speeds).tolist())
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
