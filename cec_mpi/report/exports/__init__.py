"""What else is made of a run's records: figures for papers, tables, traces.

May import: `core`, `drawing`, `files`, `records`, `report.data`, `report.gathered`, `report.kinds`,
`report.reading`, `report.sums`.
"""
