"""Records of invented runs."""

from cec_mpi.runtime.records.step import StepRecord

HEADER = {
    "started": "2026-01-02T03:04:05+00:00",
    "mpi_library": "none",
    "machine_of_rank": [0, 1, 2, 3, 4],
    "hosts": ["front", "node1", "node1", "node2", "node2"],
    "rows": 200,
    "columns": 10,
    "rows_per_shard": 100,
    "dtype": "float64",
    "machines": 4,
    "recovery": 2,
    "code": "cauchy",
    "participants": [1, 2, 3, 4],
    "scheme": "heterogeneous",
    "shards": "mmap",
    "speeds": None,
}


def step_of(number, seconds=(0.1, 0.1, 0.2, 0.2), rows=(50, 50, 50, 50), why="preempted", **more):
    """Return a step of 4 machines, two of which are enough, with shards of 100 rows.

    Machines without rows are unavailable for the reason `why`.
    """
    available = tuple(n + 1 for n, count in enumerate(rows) if count)
    bounds = {50: ([0, 50], [0, 50], [50, 100], [50, 100])}
    assignment = [
        (bounds[50][n] if count == 50 else [0, count]) if count else []
        for n, count in enumerate(rows)
    ]
    fields = {
        "step": number,
        "tick": number,
        "time": f"2026-01-02T03:04:{6 + number % 50:02}.000+00:00",
        "available": available,
        "adjoint": False,
        "columns": 1,
        "rows": list(rows),
        "compute_seconds": [float(value) for value in seconds],
        "load_seconds": [0.0] * len(rows),
        "load_bytes": [0] * len(rows),
        "predicted_makespan": 0.15,
        "measured_makespan": float(max(seconds)),
        "makespan_bound": 0.12,
        "hindsight_makespan": 0.125,
        "announce_seconds": 0.001,
        "share_seconds": 0.002,
        "collect_seconds": float(max(seconds)) + 0.01,
        "decode_seconds": 0.003,
        "payload_bytes": {"announce": 8, "share": 80, "collect": 1600},
        "condition_number": 2.5,
        "cancellation": 2.0,
        "assignment": assignment,
        "absent_since": {why: {n + 1: number for n, count in enumerate(rows) if not count}},
    }
    return StepRecord(**{**fields, **more})
