"""Late and lost machines: options of a session."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args

from cec_mpi.errors import InputError
from cec_mpi.machine.faults import read_faults
from cec_mpi.options import values
from cec_mpi.options.deadline import Deadline, as_deadline
from cec_mpi.options.option import Group, check_choices, option, whole_number
from cec_mpi.processes.meeting import seconds_to_meet
from cec_mpi.text import shown

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest

OnLoss = Literal["end", "continue"]
Replacement = Literal["spare", "spawn"]
Check = Literal["none", "parity", "sample"]


class Running(Enum):
    """How the machines of a session run."""

    ALONE = "all in one process, which is the master too"
    LOCKSTEP = "ranks that make each step together"
    BY_MESSAGES = "ranks of which none that is late or lost holds up the others"


_PATIENT = Deadline(factor=10.0, least=2.0)  # where losing a machine may show in no other way


@dataclass(frozen=True, kw_only=True)
class Losses(Group):
    """Late and lost machines.

    Attributes
    ----------
    start_timeout : float, optional
        Seconds that all ranks have to come and meet before the first step; by default 60, and
        one more for each rank. Then those that have come raise `MachineError`.
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
    interface : str, optional
        With ``on_loss="continue"``, where rank 0 listens whether machines live: name, address
        or network of cards of its host, as ``"eth0"`` or ``"10.0.0.0/8,ib0"``. By default at
        127.0.0.1 when all run on its host, else at the cards that the launcher says ranks are to
        use, or at all.
    check : {"none", "parity", "sample"}
        With "parity", rows of X W need L + 1 answers that agree; the machine whose answers
        are wrong is named by L + 3, and replaced. Needs ``stragglers`` of at least 1.
        With "sample" this holds for four random rows of the shards in each step. With both,
        each machine's term of X' V is compared with its answer to a random vector.
    inject : str
        Faults of machines, as ``kill:3@10`` (see `read_faults`).
    """

    title = "late and lost machines"

    start_timeout: float | None = option(
        None,
        "--start-timeout SECONDS",
        "that all ranks have to start and meet (default: 60, and 1 more for each rank)",
        values.seconds,
    )
    stragglers: int = option(
        0, "--stragglers S", "each row on L + S machines, of which the first L count", values.whole
    )
    deadline: float | str | Deadline | None = option(
        None,
        "--deadline SECONDS|x1.5",
        "give a machine up for the step, after so long or so many times what was expected",
    )
    on_loss: OnLoss = option(
        "end", "--on-loss", "whether losing a machine ends the job", choices=get_args(OnLoss)
    )
    spares: int = option(
        0, "--spares K", "ranks more than N + 1, to take the place of lost machines", values.whole
    )
    replace: Replacement = option(
        "spare",
        "--replace",
        "spawn: without a spare, start a process in the place of a lost machine",
        choices=get_args(Replacement),
    )
    interface: str | None = option(
        None,
        "--interface NAME|ADDRESS",
        "card of rank 0's host at which it hears whether machines live, as eth0 or 10.0.0.0/8",
    )
    check: Check = option(
        "none",
        "--check",
        "compare one answer more than needed, of all rows or of a few, and replace wrong ones",
        choices=get_args(Check),
    )
    inject: str = option(
        "",
        "--inject FAULTS",
        "on order, as kill:3@10,stop:2@20,slow:5@30x4,corrupt:1@40,nan:1@45,leave:4@50 "
        "or random:0.01",
    )

    def running(self, alone: bool) -> Running:
        """How the machines run: in this process alone, or on ranks.

        Raises
        ------
        InputError
            Machines that are in this process cannot be late or lost.
        """
        by_messages = (
            self.stragglers
            or self.deadline is not None
            or self.on_loss != "end"
            or self.spares
            or self.check != "none"
        )
        if alone and by_messages:
            raise InputError(
                "stragglers, deadline, on_loss, spares and check are for machines under mpirun"
            )
        if alone and self.inject:
            raise InputError("inject is for machines under mpirun: here it would be this process")
        if alone:
            return Running.ALONE
        return Running.BY_MESSAGES if by_messages else Running.LOCKSTEP

    @property
    def goes_on(self) -> bool:
        """Whether a session goes on without a machine that is lost."""
        return self.on_loss == "continue"

    @property
    def starts_others(self) -> bool:
        """Whether it starts a process in the place of one that is lost."""
        return self.goes_on and self.replace == "spawn"

    def completed(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        total, recovery = manifest.code.machines, manifest.code.recovery
        seconds_to_meet(self.start_timeout, total)
        if not 0 <= whole_number("stragglers", self.stragglers) <= total - recovery:
            raise InputError(
                f"stragglers {self.stragglers}: expected 0 to {total - recovery} (N - L)"
            )
        if whole_number("spares", self.spares) < 0:
            raise InputError(f"spares {self.spares}: expected at least 0")
        check_choices(Losses, self)
        for given, wants_more in (
            ("spares", self.spares > 0),
            ("replace spawn", self.replace == "spawn"),
            ("interface", self.interface is not None),
        ):
            if wants_more and not self.goes_on:
                raise InputError(f"{given}: expected on_loss='continue' (--on-loss continue) too")
        if self.check == "parity" and self.stragglers < 1:
            raise InputError(
                "check parity: expected stragglers of at least 1 (--stragglers 1): each row needs "
                "one answer more than it is decoded from"
            )
        if not isinstance(self.inject, str):
            raise InputError(f"inject {shown(self.inject)}: expected text, as kill:3@10")
        read_faults(self.inject, total, 0)
        if self.deadline is not None:
            return {"deadline": as_deadline(self.deadline)}
        return {"deadline": _PATIENT if self.goes_on else None}
