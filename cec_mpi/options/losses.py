"""Late and lost machines: options of a session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cec_mpi.errors import InputError
from cec_mpi.machine.faults import read_faults
from cec_mpi.options import values
from cec_mpi.options.deadline import Deadline, as_deadline
from cec_mpi.options.option import Group, check_choices, option, several, whole_number
from cec_mpi.processes.meeting import seconds_to_meet
from cec_mpi.text import shown

if TYPE_CHECKING:
    from cec_mpi.core.placement.placement import Placement
    from cec_mpi.store.format.manifest import Manifest

Adopt = bool | Literal["need", "gain"] | None
OnLoss = Literal["end", "continue"]
Replacement = Literal["spare", "spawn"]
Check = Literal["none", "parity", "sample"]


class Running(Enum):
    """How the machines of a session run."""

    ALONE = "all in one process, which is the master too"
    LOCKSTEP = "ranks that make each step together"
    JOINING = "processes that come by themselves, and may leave, beside ranks if there are any"
    BY_MESSAGES = "ranks of which none that is late or lost holds up the others"


_PORTS = "the first and the last of some ports from 1 to 65535"
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
        With ``on_loss="continue"`` or ``accept``, where rank 0 listens whether machines live: name,
        address or network of cards of its host, as ``"eth0"`` or ``"10.0.0.0/8,ib0"``. By default
        at 127.0.0.1 when all run on its host, else at the cards that the launcher says ranks are to
        use, or at all.
    adopt : bool or {"need", "gain"}
        Machines take over shards of those that are away: with True, or "need", where the others
        have fewer than a step needs; with "gain" also where a machine is so fast that it has
        computed all of its own, and the time that was lost so far would have paid for reading.
    accept : str, optional
        Where to write a connection file, with which processes join as machines that are started
        by ``cec-mpi join``, at any time, beside the ranks that there are; there may be fewer of
        these than machines, and none (a communicator of None). A session goes on without those
        that leave or are lost.
    ports : tuple of (int, int), optional
        The first and the last port at which rank 0 may listen with ``on_loss="continue"`` or
        ``accept``, one for ranks and one for machines that join; by default any.
    check : {"none", "parity", "sample"}
        With "parity", rows of X W need L + 1 answers that agree; the machine whose answers
        are wrong is named by L + 3, and replaced; with fewer the step is refused. Needs
        ``stragglers`` of at least 1. Where machines have several shards, L must be left without
        any one machine, or three.
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
        "card of rank 0's host at which it listens, with --accept or --on-loss continue, as eth0 "
        "or 10.0.0.0/8",
    )
    adopt: Adopt = option(
        None,
        "--adopt",
        "have machines take over shards of those that are away where too few are left; =gain: "
        "also where a fast machine has computed all of its own",
        nargs="?",
        const="need",
        choices=("need", "gain"),
    )
    accept: str | None = option(
        None,
        "--accept FILE",
        "write FILE, with which machines join at any time: cec-mpi join FILE; mpirun is not needed",
        values.path,
    )
    ports: tuple[int, int] | None = option(
        None,
        "--ports A-B",
        "ports at which rank 0 may listen, with --accept or --on-loss continue",
        values.ports,
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
            or self.adopts
        )
        if self.accept is not None:
            return Running.JOINING
        if alone and by_messages:
            raise InputError(
                "stragglers, deadline, on_loss, spares, check and adopt are for machines under "
                "mpirun"
            )
        if alone and self.inject:
            raise InputError("inject is for machines under mpirun: here it would be this process")
        if alone:
            return Running.ALONE
        return Running.BY_MESSAGES if by_messages else Running.LOCKSTEP

    @property
    def adopts(self) -> bool:
        """Whether machines take over shards."""
        return self.adopt not in (None, False)

    @property
    def goes_on(self) -> bool:
        """Whether a session goes on without a machine that is lost."""
        return self.on_loss == "continue" or self.accept is not None

    @property
    def starts_others(self) -> bool:
        """Whether it starts a process in the place of one that is lost."""
        return self.on_loss == "continue" and self.accept is None and self.replace == "spawn"

    def completed(self, manifest: Manifest, placement: Placement) -> dict[str, Any]:
        """Check these options against a store."""
        adopt = "need" if self.adopt is True else self.adopt or None
        total, recovery = placement.machines, manifest.code.recovery
        seconds_to_meet(self.start_timeout, total)
        most = placement.to_spare(recovery)
        if not 0 <= whole_number("stragglers", self.stragglers) <= most:
            why = "N - L" if placement.is_plain else f"the others have {recovery} shards then"
            raise InputError(f"stragglers {self.stragglers}: expected 0 to {most} ({why})")
        if whole_number("spares", self.spares) < 0:
            raise InputError(f"spares {self.spares}: expected at least 0")
        check_choices(Losses, replace(self, adopt=adopt))
        or_accept = " or accept (--accept FILE)"
        for given, wants_more, other in (
            ("spares", self.spares > 0, ""),
            ("replace spawn", self.replace == "spawn", ""),
            ("interface", self.interface is not None, or_accept),
            ("ports", self.ports is not None, or_accept),
        ):
            if wants_more and not self.goes_on:
                raise InputError(
                    f"{given}: expected on_loss='continue' (--on-loss continue){other} too"
                )
        self.check_ports()
        if self.accept is not None:
            self.check_accept()
        if self.check == "parity" and self.stragglers < 1:
            raise InputError(
                "check parity: expected stragglers of at least 1 (--stragglers 1): each row needs "
                "one answer more than it is decoded from"
            )
        if self.check != "none" and most < 1 and not placement.is_plain:
            raise InputError(
                f"check {self.check}: expected machines any one of which can be missing, so that "
                f"answers can be compared: the others have fewer than {recovery} shards"
            )
        if not isinstance(self.inject, str):
            raise InputError(f"inject {shown(self.inject)}: expected text, as kill:3@10")
        read_faults(self.inject, total, 0)
        if adopt == "gain" and (self.stragglers or self.check != "none"):
            raise InputError(
                "adopt gain: expected no stragglers and no check, for which a shard is asked from "
                "one machine alone (adopt need goes with them)"
            )
        deadline = _PATIENT if self.goes_on else None
        if self.deadline is not None:
            deadline = as_deadline(self.deadline)
        return {"deadline": deadline, "adopt": adopt}

    def check_accept(self) -> None:
        """Refuse what is no file, no ports, or takes places that those who join are to have.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        name = str(self.accept) if isinstance(self.accept, str | Path) else ""
        if not name or "\0" in name:
            raise InputError(f"accept {shown(self.accept)}: expected the name of a file")
        for name, given in (("spares", self.spares), ("replace spawn", self.replace == "spawn")):
            if given:
                raise InputError(
                    f"{name} with accept: ranks and machines that join wait as spares when there "
                    "are enough"
                )
        self.check_ports()

    def check_ports(self) -> None:
        """Refuse what are no ports.

        Raises
        ------
        InputError
            Says what was expected.
        """
        if self.ports is None:
            return
        ports = [whole_number("ports", port) for port in several("ports", self.ports, _PORTS)]
        if len(ports) != 2 or not 0 < ports[0] <= ports[1] < 1 << 16:
            raise InputError(f"ports {shown(self.ports)}: expected {_PORTS}")
