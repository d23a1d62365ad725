"""The mathematics of coded elastic computing: numbers in, values out.

No files, no MPI, no clock, no logging. Of its rooms, `step` stands on `checks` and `plan`, the
first on `accuracy`, `speeds` on `plan`, `checks` and `plan` on `placement`, and these but for
`placement` on `code`.
"""
