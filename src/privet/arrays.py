"""Names for the array types that cross module borders."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.intp]
IndexSelection: TypeAlias = slice | IndexArray
"""Some of many, in rising order; a slice where that says it."""
BoolArray: TypeAlias = npt.NDArray[np.bool_]
BucketArray: TypeAlias = npt.NDArray[np.uint8]
