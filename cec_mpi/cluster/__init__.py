"""Files for clusters: batch scripts of Slurm, hostfiles of launchers."""
