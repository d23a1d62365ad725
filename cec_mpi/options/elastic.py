"""Runs that continue without late and lost machines: options of a session."""

from __future__ import annotations

from dataclasses import Field, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cec_mpi.errors import InputError
from cec_mpi.options import values
from cec_mpi.options.option import (
    Group,
    check_choices,
    option,
    own_options,
    several,
    whole_number,
)
from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.processes.together import seconds_to_meet
from cec_mpi.text import shown
from cec_mpi.times import LATE_SECONDS, USUAL_DEADLINE, USUAL_LATE_SECONDS

if TYPE_CHECKING:
    from cec_mpi.core.plan.placement import Placement
    from cec_mpi.store.format.manifest import Manifest

_MOST_FACTOR = 1e6
Check = Literal["none", "parity", "sample"]
CONNECTION = "connection.json"
"""The connection file in the directory of a run."""
_REMOVED = {
    "task": "the task is a word after the store, such as cec-mpi run STORE svd k=5",
    "set": "options of the task are words, such as cec-mpi run STORE svd k=5",
    "on_loss": "a run with elastic (--elastic) continues without lost machines",
    "spares": "with elastic (--elastic), processes beyond the machines of the store are spares",
    "replace": "cec-mpi join starts a machine that takes the place of a lost one, at any time",
}
_PORTS = "the first and the last of some ports from 1 to 65535"


@dataclass(frozen=True)
class Deadline:
    """Seconds, or a factor of the time that was to be expected.

    Attributes
    ----------
    seconds : float or None
    factor : float
        Where there are no seconds.
    least : float
        Seconds that such a factor gives at least.
    """

    seconds: float | None = None
    factor: float = 1.0
    least: float = LATE_SECONDS

    def allowed(self, expected: float | None) -> float | None:
        """Seconds for an answer that was expected after so many; None while not known.

        Examples
        --------
        >>> Deadline(factor=1.5).allowed(2.0), Deadline(seconds=5.0).allowed(None)
        (3.0, 5.0)
        """
        if self.seconds is not None:
            return self.seconds
        return None if expected is None else max(self.least, self.factor * expected)


def as_deadline(given: object) -> Deadline:
    """From seconds, or text: ``"5"`` seconds, or ``"x1.5"`` times what is expected.

    Raises
    ------
    InputError
        It is nothing of these.

    Examples
    --------
    >>> as_deadline("x1.5").factor, as_deadline("0.2").seconds
    (1.5, 0.2)
    """
    text = str(given)
    is_factor = text.startswith("x")
    try:
        number = float(text.removeprefix("x"))
    except ValueError:
        number = float("nan")
    if not (1 <= number <= _MOST_FACTOR if is_factor else 0 < number < float("inf")):
        raise InputError(
            f"deadline {given}: expected seconds, as 5, or a factor of at least 1, as x1.5"
        )
    return Deadline(factor=number) if is_factor else Deadline(seconds=number)


_PATIENT = Deadline(factor=USUAL_DEADLINE, least=USUAL_LATE_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Elastic(Group):
    """Late, lost and joining machines.

    Attributes
    ----------
    start_timeout : float, optional
        Seconds that all processes have to start and meet before the first step; by default 60, and
        one more for each process. In lockstep those that have come raise `MachineError` then; an
        elastic run begins if there are enough.
    elastic : bool
        Machines talk to the master over sockets, without MPI: steps continue without those that
        are late, lost or leave, and others may join at any time. Each option below makes a run
        elastic, too.
    local : int, optional
        Machines that are started as processes on this computer.
    stragglers : int
        S: each row is computed by L + S machines, and X W needs the first L answers only.
    deadline : float or str, optional
        A step stops waiting for a machine after this many seconds, or with ``"x1.5"`` after 1.5
        times its expected time. By default ten times that, at least 2 s.
    adopt : bool
        Machines take over shards of those that are away, where the others have fewer than a step
        needs.
    accept : str, optional
        Where to write the connection file, with which ``cec-mpi join`` starts machines on any
        computer; the session waits for them whenever there are too few.
    listen : str, optional
        ``"HOST:PORT"`` at which rank 0 listens, where there is no directory that all nodes share:
        then the key in the environment variable CEC_MPI_KEY takes the place of the connection file.
    encryption : bool
        Encrypt what travels between hosts. Without it machines still show the key; for networks
        that are trusted.
    interface : str, optional
        Where rank 0 listens: name, address or network of cards of its host, as ``"eth0"`` or
        ``"10.0.0.0/8,ib0"``. By default the cards that the launcher says ranks are to use, or all.
    ports : tuple of (int, int), optional
        The first and the last port at which rank 0 may listen; by default any.
    check : {"none", "parity", "sample"}
        With "parity", rows of X W need L + 1 answers that agree; the machine whose answers
        are wrong is named by L + 3, and replaced; with fewer the step is refused. Needs
        ``stragglers`` of at least 1. Where machines have several shards, L must be left without
        any one machine, or three.
        With "sample" this holds for four random rows of the shards in each step. With both,
        each machine's term of X' V is compared with its answer to a random vector.
    wait : bool
        Wait while too few machines are available.
    """

    title = "machines that are late, are lost or join"

    start_timeout: float | None = option(
        None,
        "--start-timeout SECONDS",
        "how long all processes may take to start and meet (default: 60, and 1 more for each "
        "process)",
        values.seconds,
    )
    elastic: bool = option(
        False,
        "--elastic",
        "continue without machines that are late or lost, let others join at any time with cec-mpi "
        "join DIR/connection.json, and write checkpoints; the default without a launcher",
        elastic=True,
        is_common=True,
    )
    local: int | None = option(
        None,
        "--local N",
        "start N machines on this computer; implies --elastic (default without a launcher: one for "
        "each core, at least one more than a step needs)",
        values.positive,
        elastic=True,
        is_common=True,
    )
    stragglers: int = option(
        0,
        "--stragglers S",
        "compute each row on L + S machines and use the first L answers, so that S slow machines "
        "delay no step; implies --elastic (default: 0)",
        values.whole,
        elastic=True,
        is_common=True,
    )
    deadline: float | str | Deadline | None = option(
        None,
        "--deadline SECONDS|x1.5",
        "stop waiting for a machine after this many seconds, or this multiple of its expected "
        "time; implies --elastic (default: x10, at least 2 seconds)",
        elastic=True,
    )
    adopt: bool = option(
        False,
        "--adopt",
        "let machines read the shards of absent ones if too few are left; implies --elastic",
        elastic=True,
    )
    accept: str | None = option(
        None,
        "--accept FILE",
        "write FILE, with which machines on any computer join (cec-mpi join FILE), and wait "
        "whenever there are too few; implies --elastic",
        values.path,
        elastic=True,
        is_common=True,
    )
    listen: str | None = option(
        None,
        "--listen HOST:PORT",
        "listen at this address, with the key in the environment variable CEC_MPI_KEY, in place "
        "of a connection file; implies --elastic",
        elastic=True,
    )
    encryption: bool = option(
        True,
        "--no-encryption",
        "do not encrypt between hosts; faster, for trusted networks (machines still need the key)",
    )
    interface: str | None = option(
        None,
        "--interface NAME|ADDRESS",
        "network interface on which rank 0 listens, such as eth0 or 10.0.0.0/8 (default: all)",
    )
    ports: tuple[int, int] | None = option(
        None, "--ports A-B", "ports on which rank 0 may listen (default: any)", values.ports
    )
    check: Check = option(
        "none",
        "--check",
        "find wrong answers and replace them: compare one more answer than needed for all rows "
        "(parity) or for four random rows (sample); implies --elastic (default: none)",
        choices=get_args(Check),
        elastic=True,
    )
    wait: bool = option(
        False, "--wait", "wait while too few machines are available, instead of ending"
    )

    @property
    def is_elastic(self) -> bool:
        """Whether machines talk to the master over sockets, and may be late or lost."""
        return any(
            getattr(self, each.name) not in (each.default, False) for each in elastic_options()
        )

    @property
    def starts_nothing(self) -> bool:
        """Whether all machines are started elsewhere, and are waited for."""
        launcher = detect_launcher()
        is_launched = launcher is not None and launcher.size > 1
        return self.is_elastic and self.local is None and not is_launched

    def completed(self, manifest: Manifest, placement: Placement) -> dict[str, Any]:
        """Check these options against a store."""
        if not isinstance(self.wait, bool):
            raise InputError(f"wait {self.wait!r}: expected True or False")
        seconds_to_meet(self.start_timeout, placement.machines)
        check_choices(Elastic, self)
        if not isinstance(self.adopt, bool):
            raise InputError(f"adopt {shown(self.adopt)}: expected True or False")
        if self.local is not None and whole_number("local", self.local) < 1:
            raise InputError(f"local {self.local}: expected at least 1 machine")
        for name, is_given in (
            ("interface", self.interface is not None),
            ("ports", self.ports is not None),
            ("no encryption", not self.encryption),
        ):
            if is_given and not self.is_elastic:
                raise InputError(f"{name}: expected an elastic run (--elastic)")
        self.check_listening()
        self.check_store(manifest, placement)
        deadline = _PATIENT if self.is_elastic else None
        if self.deadline is not None:
            deadline = as_deadline(self.deadline)
        return {"deadline": deadline}

    def check_store(self, manifest: Manifest, placement: Placement) -> None:
        """Raise if a store has too few machines for these options.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        recovery = manifest.code.recovery
        most = placement.to_spare(recovery)
        if not 0 <= whole_number("stragglers", self.stragglers) <= most:
            why = "N - L" if placement.is_plain else f"the others have {recovery} shards then"
            raise InputError(f"stragglers {self.stragglers}: expected 0 to {most} ({why})")
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

    def check_listening(self) -> None:
        """Raise if it is unclear where rank 0 listens.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        if self.accept is not None:
            name = str(self.accept) if isinstance(self.accept, str | Path) else ""
            if not name or "\0" in name:
                raise InputError(f"accept {shown(self.accept)}: expected the name of a file")
        if self.listen is not None:
            if not isinstance(self.listen, str):
                raise InputError(f"listen {shown(self.listen)}: expected 'HOST:PORT'")
            for name in ("accept", "interface", "ports"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} with listen: expected one of them")
        if not isinstance(self.encryption, bool):
            raise InputError(f"encryption {shown(self.encryption)}: expected True or False")
        if self.ports is None:
            return
        ports = [whole_number("ports", port) for port in several("ports", self.ports, _PORTS)]
        if len(ports) != 2 or not 0 < ports[0] <= ports[1] < 1 << 16:
            raise InputError(f"ports {shown(self.ports)}: expected {_PORTS}")


def if_removed(option: str) -> str:
    """Return what to use instead of an option that was removed, or an empty text."""
    instead = _REMOVED.get(option.strip("-").replace("-", "_"))
    return f": it was removed; {instead}" if instead else ""


def elastic_options() -> list[Field[Any]]:
    """Return the options that make a run elastic, as each says of itself."""
    return [each for each in own_options(Elastic) if each.metadata["elastic"]]


def implies_elastic(words: set[str]) -> bool:
    """Whether the options of a command make its run elastic, as far as can be told by names."""
    flags = (each.metadata["shown"]["flag"] for each in elastic_options())
    return not words.isdisjoint(flag.partition(" ")[0] for flag in flags)
