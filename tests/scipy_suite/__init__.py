"""SciPy's own tests of sparse linear algebra, with coded operators instead of SciPy's.

``python tests/scipy_suite`` runs the test modules of the installed SciPy. `expected` lists the
tests that are skipped or must fail.
"""
