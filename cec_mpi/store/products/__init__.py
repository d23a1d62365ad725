"""Products of rows in memory and vectors, by the fastest routine of NumPy for each shape.

The choice depends only on shapes and dtypes, not on measured times, so the same rows have the same
products in every run. The limits were measured with OpenBLAS (`scripts/benchmarks/products.py`);
with another BLAS other limits are hardly faster.
"""
