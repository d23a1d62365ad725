from threadpoolctl import ThreadpoolController

from cec_mpi.core.threads import run_in_threads


def blas_threads():
    return {library["num_threads"] for library in ThreadpoolController().info()}


def test_blas_has_one_thread_while_several_threads_compute():
    numpy_blas = ThreadpoolController().select(user_api="blas")
    with numpy_blas.limit(limits=2):
        found = []
        run_in_threads([lambda: found.append(min(blas_threads())), lambda: None])
        assert found == [1]
        assert min(blas_threads()) == 2
