"""The elastic runtime: the only package that talks MPI."""
