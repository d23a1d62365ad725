"""Whether processes, cores, wire and store fit together: facts, findings, measurements.

May import: `core`, `files`, `machine`, `options`, `processes`, `store`, `terminal`.
"""
