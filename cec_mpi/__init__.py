"""Coded elastic computing on MPI: y = X w on machines of different speeds that come and go."""

__version__ = "0.1.0"
