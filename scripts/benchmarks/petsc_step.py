"""Print the median seconds of PETSc's MatMult, for `sparse.py petsc`.

    mpirun -n 2 python3 scripts/benchmarks/petsc_step.py X.npz 15

It imports only SciPy and petsc4py, so that the Python of a Linux distribution can run it.
"""

import sys
import time

from petsc4py import PETSc
from scipy.sparse import load_npz

comm, X = PETSc.COMM_WORLD, load_npz(sys.argv[1])
target_nnz = [X.nnz * k // comm.size for k in (comm.rank, comm.rank + 1)]
first, last = X.indptr.searchsorted(target_nnz)  # so that ranks have about equally many nonzeros
last = X.shape[0] if comm.rank + 1 == comm.size else last
local_rows = X[first:last]
sizes = (last - first, X.shape[0]), (None, X.shape[1])
csr = local_rows.indptr, local_rows.indices, local_rows.data
matrix = PETSc.Mat().createAIJ(size=sizes, csr=csr, comm=comm)
w, y = matrix.createVecs()
w.set(1.0)
times = []
for _ in range(3 + int(sys.argv[2])):
    comm.barrier()
    begin = time.perf_counter()
    matrix.mult(w, y)
    comm.barrier()
    times.append(time.perf_counter() - begin)
if comm.rank == 0:
    print(sorted(times[3:])[len(times[3:]) // 2])
