"""Options of a session: elastic runs, which continue without late and lost machines."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import Field, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cec_mpi.core.elastic.states import Deadline
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import (
    Options,
    as_int,
    as_tuple,
    check_choices,
    option,
    own_options,
)
from cec_mpi.runtime.options.removed import removed_option_hint
from cec_mpi.runtime.processes.launcher import detect_launcher, launcher_of_ranks
from cec_mpi.runtime.times import ADOPT_SECONDS, DEFAULT_DEADLINE_FACTOR, MIN_DEADLINE_SECONDS
from cec_mpi.text import plural, shorten

if TYPE_CHECKING:
    from cec_mpi.store.format.manifest import Manifest

_MAX_FACTOR = 1e6
CONNECTION_FILE = "connection.json"  # name of the connection file in the directory of a run
_EXPECTED_PORTS = "the first and last port of a range from 1 to 65535"


def as_deadline(value: object) -> Deadline:
    """Convert seconds, such as ``"5"``, or a factor of the expected time, such as ``"x1.5"``.

    Raises
    ------
    InputError
        The value has the wrong form, or is out of range.

    Examples
    --------
    >>> as_deadline("x1.5").factor, as_deadline("0.2").seconds
    (1.5, 0.2)
    """
    text = str(value)
    try:
        if not text.startswith("x"):
            return Deadline(seconds=values.seconds(text))
        factor = float(text[1:])
        if 1 <= factor <= _MAX_FACTOR:
            return Deadline(factor=factor)
    except (ValueError, ArgumentTypeError):
        pass
    raise InputError(
        f"deadline {value}: expected a time, such as 5 (seconds) or 2m, or a factor of at least 1, "
        "such as x1.5"
    )


def as_adopt_seconds(value: object) -> float | None:
    """Convert an option ``adopt`` to seconds: the default if True, None if False or None.

    Raises
    ------
    InputError
        The value has the wrong form, or is out of range.

    Examples
    --------
    >>> as_adopt_seconds(True), as_adopt_seconds("1m"), as_adopt_seconds(None)
    (2.0, 60.0, None)
    """
    if value is None or isinstance(value, bool):
        return ADOPT_SECONDS if value else None
    try:
        return values.seconds(str(value))
    except ArgumentTypeError:
        raise InputError(f"adopt {shorten(value)}: expected a time, such as 2 (seconds)") from None


_DEFAULT_DEADLINE = Deadline(factor=DEFAULT_DEADLINE_FACTOR, min_seconds=MIN_DEADLINE_SECONDS)


@dataclass(frozen=True, kw_only=True)
class ElasticOptions(Options):
    """Elastic runs: machines that are late, are lost or join.

    Attributes
    ----------
    start_timeout : float, optional
        Seconds within which all processes must start and connect before the first step. By default
        60 plus 1 for each process. After that, the job of a lockstep run is aborted with exit code
        3, and an elastic run begins if enough machines have connected.
    elastic : bool
        Connect machines to the master by sockets, without MPI. Steps continue without machines that
        are late, are lost or leave, and machines may join at any time. Most options below imply it.
    local : int, optional
        Number of machines to start as processes on this computer.
    stragglers : int
        S: each row is computed by L + S machines, and X W is decoded from the first L answers.
    deadline : float or str, optional
        Stop waiting for a machine after this many seconds, or, with ``"x1.5"``, after 1.5 times its
        expected time. By default ``"x10"``, at least 2 seconds.
    accept : str, optional
        Connection file to write, with which ``cec-mpi join`` adds machines on any computer. The
        session waits whenever there are too few machines.
    listen : str, optional
        ``"HOST:PORT"`` on which rank 0 listens, for nodes without a shared directory. The key in
        the environment variable CEC_MPI_KEY replaces the connection file.
    encryption : bool
        Encrypt messages between computers. Without encryption, which is for trusted networks,
        machines still need the key.
    interface : str, optional
        Network interfaces on which rank 0 listens, as names, addresses or networks, such as
        ``"eth0"`` or ``"10.0.0.0/8,ib0"``. By default those that the launcher selects for ranks, or
        all.
    ports : tuple of (int, int), optional
        First and last port on which rank 0 may listen. By default any.
    check : bool
        Detect wrong answers: compute each row of X W on one more machine, and accept it if L + 1
        answers agree. L + 3 answers identify the wrong machine, which is excluded; with fewer the
        step raises an error. Each machine's term of X' V is compared with its answer to a random
        vector.
    adopt : float or bool, optional
        If a step lacks machines for this number of seconds, the remaining processes adopt
        missing machines, as far as their memory allows. True means 2. By default they adopt none.
    wait : bool
        Wait while too few machines are available, instead of raising `InfeasibleError`.
    """

    title = "elastic runs: machines that are late, are lost or join"

    start_timeout: float | None = option(
        None,
        "--start-timeout TIME",
        "time within which all processes must start and connect (default: 60s plus 1s for each "
        "process)",
        values.seconds,
    )
    elastic: bool = option(
        False,
        "--elastic",
        "continue without late or lost machines, let machines join at any time (cec-mpi join "
        "DIR/connection.json), and write checkpoints (default: only without a launcher)",
        elastic=True,
        is_common=True,
    )
    local: int | None = option(
        None,
        "--local N",
        "start N machines on this computer; implies --elastic (default without a launcher: one for "
        "each core, but at least one more than a step needs)",
        values.positive,
        elastic=True,
        is_common=True,
    )
    stragglers: int = option(
        0,
        "--stragglers S",
        "compute each row on L + S machines and use the first L answers, so that S slow machines "
        "do not delay a step; implies --elastic (default: 0)",
        values.natural,
        elastic=True,
        is_common=True,
    )
    deadline: float | str | Deadline | None = option(
        None,
        "--deadline TIME|x1.5",
        "stop waiting for a machine after this time, such as 5s, or this multiple of its expected "
        "time; implies --elastic (default: x10, at least 2 seconds)",
        elastic=True,
    )
    accept: str | None = option(
        None,
        "--accept FILE",
        "write the connection file FILE, with which machines on any computer join (cec-mpi join "
        "FILE), and wait whenever there are too few machines; implies --elastic",
        values.path,
        elastic=True,
        is_common=True,
    )
    listen: str | None = option(
        None,
        "--listen HOST:PORT",
        "listen on this address instead of writing a connection file; the key is in the "
        "environment variable CEC_MPI_KEY; implies --elastic",
        elastic=True,
    )
    encryption: bool = option(
        True,
        "--no-encryption",
        "do not encrypt messages between computers: faster, for trusted networks (machines still "
        "need the key)",
    )
    interface: str | None = option(
        None,
        "--interface NAME|ADDRESS",
        "network interfaces on which rank 0 listens, such as eth0 or 10.0.0.0/8,ib0 (default: "
        "those that the launcher selects, or all)",
    )
    ports: tuple[int, int] | None = option(
        None, "--ports A-B", "ports on which rank 0 may listen (default: any)", values.ports
    )
    check: bool = option(
        False,
        "--check",
        "detect wrong answers: compute each row on one more machine, compare the answers, and "
        "exclude wrong machines; implies --elastic",
        elastic=True,
    )
    adopt: float | bool | None = option(
        None,
        "--adopt TIME",
        "after this time with too few machines for a step (default: 2s), let the remaining "
        "processes adopt missing machines, as far as their memory allows; implies --elastic",
        values.seconds,
        nargs="?",
        const=ADOPT_SECONDS,
        elastic=True,
    )
    wait: bool = option(
        False, "--wait", "wait while too few machines are available, instead of failing"
    )

    @property
    def is_elastic(self) -> bool:
        """Whether the run is elastic: machines connect by sockets, and may be late or lost."""
        return bool(self.elastic_flags)

    @property
    def elastic_flags(self) -> list[str]:
        """Flags of the options that are set and make the run elastic."""
        return [
            field.metadata["flag"]["flag"].partition(" ")[0]
            for field in elastic_options()
            if getattr(self, field.name) not in (field.default, False)
        ]

    @property
    def starts_no_machines(self) -> bool:
        """Whether all machines are started elsewhere."""
        return self.is_elastic and self.local is None and launcher_of_ranks() is None

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        from cec_mpi.runtime.processes.start import start_limit_seconds

        if not isinstance(self.check, bool):
            hint = removed_option_hint("check", value=str(self.check))
            raise InputError(f"check {shorten(self.check)}{hint or ': expected True or False'}")
        start_limit_seconds(self.start_timeout, manifest.code.machines)
        check_choices(ElasticOptions, self)
        for name, is_set in (
            ("interface", self.interface is not None),
            ("ports", self.ports is not None),
            ("no encryption", not self.encryption),
        ):
            if is_set and not self.is_elastic:
                raise InputError(f"{name}: this option needs an elastic run (--elastic)")
        adopt = as_adopt_seconds(self.adopt)
        if adopt is not None and (self.check or self.stragglers):
            other = "check" if self.check else "stragglers"
            raise InputError(
                f"adopt and {other} cannot be combined, because with {other} a process carries "
                "only one machine"
            )
        self.check_listening()
        self.check_store(manifest)
        deadline = _DEFAULT_DEADLINE if self.is_elastic else None
        if self.deadline is not None:
            deadline = as_deadline(self.deadline)
        return {"deadline": deadline, "adopt": adopt}

    def check_store(self, manifest: Manifest) -> None:
        """Raise if a store has too few machines for these options.

        Raises
        ------
        InputError
            The message names the option and the expected values.
        InfeasibleError
            A step needs more machines than `local`, and no others can join.
        """
        recovery, placement = manifest.code.recovery, manifest.placement
        limit = placement.tolerated_losses(recovery) - self.check
        if limit < 0:
            raise InputError(
                f"check needs {plural(recovery + 1, 'answer')} for each row, but a row has only "
                f"{plural(recovery, 'answer')}: encode with {placement.remedy}"
            )
        if not 0 <= as_int("stragglers", self.stragglers) <= limit:
            rule = placement.redundancy_text + (", less 1 with check" if self.check else "")
            raise InputError(f"stragglers {self.stragglers}: expected 0 to {limit} ({rule})")
        if self.local is not None and not (self.accept or self.listen or self.wait or self.adopt):
            too_few = placement.max_tolerated_losses(recovery, self.local) < 0
            if too_few and detect_launcher() is None:
                raise InfeasibleError(
                    f"local {self.local}: a step needs {plural(recovery, 'machine')}: start more "
                    "machines, let machines join (--accept FILE or --wait), or let processes adopt "
                    "machines (--adopt)"
                )

    def check_listening(self) -> None:
        """Raise if options for listening or local machines are invalid or contradictory.

        Raises
        ------
        InputError
            The message names the option and the expected value.
        """
        if self.local is not None and as_int("local", self.local) < 1:
            raise InputError(f"local {self.local}: expected at least 1 machine")
        launcher = launcher_of_ranks()
        if self.local is not None and launcher is not None:
            raise InputError(
                f"local {self.local}: {launcher.name} has started {launcher.size} ranks, which "
                "are the machines: remove this option, or start one rank"
            )
        if self.accept is not None:
            name = str(self.accept) if isinstance(self.accept, str | Path) else ""
            if not name or "\0" in name:
                raise InputError(f"accept {shorten(self.accept)}: expected a file name")
        if self.listen is not None:
            if not isinstance(self.listen, str):
                raise InputError(f"listen {shorten(self.listen)}: expected 'HOST:PORT'")
            for name in ("accept", "interface", "ports"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} and listen cannot be combined: expected one of them")
        if not isinstance(self.encryption, bool):
            raise InputError(f"encryption {shorten(self.encryption)}: expected True or False")
        if self.ports is None:
            return
        ports = [as_int("ports", port) for port in as_tuple("ports", self.ports, _EXPECTED_PORTS)]
        if len(ports) != 2 or not 0 < ports[0] <= ports[1] < 1 << 16:
            raise InputError(f"ports {shorten(self.ports)}: expected {_EXPECTED_PORTS}")


def elastic_options() -> list[Field[Any]]:
    """Return the options that make a run elastic."""
    return [field for field in own_options(ElasticOptions) if field.metadata["elastic"]]


def implies_elastic(arguments: set[str]) -> bool:
    """Return whether one of the command-line arguments makes a run elastic."""
    flags = (field.metadata["flag"]["flag"] for field in elastic_options())
    return not arguments.isdisjoint(flag.partition(" ")[0] for flag in flags)
