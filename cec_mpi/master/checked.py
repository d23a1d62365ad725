"""What `--check` compares: products with the probe, and what is said of answers that disagree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from cec_mpi.core.checks.parity import ParityChecker, Verdict
from cec_mpi.core.checks.terms import Floats, TermChecks, compare_products
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.step.product import Product
from cec_mpi.errors import MachineError
from cec_mpi.master.in_flight import StepInFlight
from cec_mpi.master.step import Step
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.wire.jobs import Job

if TYPE_CHECKING:
    from cec_mpi.master.one_by_one import MadeOneByOne


class ProbeStep(StepInFlight):
    """Whole shards times the probe, of the machines whose product is not known.

    Parameters
    ----------
    master : MadeOneByOne
    step : Step
        The step X' V that needs them.
    checker : ParityChecker
    checks : TermChecks
        Receives the products, after they were compared.
    """

    def __init__(
        self, master: MadeOneByOne, step: Step, checker: ParityChecker, checks: TermChecks
    ) -> None:
        super().__init__(master, step.beside(Product(False, 1)))
        self._checker, self._checks = checker, checks
        self._pending: set[int] = set()
        self._found: dict[int, Floats] = {}

    def to_its_end(self) -> None:
        """Compute the products that are not known, and compare them."""
        super().to_its_end()
        self.end.release(self.answered)
        checks, found = self._checks, self._found
        while found:
            known = checks.products | found
            verdict, compared = compare_products(
                self._checker, known, checks.scale, list(self._holders())
            )
            if verdict.agree:
                checks.products |= {n: found[n] for n in compared & found.keys()}
                break
            if not verdict.wrong:
                raise disagreement(self.step, sorted(known), "", verdict, self.master.manifest)
            for n in verdict.wrong:
                checks.products.pop(n, None)
                if found.pop(n, None) is not None:
                    self.exclude(n)
        if self.master.to_spare(sorted(checks.products.keys() & self.machines)) < 0:
            raise self.too_few(sorted(found))

    def _holders(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield rows, and the machines that have them."""
        placement, rows = self.master.steps.placement, self.master.manifest.rows_per_shard
        if isinstance(placement, ReplicaPlacement):
            yield from placement.spans(((0, rows),))
        else:
            yield 0, rows, tuple(range(1, placement.machines + 1))

    def first_jobs(self) -> None:
        """Ask machines for all rows of their shards."""
        holders = list(self._holders())
        for machine in sorted((self.ready() & self.machines) - self._checks.products.keys()):
            rows = tuple((a, b) for a, b, machines in holders if machine in machines)
            self.ask(machine, rows, self._checks.probe)
            self._pending.add(machine)

    def is_done(self) -> bool:
        """Whether no answer is pending."""
        return not self._pending

    def take(self, job: Job) -> None:
        """Keep a product; rows that a machine does not have are NaN."""
        self._pending.discard(job.machine)
        product = np.full(self.master.manifest.rows_per_shard, np.nan)
        place = 0
        for start, stop in job.intervals:
            product[start:stop] = job.values[place : place + stop - start]
            place += stop - start
        self._found[job.machine] = product

    def drop(self, machine: int) -> None:
        """Expect no answer of a machine."""
        self._pending.discard(machine)

    def hand_on(self) -> None:
        """Ask nobody instead: no other machine has the shard."""

    def next_job(self, machine: int) -> None:
        """Ask for nothing more."""


def disagreement(
    step: Step, machines: list[int], rows: str, verdict: Verdict, manifest: Manifest
) -> MachineError:
    """Return the error for answers that disagree where it is not certain who is wrong."""
    enough = manifest.code.recovery + 3
    tell = f" ({enough} answers tell which)"
    if manifest.replicas is not None and manifest.replicas.copies < enough:
        tell = f" ({enough} answers tell which: encode with --copies {enough})"
    names = " or ".join(" and ".join(map(str, each)) for each in verdict.candidates)
    if not names:
        who = f"several are wrong{tell if len(machines) < enough else ''}"
    elif len(verdict.candidates[0]) == 1:
        who = f"machine {names} is wrong, or several are{tell if len(machines) < enough else ''}"
    else:
        who = f"machines {names} are wrong, or more are"
    return MachineError(
        f"step {step.number} has failed: the answers of machines "
        f"{', '.join(map(str, machines))} {rows}disagree, and no other machine is available: {who}"
    )
