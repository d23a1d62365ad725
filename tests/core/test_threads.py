"""Threads of NumPy computations."""

from threadpoolctl import ThreadpoolController

from cec_mpi.core.threads import run_in_threads


def test_blas_has_one_thread_while_several_threads_compute():
    blas, counts = ThreadpoolController().select(user_api="blas"), []

    def record_threads():
        counts.append(max(library["num_threads"] for library in blas.info()))

    with blas.limit(limits=2):
        run_in_threads([record_threads, lambda: None])
        record_threads()
    assert counts == [1, 2]
