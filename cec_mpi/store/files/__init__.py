"""Read and write files safely: other processes may write too, and power may fail."""
