"""SciPy's own tests of sparse linear algebra, with coded operators in the place of SciPy's.

``python tests/scipy_suite`` runs the test modules of the SciPy that is installed; nothing of them
is kept here. `expected` lists what is left out and what has to come out differently.
"""
