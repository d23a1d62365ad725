"""A cost model in which only the products on machines take time."""

import math

from cec_mpi.simulation.scenario import Costs, Source

FREE = Costs(
    latency=0,
    bandwidth=math.inf,
    source=Source(1e15, is_shared=False),
    step_overhead=0,
    machine_overhead=0,
    decode=0,
    process_start=0,
)
