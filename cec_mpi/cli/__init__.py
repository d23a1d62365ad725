"""The command line: a parser, and a short function for each command."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from cec_mpi._version import __version__
from cec_mpi.cli.commands.parser import ALL_HELP, Parser, Processes
from cec_mpi.cli.run.options import RunOptions
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.options.elastic import Elastic, implies_elastic
from cec_mpi.runtime.options.option import add_option
from cec_mpi.runtime.processes.ending import (
    as_cec_error,
    complain,
    complain_unexpected,
    let_rank_0_print,
    shortage_of,
)
from cec_mpi.runtime.processes.launcher import launcher_of_ranks
from cec_mpi.runtime.processes.start import run_together
from cec_mpi.terminal import (
    NORMAL,
    QUIET,
    VERBOSE,
    WARNED,
    drop,
    keep_warnings_from_raising,
    set_verbosity,
    tell,
    unwritten,
    warn,
)

_DESCRIPTION = "Coded elastic computing on MPI: y = X w on machines that join and leave."

_COMMANDS = {  # each with the module of `commands` that is read when it is asked for
    "encode": "encode",
    "info": "info",
    "verify": "store",
    "repair": "store",
    "decode": "store",
    "add-machine": "store",
    "plan": "plan",
    "advise": "advise",
    "simulate": "simulate",
    "run": "run",
    "join": "run",
    "report": "report",
    "top": "report",
    "task": "task",
    "doctor": "doctor",
    "slurm": "cluster",
}
_INTERRUPTED = 128 + signal.SIGINT
_NEEDS = {"slurm": ("run",)}  # whose options its script has


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    with warnings.catch_warnings():
        keep_warnings_from_raising()
        warnings.showwarning = _warn
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # names in files may be of any script
        sys.stdout.reconfigure(errors="backslashreplace")
    argv = list(sys.argv[1:] if argv is None else argv)
    launcher = launcher_of_ranks()
    several = launcher is not None
    parser = build_parser(argv[0] if argv else "")
    processes = _chosen(parser, argv).processes
    parallel = processes is Processes.RANKS or (processes is Processes.SHARED and several)
    words = {word.partition("=")[0] for word in argv}
    elastic = processes is Processes.RANKS and (not several or implies_elastic(words))
    asks_help = bool({"-h", "--help", ALL_HELP} & words)
    parallel = parallel and not elastic and not asks_help and "--serial" not in words
    first = launcher is None or launcher.rank == 0
    on_its_own = processes is Processes.EACH or (elastic and not asks_help)
    if not parallel and not first and not on_its_own:
        return 0  # one process does the work of these commands
    try:
        arguments = parser.parse_args(argv)
        perform: Callable[[argparse.Namespace], int] = arguments.command
    except InputError as error:
        if elastic and not first:  # rank 0 says the same
            let_rank_0_print(launcher)
            return error.exit_code
        return _leave_all_with(error) if parallel else _leave_with(error)
    try:
        if not parallel:
            _raise_on_signals()
        with _verbosity(arguments.verbosity, first):
            code = perform(arguments)
        problem = unwritten()
        if problem is not None and not code:
            raise InputError(f"standard output cannot be written: {problem.strerror}")
        return code
    except CecError as error:
        return _leave_with(error)
    except BrokenPipeError:  # the reader of our output has seen enough
        drop(sys.stdout)
        return 0
    except OSError as error:
        drop(sys.stdout)
        return _leave_with(as_cec_error(error))
    except (KeyboardInterrupt, SystemExit) as error:
        for note in getattr(error, "__notes__", ()):
            complain(note)
        return error.code if isinstance(error, SystemExit) else _INTERRUPTED  # type: ignore[return-value]
    except Exception as error:
        if _is_interrupt(error):
            return _INTERRUPTED
        if (shortage := shortage_of(error)) is not None:
            return _leave_with(shortage)
        complain_unexpected(error)
        return CecError.exit_code


def _chosen(parser: Parser, argv: Sequence[str]) -> Parser:
    """Return the parser of the requested command."""
    for word in (word for word in argv if not word.startswith("-")):
        if word not in parser.commands:
            break
        parser = parser.commands[word]
    return parser


def _raise_on_signals() -> None:
    """Make signals that end a process raise, so that no incomplete file is left."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _leave)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # as while modules were read
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error was caused by Ctrl-C, for example during an import."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    # Users of commands cannot act on deprecations between libraries.
    if not issubclass(category, DeprecationWarning):
        warn(message)


class _StderrHandler(logging.Handler):
    """Writes log records to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        if not WARNED.keys() & vars(record).keys():
            tell(f"cec-mpi: {self.format(record)}")


@contextmanager
def _verbosity(level: int, first: bool) -> Iterator[None]:
    """Set the verbosity in the context; rank 0 of a verbose command also prints the log."""
    logger, handler = logging.getLogger("cec_mpi"), _StderrHandler()
    set_verbosity(level)
    if level == VERBOSE and first:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        set_verbosity(NORMAL)


def _leave_with(error: CecError) -> int:
    complain(error)
    return error.exit_code


def _leave_all_with(error: CecError) -> int:
    def fail(_: object) -> int:
        raise error

    return run_together(fail)


def build_parser(name: str = "") -> Parser:
    """Return the parser of all commands, or of the named one and those that it needs."""
    parser = Parser(prog="cec-mpi", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"cec_mpi {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    needed = {name, *_NEEDS.get(name, ())} if name in _COMMANDS else _COMMANDS.keys()
    for command_name in (command_name for command_name in _COMMANDS if command_name in needed):
        module = importlib.import_module(f"cec_mpi.cli.commands.{_COMMANDS[command_name]}")
        getattr(module, f"add_{command_name.replace('-', '_')}")(commands)
    parser.commands = commands.choices
    for _, command in parser.named():
        if command.processes is Processes.SHARED:
            add_option(command, Elastic, "start_timeout")
            add_option(command, RunOptions, "progress")
        _add_verbosity(command)
    parser.set_defaults(verbosity=NORMAL)
    return parser


def _add_verbosity(parser: argparse.ArgumentParser) -> None:
    """How much a command says; before or after its name."""
    group = parser.add_mutually_exclusive_group()
    for flags, level, text in (
        (("-q", "--quiet"), QUIET, "print only results and errors"),
        (("-v", "--verbose"), VERBOSE, "print events as they happen"),
    ):
        group.add_argument(
            *flags,
            dest="verbosity",
            action="store_const",
            const=level,
            default=argparse.SUPPRESS,
            help=text,
        )
