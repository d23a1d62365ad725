"""The mathematics of coded elastic computing: pure functions and state machines.

No module here uses files, MPI, the clock or logging. `step` imports `checks`, `plan` and
`threads`; `checks` imports `accuracy` and `plan`; `speeds` imports `plan`; `plan` and `accuracy`
import `code`.
"""
