"""Commands that write files for clusters: hostfile, slurm.

May import: `cluster`, `core`, `files`, `options`, `store`, `terminal`.
"""
