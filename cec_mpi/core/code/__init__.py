"""MDS codes over the reals: generator matrices, encoding, decoding from any L machines."""
