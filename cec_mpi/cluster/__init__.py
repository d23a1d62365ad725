"""Files for clusters: Slurm batch scripts and hostfiles."""
