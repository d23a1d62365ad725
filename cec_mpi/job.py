"""One run: a task on a store, from options to the files of results."""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import logging
import math
import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from cec_mpi.asking import from_command
from cec_mpi.availability import (
    Availability,
    RandomAvailability,
    read_availability,
)
from cec_mpi.checkpoints import (
    CheckpointFile,
    Found,
    TimeLimit,
    check_same,
    describe_run,
    has_checkpoint,
    read_checkpoint,
)
from cec_mpi.core.speeds import Speeds
from cec_mpi.errors import InputError, StoppedError
from cec_mpi.progress import progress
from cec_mpi.records import (
    RESULT,
    STEPS,
    SUMMARY,
    Recorder,
    keep_results,
    prepare_directory,
    read_summary,
    restore_results,
    resume_steps,
    set_results_aside,
)
from cec_mpi.runtime.gathering import gathered
from cec_mpi.runtime.launch import survives_losses
from cec_mpi.runtime.leaving import leave_without_mpi
from cec_mpi.runtime.logs import log_file
from cec_mpi.runtime.options import SessionOptions
from cec_mpi.runtime.placement import placement_table
from cec_mpi.runtime.session import Session
from cec_mpi.runtime.signals import NotedSignals
from cec_mpi.runtime.together import as_cec_error
from cec_mpi.store.arrays import open_npy
from cec_mpi.store.files import locked, publish
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import open_store
from cec_mpi.store.staging import node_directory
from cec_mpi.tasks import TASKS, Task, find_task, options_of

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.operator import CodedOperator

__all__ = ["run_parallel", "run_serial"]

log = logging.getLogger(__name__)

_SAVED = object()  # in the place of an output that has a file of its own


class Job:
    """A task with its options and its directory, checked; lives on rank 0.

    Parameters
    ----------
    arguments : argparse.Namespace
        The options of ``cec-mpi run``.
    signals : NotedSignals
        Of this process: one that came ends the run before its next step.
    """

    def __init__(self, arguments: argparse.Namespace, signals: NotedSignals) -> None:
        self.store: str = arguments.store
        self.out = Path(arguments.out)
        manifest = open_store(node_directory(self.store)).manifest
        self.session = _session_options(arguments, manifest)
        self.session.checked(manifest)
        self.task_name: str = arguments.task
        self.task: Task = find_task(self.task_name)
        self.task_options = _task_options(self.task, self.task_name, arguments)
        vectors = None
        if self.task is TASKS["matvec"]:
            vectors = _read_vectors(arguments.vectors, manifest.columns)
        self.limit = TimeLimit(arguments.time_limit)
        self.signals = signals
        self.every: int | None = arguments.checkpoint_every
        self.shows_map: bool = arguments.map
        prepare_directory(self.out, arguments.overwrite or arguments.resume)
        self.about = describe_run(self.task_name, self.task_options, manifest, vectors)
        if vectors is not None:
            self.task_options["vectors"] = vectors[: arguments.steps]
        self.found = Found({})
        self.done = arguments.resume and self._is_done()
        if arguments.resume and not self.done:
            self.found = read_checkpoint(self.out, self.about)
        if self.found.problem:
            warnings.warn(self.found.problem, stacklevel=2)
        self.mapped: np.memmap[Any, Any] | None = None
        self.slow: list[str] = []  # what was warned of at the start

    def run(self, session: Session) -> None:
        """Do the task, and write its results, records and the summary.

        Results of an earlier run go only when this one has made a step.
        """
        if self.done:
            print(f"{self.out} holds the results of this task: nothing to resume")
            return
        try:
            with locked(self.out, f"{self.out} is in use by another run"):
                self._run(session)
        except OSError as error:
            error.filename = error.filename or str(self.out)
            raise as_cec_error(error) from None

    def _is_done(self) -> bool:
        """Whether the directory holds the results of this run; refuses those of another.

        A solver that did not converge has left a checkpoint, and more steps may help.
        """
        summary = read_summary(self.out)
        if summary is None:
            return False
        check_same(self.out / SUMMARY, summary.get("run") or {}, self.about)
        if "vectors" in self.task_options:
            self._check_result(open_npy(self.out / RESULT))
        return summary.get("converged", True) or not has_checkpoint(self.out)

    def _run(self, session: Session) -> None:
        from cec_mpi.operator import CodedOperator  # with SciPy's, which no machine needs

        resumed = bool(self.found.state)
        recorder = Recorder(earlier=resume_steps(self.out / STEPS) if resumed else ())
        before = recorder.steps
        master = session.open(self.store, self.session, recorder)
        session.schedule.gate = self._gate
        self.slow = session.slow
        if self.shows_map:
            print(placement_table(recorder.common), flush=True)
        if not resumed:
            set_results_aside(self.out)
        finished = False
        try:
            with (
                log_file(self.out / "logs" / "master.log"),
                (self.out / STEPS).open("a" if resumed else "w", encoding="utf-8") as stream,
                progress() as watch,
            ):
                if self.found.problem:
                    log.warning("%s", self.found.problem)
                recorder.write_to(stream, watch)
                self._map_result(master.shape[0], resumed)
                self._work(CodedOperator(session, master), recorder, master.speeds)
            finished = True
        finally:
            if finished or resumed or recorder.steps > before:
                keep_results(self.out)
            else:
                restore_results(self.out)

    def _gate(self) -> None:
        """Raise `StoppedError` when the run has to end."""
        if self.signals.received is not None:
            raise StoppedError(f"stopped by the signal {self.signals.received.name}")
        self.limit.check()

    def _map_result(self, rows: int, resumed: bool) -> None:
        """Let the products of `matvec` go to their file as they come; NaN until then."""
        if self.task is not TASKS["matvec"]:
            return
        path = self.out / RESULT
        if resumed:
            self.mapped = open_memmap(path, mode="r+")
            self._check_result(self.mapped)
        else:
            shape = (len(self.task_options["vectors"]), rows)
            self.mapped = open_memmap(path, mode="w+", dtype=np.float64, shape=shape)
            # A full disk shows here: while the map is filled it would end the process.
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
            self.mapped[:] = np.nan
        self.task_options["out"] = self.mapped

    def _check_result(self, products: NDArray[Any]) -> None:
        """Refuse products of another number of vectors than this run has."""
        shape = (len(self.task_options["vectors"]), self.about["rows"])
        if products.shape != shape or products.dtype != np.float64:
            raise InputError(
                f"{self.out / RESULT} has shape {products.shape}, this run makes {shape}: --resume "
                "goes on with the same --steps, --overwrite starts anew"
            )

    def _do(self, X: CodedOperator, checkpoint: CheckpointFile) -> dict[str, Any]:
        """Call the task; whatever ends it early, a later run can go on."""
        try:
            outcome = self.task(X, checkpoint=checkpoint, **self.task_options)
        except BaseException as error:
            written = checkpoint.write()
            if isinstance(error, StoppedError):
                goes_on = written or has_checkpoint(self.out)
                raise StoppedError(
                    f"{error}, after {checkpoint.steps()} steps: the same command with --resume "
                    f"{'goes on' if goes_on else 'starts anew'}"
                ) from None
            raise
        if not isinstance(outcome, dict) or outcome.get("result") is None:
            raise InputError(f"task {self.task_name} returned no dict with an array 'result'")
        return outcome

    def _work(self, X: CodedOperator, recorder: Recorder, speeds: Speeds) -> None:
        checkpoint = CheckpointFile(
            self.out,
            self.about,
            self.found,
            self.every,
            self.limit.is_known,
            lambda: recorder.steps,
        )
        if self.mapped is not None:
            checkpoint.before_writing = self.mapped.flush
        begin = time.perf_counter()
        outcome = self._do(X, checkpoint)
        seconds = time.perf_counter() - begin
        own = {"task": self.task_name, "seconds": seconds, **recorder.summary()}
        own |= {"rows_per_second_per_speed": speeds.scale, "run": self.about}
        own["warnings"] = self.slow
        if taken := sorted({*own, "arrays"} & set(outcome)):
            raise InputError(f"task {self.task_name} returned {taken[0]!r}, a name of the summary")
        outputs = {name: self._save(name, value) for name, value in outcome.items()}
        own["arrays"] = [name for name, value in outputs.items() if value is _SAVED]
        numbers = {name: value for name, value in outputs.items() if value is not _SAVED}
        text = json.dumps(numbers | own, indent=2, allow_nan=False)
        publish(self.out / SUMMARY, f"{text}\n".encode())
        if outcome.get("converged") is False:
            checkpoint.write()
        else:
            checkpoint.remove()

    def _save(self, name: object, value: object) -> object:
        """Save an array under its name; return a number or text for the summary."""
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"task {self.task_name} returned {name!r}: expected names of arrays")
        if self.mapped is not None and value is self.mapped:
            self.mapped.flush()
            return _SAVED
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputError(f"task {self.task_name} returned no array {name!r}: {error}") from None
        if array.dtype.kind == "O" and value is not None:
            raise InputError(f"task {self.task_name} returned {type(value).__name__} as {name!r}")
        plain = array.dtype.kind in "biufU" or value is None
        if array.ndim == 0 and plain and name != "result":
            number = array.item()
            finite = not isinstance(number, float) or math.isfinite(number)
            return number if finite else str(number)
        np.save(self.out / f"{name}.npy", array, allow_pickle=False)
        return _SAVED


def run_parallel(comm: MPI.Intracomm, arguments: argparse.Namespace, signals: NotedSignals) -> int:
    """Collective: ``cec-mpi run`` on the master and its machines.

    Signals end a run where they come to rank 0; machines serve until the master leaves.
    """
    try:
        with gathered(comm, Path(arguments.out) / "logs", _waiting(arguments)) as session:
            if session is not None:
                Job(arguments, signals).run(session)
    finally:
        if arguments.on_loss == "continue" and survives_losses():
            leave_without_mpi()  # a machine may be lost at any moment up to the end
    return 0


def run_serial(arguments: argparse.Namespace, signals: NotedSignals) -> int:
    """``cec-mpi run --serial``: all machines in this process."""
    with gathered(None, options=_waiting(arguments)) as session:
        assert session is not None
        Job(arguments, signals).run(session)
    return 0


def _waiting(arguments: argparse.Namespace) -> dict[str, Any]:
    """How machines are waited for, and what becomes of a session that loses one."""
    return {
        "stragglers": arguments.stragglers,
        "deadline": arguments.deadline,
        "on_loss": arguments.on_loss,
        "spares": arguments.spares,
        "replace": arguments.replace,
        "check": arguments.check,
        "inject": arguments.inject,
    }


def _session_options(arguments: argparse.Namespace, manifest: Manifest) -> SessionOptions:
    return SessionOptions(
        availability=_availability(arguments, manifest.code.machines),
        speeds=arguments.speeds,
        scheme=arguments.scheme,
        machines=arguments.machines,
        tick_seconds=arguments.tick,
        wait=arguments.wait,
        threads=arguments.threads,
        shards=arguments.shards,
        verify=arguments.verify,
        staged=arguments.staged,
        **_waiting(arguments),
        emulate_speeds=arguments.emulate_speeds,
        emulate_base=arguments.emulate_base,
        emulate_noise=arguments.emulate_noise,
        emulate_changes=tuple(arguments.emulate_change),
        seed=arguments.seed,
    )


def _availability(arguments: argparse.Namespace, machines: int) -> Availability | None:
    if arguments.availability:
        return read_availability(arguments.availability, machines, arguments.repeat)
    if arguments.repeat:
        raise InputError("--repeat: expected --availability FILE with it")
    every = arguments.availability_every
    if arguments.availability_command is not None:
        command = arguments.availability_command
        return from_command(command, machines, 1.0 if every is None else every)
    if every is not None:
        raise InputError("--availability-every: expected --availability-command CMD with it")
    if arguments.available_probability is not None:
        return RandomAvailability(machines, arguments.available_probability, arguments.seed)
    return None


def _task_options(task: Task, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    known = options_of(task)
    options = dict(_parse_setting(setting) for setting in arguments.set)
    if task is TASKS["matvec"]:
        if options:
            raise InputError(f"--set {next(iter(options))}: task matvec has no such option")
        return {}
    if arguments.vectors is not None:
        raise InputError(f"--vectors: task {name} takes none, only matvec does")
    if arguments.steps is not None:
        options.setdefault("steps", arguments.steps)
    if known is None or "seed" in known:
        options.setdefault("seed", arguments.seed)
    if known is not None and not known >= set(options):
        wrong = sorted(set(options) - known)[0]
        raise InputError(f"--set {wrong}: task {name} takes {', '.join(sorted(known))}")
    try:
        inspect.signature(task).bind(None, checkpoint=None, **options)
    except TypeError as error:
        raise InputError(f"task {name} with these options: {error}") from None
    return options


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, equals, text = setting.partition("=")
    if not equals or not key.isidentifier() or key == "checkpoint":
        raise InputError(f"--set {setting}: expected key=value")
    try:
        return key, ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return key, text


def _read_vectors(path: str | None, columns: int) -> NDArray[Any]:
    if path is None:
        raise InputError("task matvec needs --vectors W.npy")
    vectors = open_npy(Path(path))
    if vectors.ndim != 2 or vectors.shape[1] != columns or not len(vectors):
        raise InputError(f"{path} has shape {vectors.shape}: expected (T, {columns}), T at least 1")
    return vectors
