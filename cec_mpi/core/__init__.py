"""The mathematics of coded elastic computing: numbers in, values out.

No files, no MPI, no clock, no logging. `step` uses `checks`, `plan` and `threads`, `checks` uses
`accuracy` and `plan`, `speeds` uses `plan`, and `plan` and `accuracy` use `code`.
"""
