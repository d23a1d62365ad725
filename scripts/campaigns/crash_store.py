"""Kill encode, repair and add-machine at random moments: nothing may be lost.

    python scripts/campaigns/crash_store.py [--seed I] [--kills 50] [--seconds 3600]

Each command is started again and again and killed with SIGKILL after a random time, and
after each kill the store is looked at:

- encode: it says that it is incomplete, and `encode --resume` goes on; at the end the
  store has the same bytes as one that nobody interrupted;
- repair: what was good before is good still, and in the end all is;
- add-machine: the store verifies, with as many machines as before or one more.

Prints a line for each kind and ends with code 1 when something was lost.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

LIMIT = 120  # seconds; the slowest command takes about two on a busy machine of two cores
MACHINES, RECOVERY = 5, 3
ROWS, COLUMNS = 120_000, 100


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=50, help="of each command")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=float, default=3600, help="after which none is killed")
    arguments = parser.parse_args()
    rng, end = random.Random(arguments.seed), time.monotonic() + arguments.seconds
    lost = 0
    with tempfile.TemporaryDirectory(prefix="cec-mpi-crash-") as name:
        directory = Path(name)
        X = np.random.default_rng(arguments.seed).standard_normal((arguments.rows, COLUMNS))
        np.save(directory / "X.npy", X)
        for kind in (crash_encode, crash_repair, crash_add):
            kills = Kills(arguments.kills, end)
            problems = kind(directory, X, rng, kills)
            lost += len(problems)
            print(f"{kind.__name__.removeprefix('crash_')}: {kills.done} kills, ", end="")
            print(f"{len(problems)} problems", *problems[:5], sep="\n  ", flush=True)
    return 1 if lost else 0


class Kills:
    """How many there were, and whether more are to come."""

    def __init__(self, most: int, end: float) -> None:
        self.done, self._most, self._end = 0, most, end

    def are_left(self) -> bool:
        """Until there were enough, or it is late."""
        return self.done < self._most and time.monotonic() < self._end


def start(*words: object) -> subprocess.Popen[str]:
    """A command of cec_mpi."""
    return subprocess.Popen(
        [sys.executable, "-m", "cec_mpi", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*words: object) -> tuple[int, str]:
    """Exit code and output of a command that nobody kills."""
    process = start(*words)
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return -1, f"{words[0]} did not end in {LIMIT} seconds"
    return process.returncode, out + err


def kill_at_random(rng: random.Random, usual: float, *words: object) -> bool:
    """Start a command and kill it; False when it had ended before."""
    process = start(*words)
    try:
        process.wait(rng.uniform(0.3, 1.05) * usual)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode < 0


def duration(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def contents(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


def crash_encode(directory: Path, X: np.ndarray, rng: random.Random, kills: Kills) -> list[str]:
    sizes = ("--machines", MACHINES, "--recovery", RECOVERY)
    source, whole, store = directory / "X.npy", directory / "whole", directory / "store"
    usual = duration(lambda: finish("encode", source, whole, *sizes))
    command = ("encode", source, store, *sizes, "--resume")
    expected = contents(whole)
    problems = []
    while kills.are_left():
        if kill_at_random(rng, usual, *command):
            kills.done += 1
        if not store.exists():
            continue  # killed before it began
        code, said = finish("info", store)
        complete = code == 0
        if not complete and f"{store} is incomplete, resume with: cec-mpi encode" not in said:
            problems.append(f"after a kill: {said.strip()}")
        if complete or rng.random() < 0.3:
            if not complete:
                code, said = finish(*command)
                if code:
                    problems.append(f"resume: {said.strip()}")
            if {
                name: data for name, data in contents(store).items() if name in expected
            } != expected:
                problems.append("other bytes than without an interruption")
            shutil.rmtree(store)
    shutil.rmtree(store, ignore_errors=True)
    finish(*command)
    if strays := [path.name for path in directory.glob(".store*")]:
        problems.append(f"left behind: {', '.join(strays)}")
    shutil.rmtree(store)
    return problems


def damage(store: Path, rng: random.Random) -> None:
    """Lose one shard, and a byte of another one."""
    gone, hurt = rng.sample(range(1, MACHINES + 1), 2)
    (store / f"shard-{gone:04d}.npy").unlink()
    file = store / f"shard-{hurt:04d}.npy"
    with file.open("r+b") as stream:
        place = rng.randrange(128, file.stat().st_size)
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 1 << rng.randrange(8)]))


def good_lines(said: str) -> set[str]:
    return {line for line in said.splitlines() if line.endswith(": good")}


def crash_repair(directory: Path, X: np.ndarray, rng: random.Random, kills: Kills) -> list[str]:
    store = directory / "store"
    shutil.copytree(directory / "whole", store)
    damage(store, rng)
    usual = duration(lambda: finish("repair", store))
    problems = []
    while kills.are_left():
        damage(store, rng)
        before = good_lines(finish("verify", store)[1])
        while kills.are_left() and kill_at_random(rng, usual, "repair", store):
            kills.done += 1
            code, said = finish("verify", store)
            if code not in (0, 5) or not before <= good_lines(said):
                problems.append(f"after a kill: {said.strip()}")
            if rng.random() < 0.3:
                break
        code, said = finish("repair", store)
        if code or finish("verify", store)[0]:
            problems.append(f"repair: {said.strip()}")
    return problems + different(directory, X)


def crash_add(directory: Path, X: np.ndarray, rng: random.Random, kills: Kills) -> list[str]:
    store = directory / "store"
    problems = []
    machines = MACHINES
    usual = 0.0
    while kills.are_left():
        if machines >= 2 * MACHINES or not usual:
            shutil.rmtree(store)
            shutil.copytree(directory / "whole", store)
            usual = duration(lambda: finish("add-machine", store))
            machines = MACHINES + 1
        if kill_at_random(rng, usual, "add-machine", store):
            kills.done += 1
        code, said = finish("verify", store)
        found = len(good_lines(said))
        if code or found not in (machines, machines + 1):
            problems.append(f"after a kill, {machines} machines: {said.strip()}")
        machines = found
    return problems + different(directory, X)


def different(directory: Path, X: np.ndarray) -> list[str]:
    """Decode the store and compare with X."""
    out = directory / "decoded.npy"
    code, said = finish("decode", directory / "store", out)
    if code:
        return [f"decode: {said.strip()}"]
    error = np.abs(np.load(out) - X).max()
    out.unlink()
    return [] if error < 1e-10 else [f"decoded with error {error}"]


if __name__ == "__main__":
    raise SystemExit(main())
