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
from typing import Any

from cec_mpi._version import __version__
from cec_mpi.cli.commands.parser import HELP_FLAGS, Parser, Processes
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.options.elastic import implies_elastic
from cec_mpi.runtime.processes.ending import (
    as_cec_error,
    as_shortage_error,
    exit_on_signal,
    print_error,
    print_unexpected_error,
    wait_for_rank_0,
)
from cec_mpi.runtime.processes.launcher import launcher_of_ranks
from cec_mpi.text.terminal import (
    ALREADY_PRINTED,
    NORMAL,
    VERBOSE,
    discard_output,
    pop_output_error,
    print_stderr,
    remove_error_filters,
    set_verbosity,
    warn,
)

_DESCRIPTION = "Coded elastic computing on MPI: y = X w on machines that join and leave."
_EPILOG = "cec-mpi COMMAND --help describes a command and its options."

# Modules in `commands`, which are imported only if the command is used, and help texts.
_COMMANDS = {
    "encode": ("encode", "encode a matrix on disk into a store"),
    "info": ("info", "describe a store"),
    "verify": ("store", "read a store and check every block"),
    "repair": ("store", "rebuild damaged and missing blocks of a store"),
    "decode": ("store", "decode the matrix X from a store"),
    "add-machine": ("store", "add a shard for one more machine"),
    "plan": ("plan", "show which machine would compute which rows"),
    "advise": ("advise", "recommend a store for given machines"),
    "simulate": ("simulate", "simulate a run on machines that join and leave"),
    "run": ("run", "compute with a store"),
    "join": ("run", "join an elastic run as one or more machines"),
    "report": ("report", "write an HTML report on runs"),
    "top": ("report", "show the progress of a run"),
    "task": ("task", "list tasks, or describe one task"),
    "doctor": ("doctor", "check MPI, ranks, cores, threads and nodes before a run"),
    "slurm": ("cluster", "write a Slurm batch script for a run"),
}
_INTERRUPT_EXIT_CODE = 128 + signal.SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    with warnings.catch_warnings():
        remove_error_filters()
        warnings.showwarning = _warn
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names may contain any character
        sys.stdout.reconfigure(errors="backslashreplace")
    argv = list(sys.argv[1:] if argv is None else argv)
    launcher = launcher_of_ranks()
    name = next((word for word in argv if not word.startswith("-")), "")
    parser = build_parser(name)
    processes = parser.commands.get(name, parser).processes
    flags = {word.partition("=")[0] for word in argv}
    wants_help = bool(HELP_FLAGS & flags)
    is_elastic = launcher is not None and processes is Processes.RANKS and implies_elastic(flags)
    uses_mpi = (
        launcher is not None
        and processes in (Processes.RANKS, Processes.SHARED)
        and not (is_elastic or wants_help or "--serial" in flags)
    )
    is_rank_0 = launcher is None or launcher.rank == 0
    runs_on_all_ranks = (
        uses_mpi or processes is Processes.INDEPENDENT or (is_elastic and not wants_help)
    )
    if not is_rank_0 and not runs_on_all_ranks:
        return 0
    if not argv:
        print_stderr(parser.format_help().rstrip())
        return InputError.exit_code
    try:
        arguments = parser.parse_args(argv)
        perform: Callable[[argparse.Namespace], int] = arguments.command
    except InputError as error:
        if is_elastic and not is_rank_0:  # rank 0 prints the same error
            wait_for_rank_0(launcher)
            return error.exit_code
        return _report_error_on_ranks(error) if uses_mpi else _report_error(error)
    try:
        if not uses_mpi:
            _raise_on_signals()
        with _apply_verbosity(arguments.verbosity, is_rank_0):
            code = perform(arguments)
        problem = pop_output_error()
        if problem is not None and not code:
            raise InputError(f"standard output cannot be written: {problem.strerror}")
        return code
    except CecError as error:
        return _report_error(error)
    except BrokenPipeError:  # the reader of standard output has exited, for example head
        discard_output(sys.stdout)
        return 0
    except OSError as error:
        discard_output(sys.stdout)
        return _report_error(as_cec_error(error))
    except (KeyboardInterrupt, SystemExit) as error:
        for note in getattr(error, "__notes__", ()):
            print_error(note)
        return error.code if isinstance(error, SystemExit) else _INTERRUPT_EXIT_CODE  # type: ignore[return-value]
    except Exception as error:
        if _is_interrupt(error):
            return _INTERRUPT_EXIT_CODE
        if (shortage := as_shortage_error(error)) is not None:
            return _report_error(shortage)
        print_unexpected_error(error)
        return CecError.exit_code


def _raise_on_signals() -> None:
    """Make SIGTERM, SIGHUP and Ctrl-C raise, so that incomplete files are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # set by nohup
            signal.signal(number, exit_on_signal)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # set by __main__ during imports
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
        if not ALREADY_PRINTED.keys() & vars(record).keys():
            print_stderr(f"cec-mpi: {self.format(record)}")


@contextmanager
def _apply_verbosity(level: int, is_rank_0: bool) -> Iterator[None]:
    """Set the verbosity within a ``with``; rank 0 of a verbose command also prints the log."""
    logger, handler = logging.getLogger("cec_mpi"), _StderrHandler()
    set_verbosity(level)
    if level == VERBOSE and is_rank_0:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        set_verbosity(NORMAL)


def _report_error(error: CecError) -> int:
    print_error(error)
    return error.exit_code


def _report_error_on_ranks(error: CecError) -> int:
    from cec_mpi.runtime.processes.start import run_on_ranks

    def fail(_: object) -> int:
        raise error

    return run_on_ranks(fail)


def build_parser(*names: str) -> Parser:
    """Return the parser of the named commands, or of all of them.

    If a name is unknown, the parser lists all commands, without their arguments.
    """
    parser = Parser(prog="cec-mpi", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"cec_mpi {__version__}")
    parser.set_defaults(verbosity=NORMAL)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    all_known = set(names) <= _COMMANDS.keys()
    for name, (module, text) in _COMMANDS.items():
        if names and all_known and name not in names:
            continue
        command = parser.commands[name] = commands.add_parser(name, help=text)
        if all_known:
            commands_module = importlib.import_module(f"cec_mpi.cli.commands.{module}")
            command.description = f"{text[0].upper()}{text[1:]}."
            getattr(commands_module, f"add_{name.replace('-', '_')}")(command)
    return parser
