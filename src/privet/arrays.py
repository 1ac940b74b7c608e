"""Array types that several modules use."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.intp]
IndexSelection: TypeAlias = slice | IndexArray
"""Selected indices in ascending order; a slice if one can express them."""
BoolArray: TypeAlias = npt.NDArray[np.bool_]
BucketArray: TypeAlias = npt.NDArray[np.uint8]
