"""Rows in memory times vectors: each product by the routine of NumPy that is fastest for its shape.

Which one that is depends on shapes and dtypes alone, not on how fast they are at the moment: the
same rows have the same products in every run. Where the limits lie was measured with OpenBLAS
(`scripts/benchmarks/products.py`); with another BLAS they cost little.
"""
