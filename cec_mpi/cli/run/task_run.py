"""Run a task on rank 0, from the check of its options to its result files."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback
import warnings
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np

from cec_mpi.cli.run.checkpoints import (
    CheckpointFile,
    ResumeState,
    check_description,
    describe_run,
    read_checkpoint,
)
from cec_mpi.cli.run.closing import (
    RunEnd,
    closing_warnings,
    collect_warnings,
    convergence_message,
    make_run_end,
    print_closing,
    stop_message,
)
from cec_mpi.cli.run.options import RunOptions
from cec_mpi.cli.run.outputs import Outputs, check_products, convert_outcome
from cec_mpi.cli.run.task_arguments import (
    WatchedVectors,
    parse_task_options,
    read_vectors,
    select_arguments,
)
from cec_mpi.core.speeds import Speeds
from cec_mpi.errors import (
    CecError,
    ConvergenceError,
    InputError,
    MachineError,
    ResultsError,
    StoppedError,
)
from cec_mpi.report.live.progress import show_progress
from cec_mpi.runtime.master.master import Master
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.options.values import Interval
from cec_mpi.runtime.processes.ending import (
    SignalRecorder,
    as_cec_error,
    as_shortage_error,
    error_suffix,
    exit_from_fork,
)
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.records.directory import (
    RESULT,
    STEPS,
    SUMMARY,
    SUMMARY_VERSION,
    discard_earlier_results,
    existing_results,
    has_checkpoint,
    has_earlier_results,
    move_results_aside,
    prepare_directory,
    read_summary,
    restore_results,
)
from cec_mpi.runtime.records.recorder import Recorder, resume_steps
from cec_mpi.runtime.session.header import describe_devices, rank_table
from cec_mpi.runtime.session.metrics import check_metrics
from cec_mpi.runtime.session.session import Session
from cec_mpi.store.cache import check_cache_location
from cec_mpi.store.files.durable import is_locked, locked, publish
from cec_mpi.store.files.log_file import log_file
from cec_mpi.store.files.npy import open_npy
from cec_mpi.store.files.paths import expand_host
from cec_mpi.store.files.saving import convert_to_results_error, open_text
from cec_mpi.store.reader import open_store
from cec_mpi.store.shard import CPU
from cec_mpi.tasks import TASKS, Task, find_task, options_of
from cec_mpi.text import join_names, plural, printable, warn_caller
from cec_mpi.text.terminal import ALREADY_PRINTED, print_note, print_result, print_stderr, warn

log = logging.getLogger(__name__)

_DEFAULT_INTERVAL = Interval(seconds=60.0)  # between checkpoints of runs that may end early
_JOB_END_VARIABLE = "SLURM_JOB_END_TIME"  # its value is in seconds since 1970
_MARGIN_SECONDS = 60.0  # before the end of a job: time for the last step and the shutdown
_MARGIN_FRACTION = 0.1  # largest margin, relative to the remaining time of the job
_PRODUCTS = "matvec", "rmatvec", "matmat", "rmatmat"  # methods of X


class _OptionsAccepted(Exception):
    """Raised by the first product with X, when a task has accepted its options."""


class _BuiltInOperator(SimpleNamespace):
    """X with only what tasks of this package use; unlike `CodedOperator` it needs no SciPy."""

    master: Master

    @property
    def product_error(self) -> float:
        return self.master.product_error  # changes with the first step


class TaskRun:
    """A task, its validated options and the directory of its results, on rank 0.

    The directory is locked until the end of the ``with`` statement.

    Parameters
    ----------
    run : RunOptions
    options : SessionOptions
    signals : SignalRecorder
        A signal that it receives ends the run before the next step.
    """

    def __init__(self, run: RunOptions, options: SessionOptions, signals: SignalRecorder) -> None:
        self.store = run.store
        self.out = Path(run.out)
        store = open_store(expand_host(self.store))
        manifest = self.manifest = store.manifest
        options = self.options = options.validate(manifest)
        if options.cache is not None:
            directories = {"store": store.path, "directory of results": self.out}
            check_cache_location(expand_host(options.cache), directories)
        if options.metrics is not None:
            check_metrics(options.metrics)
        self.task_name = run.task
        self.task: Task = find_task(self.task_name)
        self.task_options = parse_task_options(self.task, run, options.seed)
        vectors, limit = None, None
        self.vectors_file: WatchedVectors | None = None
        if self.task is TASKS["matvec"]:
            matvec_options, self.task_options = self.task_options, {}
            path, limit = matvec_options.get("vectors"), matvec_options.get("iterations")
            path = None if path is None else str(path)  # a file name may look like a number
            self.vectors_file = WatchedVectors.from_path(path)
            vectors = read_vectors(path, manifest, limit)
        self.time_limit = TimeLimit(run.time_limit)
        self.signals = signals
        self.checkpoint_interval = run.checkpoint_every or Interval()
        if run.checkpoint_every is None and (options.is_elastic or self.time_limit.is_set):
            self.checkpoint_interval = _DEFAULT_INTERVAL
        self.shows_map = run.shows_map
        self.progress = run.progress
        self.resume_flag = run.resume_flag
        self.description = describe_run(self.task_name, self.task_options, manifest, vectors)
        self.products_shape: tuple[int, int] | None = None  # of matvec
        if vectors is not None:
            vectors = self.task_options["vectors"] = vectors[:limit]
            self.products_shape = len(vectors), manifest.rows
        self.resume_state = ResumeState({})
        self._exit_stack = ExitStack()  # until the end of the run
        self._pid = os.getpid()
        self._lock(run.overwrite or run.resume)
        try:
            self._read_resume_state(run)
            if options.is_elastic:  # before machines start
                self._check_task()
        except BaseException:
            self._exit_stack.close()
            raise
        self.outputs = Outputs(self.out, self.task_name)
        self.warning_texts = [self.resume_state.problem] * bool(self.resume_state.problem)
        self.outcome: dict[str, Any] | None = None  # None until it is saved
        self.array_names: list[str] | None = None  # of saved arrays; None until they are saved
        self.convergence_problem = ""  # message of the ConvergenceError
        self._log_is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit_stack.close()

    def _lock(self, allow_existing: bool) -> None:
        """Create and lock the directory; raise `InputError` if another run uses it."""
        message = f"{self.out} is in use by another run: wait for its end, or use another DIR"
        if is_locked(self.out):
            raise InputError(message)
        prepare_directory(self.out, allow_existing)
        earlier_results = existing_results(self.out)
        try:
            self._exit_stack.enter_context(locked(self.out, message))
        except OSError as error:
            error.filename = error.filename or str(self.out)
            raise as_cec_error(error) from None
        if existing_results(self.out) != earlier_results:  # another run has ended meanwhile
            self._exit_stack.close()
            raise InputError(message)

    def _check_task(self) -> None:
        """Raise if a task of this package rejects its options or the checkpoint.

        It calls the task with an X whose first product ends the call.
        """
        if self.task not in TASKS.values() or self.products_shape is not None or self.is_complete:
            return

        def accept(*_: object) -> None:
            raise _OptionsAccepted

        X = SimpleNamespace(
            shape=(self.manifest.rows, self.manifest.columns),
            dtype=np.dtype(np.float64),
            **dict.fromkeys(_PRODUCTS, accept),
        )
        checkpoint = CheckpointFile(
            self.out, self.description, self.resume_state, Interval(), lambda: 0
        )
        arguments = select_arguments(self.task, checkpoint=checkpoint)
        with suppress(_OptionsAccepted), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run will show them
            self.task(X, **arguments, **self.task_options)

    def _read_resume_state(self, run: RunOptions) -> None:
        """Read the results or the checkpoint of the run that this one resumes."""
        self.is_complete = run.resume and self._has_final_results()
        if run.resume and not self.is_complete:
            self.resume_state = read_checkpoint(self.out, self.description)
            if not self.resume_state.state:
                print_note(
                    f"{printable(self.out)} has no checkpoint, so the run starts from the beginning"
                )
        if self.resume_state.problem:
            warn_caller(self.resume_state.problem)

    def run(self, session: Session) -> None:
        """Call the task, and write its results, the records and the summary.

        Results of an earlier run are kept until the first step has succeeded.
        """
        if self.is_complete:
            print_note(f"{self.out} already holds the results of this task: nothing to resume")
            return
        try:
            self._run_recorded(session)
        except OSError as error:
            error.filename = error.filename or str(self.out)
            raise as_cec_error(error) from None

    def _has_final_results(self) -> bool:
        """Return whether the directory holds the results of this run, and its solver converged.

        Raises
        ------
        InputError
            The directory holds the results of another run.
        """
        summary = read_summary(self.out)
        if summary is None:
            return False
        check_description(self.out / SUMMARY, summary.get("run", {}), self.description)
        if self.products_shape is not None:
            path = self.out / RESULT
            check_products(path, open_npy(path), self.products_shape)
        return bool(summary.get("converged", True))

    def _run_recorded(self, session: Session) -> None:
        """Run the task, record its steps and its log, and print the closing lines."""
        is_resumed = bool(self.resume_state.state)
        recorder = Recorder(earlier_run=resume_steps(self.out / STEPS) if is_resumed else None)
        recorder.is_stopped = lambda: self.signals.first_signal is not None
        earlier_steps = recorder.steps
        master = session.open(self.store, self.options, recorder)
        session.check_limits = self.check_limits
        planned_steps = None
        if self.products_shape is not None:
            planned_steps = self.resume_state.remaining_products(self.products_shape[0])
        recorder.header |= {"task": self.task_name, "planned_steps": planned_steps}
        self.warning_texts += session.slow_warnings
        if session.log_problems:
            raise MachineError(session.log_problems[0])
        if self.options.device != (CPU,):
            print_note(printable(f"devices: {describe_devices(recorder.header)}"))
        if self.shows_map:
            print_result(printable(rank_table(recorder.header), keep="\n"))
        if not is_resumed:
            move_results_aside(self.out)
        has_write_error = False
        start = time.perf_counter()
        try:
            with (
                log_file(self.out / "logs" / "master.log", self._continue_without_log),
                open_text(self.out / STEPS, append=is_resumed) as stream,
                show_progress(recorder, self.progress),
            ):
                self._log_is_open = True
                if self.resume_state.problem:
                    log.warning("%s", self.resume_state.problem, extra=ALREADY_PRINTED)
                recorder.write_to(stream)
                if self.products_shape is not None:
                    self.task_options["out"] = self.outputs.map_products(
                        self.products_shape, is_resumed
                    )
                self._run_and_save(session, master, recorder)
        except ResultsError as error:
            has_write_error = True
            if recorder.steps == earlier_steps:
                raise InputError(str(error)) from None
            raise
        finally:
            steps = recorder.steps - earlier_steps
            keeps_earlier = not steps or (has_write_error and has_earlier_results(self.out))
            if self.array_names is None and not is_resumed and keeps_earlier:
                restore_results(self.out)
                out_state = "unchanged"
            else:
                discard_earlier_results(self.out)
                out_state = "no checkpoint was written: --resume starts from the beginning"
                if has_checkpoint(self.out):
                    remedy = f"to continue, run the same command with {self.resume_flag}"
                    out_state = f"a checkpoint was written: {remedy}"
                if self.array_names:
                    files = ", ".join(f"{name}.npy" for name in self.array_names)
                    verb = "is" if len(self.array_names) == 1 else "are"
                    out_state = f"{files} {verb} saved, but not {SUMMARY}; {out_state}"
            if steps or self.outcome is not None:
                end = make_run_end(
                    self.task_name,
                    self.out,
                    recorder,
                    earlier_steps,
                    time.perf_counter() - start,
                    self.outcome,
                    self.array_names or (),
                    out_state,
                )
                print_closing(end)
        if self.convergence_problem:
            raise ConvergenceError(self.convergence_problem)

    def _continue_without_log(self, problem: str) -> None:
        """Warn that the log cannot be written; raise if it has not been opened."""
        if not self._log_is_open:
            raise ResultsError(problem)
        warn(f"{problem}; the run continues without this log")

    def default_machines(self) -> int:
        """Return the number of machines to start on this computer by default.

        It is one for each core, but at least one more than a step needs, because one may be lost,
        and enough to identify a wrong machine with --check. It never exceeds the number
        of machines of the store.
        """
        stragglers, check = self.options.stragglers, self.options.check
        required = self.manifest.sufficient_machines + max(stragglers + check + 1, 3 * check)
        return min(self.manifest.code.machines, max(required, detect_process().cores))

    def check_limits(self) -> None:
        """Raise if a signal, the time limit or a modified file ends the run."""
        if self.vectors_file is not None:
            self.vectors_file.check()
        if self.signals.first_signal is not None:
            raise StoppedError(f"stopped by the signal {self.signals.first_signal.name}")
        self.time_limit.check()

    def _run_task(self, X: Any, checkpoint: CheckpointFile) -> dict[str, Any]:
        """Call the task and return its results; write a checkpoint if it raises."""
        try:
            arguments = select_arguments(self.task, checkpoint=checkpoint)
            return convert_outcome(self.task(X, **arguments, **self.task_options))
        except BaseException as error:
            if os.getpid() != self._pid:
                exit_from_fork(error)
            try:
                is_written = checkpoint.write()
            except ResultsError as write_error:
                if isinstance(error, StoppedError):
                    steps = checkpoint.steps()
                    raise ResultsError(
                        f"{error}, after {plural(steps, 'step')}, but {write_error}"
                    ) from None
                if not isinstance(error, ResultsError):
                    warn(write_error)
                raise error from None
            if isinstance(error, StoppedError):
                message = stop_message(
                    checkpoint.steps(), is_written or has_checkpoint(self.out), self.resume_flag
                )
                raise StoppedError(f"{error}, {message}") from None
            if isinstance(error, SystemExit) and not self.signals.must_end:
                raise InputError(
                    f"task {self.task_name} called sys.exit({error.code!r}), expected it to "
                    "return its results"
                ) from None
            if isinstance(error, Exception) and self.task not in TASKS.values():
                raise report_task_error(self.task_name, error) from None
            raise

    def _run_and_save(self, session: Session, master: Master, recorder: Recorder) -> None:
        """Run the task, and save its results and checkpoints."""
        interval = self.checkpoint_interval
        checkpoint = CheckpointFile(
            self.out, self.description, self.resume_state, interval, lambda: recorder.steps
        )
        checkpoint.before_writing = self.outputs.flush
        checkpoint.after_writing = recorder.record_checkpoint
        checkpoint.progress = recorder.record_progress
        start, earlier_steps = time.perf_counter(), recorder.steps
        try:
            with collect_warnings(self.warning_texts):
                outcome = self._run_task(self._make_operator(session, master), checkpoint)
        finally:
            session.refuse_steps()
            with suppress(ResultsError):  # do not hide an earlier error
                recorder.finish()
        try:
            seconds = time.perf_counter() - start
            end = self._save(outcome, recorder, earlier_steps, seconds, master.planner.speeds)
        except (InputError, ResultsError):
            with suppress(ResultsError):
                checkpoint.write()
            raise
        if end.converged is False:
            checkpoint.write()
        else:
            checkpoint.remove()

    def _make_operator(self, session: Session, master: Master) -> Any:
        """Return X; tasks of users get a `CodedOperator`."""
        if self.task in TASKS.values():
            return _BuiltInOperator(
                master=master,
                shape=master.shape,
                dtype=master.dtype,
                attainable_tol=master.attainable_tol,
                accurate_along=master.manifest.accurate_along,
                **{name: partial(session.run_step, getattr(master, name)) for name in _PRODUCTS},
            )
        from cec_mpi.linear_operator.coded_operator import CodedOperator
        from cec_mpi.linear_operator.lifetime import Lifetime

        lifetime = Lifetime(lambda: nullcontext(session), lambda _: master)
        return CodedOperator(lifetime, self.manifest, self.store, can_close=False)

    def _save(
        self,
        outcome: dict[str, Any],
        recorder: Recorder,
        earlier_steps: int,
        seconds: float,
        speeds: Speeds,
    ) -> RunEnd:
        """Save the results of a task, then the summary; return how the run ended."""
        summary = {"version": SUMMARY_VERSION, "task": self.task_name, "seconds": seconds}
        summary |= recorder.summary() | {"rows_per_second_per_speed": speeds.scale}
        summary["run"] = self.description
        saved = self.outputs.save(outcome, {*summary, "arrays", "warnings"})
        self.array_names = summary["arrays"] = saved.array_names
        if saved.unsaved or not outcome:
            returned = join_names(saved.unsaved) if outcome else "nothing"
            raise InputError(
                f"task {self.task_name} returned {returned}: expected arrays or numbers"
            )
        discard_earlier_results(self.out)  # the disk may be full, and the summary needs space
        end = make_run_end(
            self.task_name, self.out, recorder, earlier_steps, seconds, outcome, saved.array_names
        )
        for text in (*saved.warnings, *closing_warnings(end)):
            warn(text)
            log.warning("%s", text, extra=ALREADY_PRINTED)
            self.warning_texts.append(text)
        if end.converged is False:
            has_iterations = "iterations" in (options_of(self.task) or ())
            self.convergence_problem = convergence_message(end, has_iterations)
            self.warning_texts.append(self.convergence_problem)
        summary["warnings"] = self.warning_texts
        text = json.dumps(saved.summary_values | summary, indent=2, allow_nan=False)
        with convert_to_results_error(self.out / SUMMARY):
            publish(self.out / SUMMARY, f"{text}\n".encode())
        self.outcome = outcome
        return end


def report_task_error(name: str, error: Exception) -> Exception:
    """Print the traceback of a user's task, without frames of cec_mpi and other libraries.

    Returns
    -------
    Exception
        Error to raise, with a message of one sentence. Errors of cec_mpi, of the operating system
        and from too little memory are returned unchanged, and no traceback is printed.
    """
    if isinstance(error, CecError | OSError) or as_shortage_error(error) is not None:
        return error
    log.error("task %s raised", name, exc_info=error, extra=ALREADY_PRINTED)
    package = str(Path(__file__).parents[2])
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if not frame.filename.startswith((package, "<frozen"))]
    frames = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    lines = ["Traceback of the task (most recent call last):\n", *traceback.format_list(frames)]
    print_stderr(printable("".join(lines).rstrip(), keep="\n\t"))
    return CecError(f"task {name} raised {type(error).__name__}{error_suffix(error)}")


class TimeLimit:
    """Time limit of a run, set by the user or the batch system.

    If ``SLURM_JOB_END_TIME`` is set, the run ends a minute before it, or after nine tenths of the
    remaining time if that is later.

    Parameters
    ----------
    seconds : float or None
        Time limit of the user, from now.
    """

    def __init__(self, seconds: float | None) -> None:
        self._deadline = float("inf")
        self._reason = ""
        if seconds is not None:
            self._deadline = time.monotonic() + seconds
            self._reason = f"after the time limit of {plural(seconds, 'second')}"
        try:
            remaining = float(os.environ[_JOB_END_VARIABLE]) - time.time()
        except (KeyError, ValueError):
            return
        margin = min(_MARGIN_SECONDS, max(0.0, _MARGIN_FRACTION * remaining))
        deadline = time.monotonic() + remaining - margin
        if deadline < self._deadline:
            self._deadline = deadline
            self._reason = "because the time limit of the job is near"

    @property
    def is_set(self) -> bool:
        """Whether the run has a time limit."""
        return self._deadline < float("inf")

    def check(self) -> None:
        """Raise `StoppedError` if the time limit has passed."""
        if time.monotonic() >= self._deadline:
            raise StoppedError(f"stopped {self._reason}")
