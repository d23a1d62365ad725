"""Scikit-learn estimators whose ``fit`` accepts a store as X.

They need the extra ``sklearn`` of this package.
"""

from __future__ import annotations

try:
    import sklearn as _library
except ImportError:
    raise ImportError(
        "cec_mpi.sklearn needs scikit-learn: pip install 'cec_mpi[sklearn]'"
    ) from None
else:
    del _library

from cec_mpi.sklearn.components import CodedPCA, CodedTruncatedSVD
from cec_mpi.sklearn.logistic import CodedLogisticRegression
from cec_mpi.sklearn.ridge import CodedRidge

__all__ = ["CodedLogisticRegression", "CodedPCA", "CodedRidge", "CodedTruncatedSVD"]
