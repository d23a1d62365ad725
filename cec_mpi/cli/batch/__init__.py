"""Batch scripts of Slurm."""
