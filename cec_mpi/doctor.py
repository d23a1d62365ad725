"""Whether MPI, ranks, cores and threads fit together, and what to do where they don't."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from cec_mpi.runtime.launch import Place, detect_launcher, library_name, place_of_ranks

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["examine"]


def examine(comm: MPI.Intracomm) -> int:
    """Collective: print the findings on rank 0. Returns 0, or 2 when ranks differ."""
    places = place_of_ranks(comm)
    versions = comm.allgather(_versions())
    mpirun = _mpirun()
    problems, advice = _differences(versions), _advice(places, mpirun)
    if comm.rank == 0:
        for name, version in versions[0].items():
            print(f"{name:12} {version}")
        launcher = detect_launcher()
        print(f"{'launcher':12} {launcher.name if launcher else 'none (one process alone)'}")
        print(f"{'mpirun':12} {mpirun}")
        _print_places(places)
        for problem in problems:
            print(f"problem: {problem}")
        for hint in advice:
            print(f"advice: {hint}")
        if not problems + advice:
            print("These fit together.")
        if comm.size == 1:
            print("One process alone: try also mpirun -n 7 cec-mpi doctor")
    return 2 if problems else 0


def _versions() -> dict[str, str]:
    import mpi4py
    import numpy
    import scipy
    from threadpoolctl import threadpool_info

    import cec_mpi

    blas = {
        f"{library['internal_api']} {library['version']}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return {
        "cec_mpi": cec_mpi.__version__,
        "Python": f"{platform.python_version()} ({sys.executable})",
        "NumPy": numpy.__version__,
        "SciPy": scipy.__version__,
        "BLAS": ", ".join(sorted(blas)) or "unknown",
        "mpi4py": mpi4py.__version__,
        "MPI": library_name(),
    }


def _mpirun() -> str:
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return "not on PATH"
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} ({error})"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return f"{path} ({lines[0] if lines else 'says no version'})"


def _maker(text: str) -> str | None:
    """Whose MPI a version text speaks of; None where it does not say."""
    makers = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "MPICH": "MPICH", "Intel": "Intel"}
    return next((maker for word, maker in makers.items() if word in text), None)


def _print_places(places: list[Place]) -> None:
    print("node         ranks  cores  threads per rank")
    for host, ranks in Counter(place.host for place in places).items():
        here = [place for place in places if place.host == host]
        threads = sorted({place.threads for place in here})
        print(f"{host:12} {ranks:5}  {here[0].cores:5}  {', '.join(map(str, threads))}")


def _advice(places: list[Place], mpirun: str) -> list[str]:
    advice = []
    makers = {_maker(mpirun), _maker(library_name())} - {None}
    if len(makers) > 1:
        advice.append(f"mpirun is not that of {library_name()}: put that library's bin on PATH")
    for host, ranks in Counter(place.host for place in places).items():
        here = [place for place in places if place.host == host]
        cores = here[0].cores
        if ranks > cores:
            advice.append(
                f"{host} has {ranks} ranks on {cores} cores: they share cores, so measured "
                "speeds mean little; use more nodes or fewer ranks per node (fine for a trial)"
            )
        elif cores >= 2 * ranks and max(place.own_cores for place in here) == 1:
            advice.append(
                f"{host} binds each of {ranks} ranks to one core and leaves {cores - ranks} idle: "
                "start mpirun with --bind-to none"
            )
    return advice


def _differences(versions: list[dict[str, str]]) -> list[str]:
    different = {name: {version[name] for version in versions} for name in versions[0]}
    return [
        f"{name} differs between ranks: {'; '.join(sorted(found))}"
        for name, found in different.items()
        if len(found) > 1
    ]
