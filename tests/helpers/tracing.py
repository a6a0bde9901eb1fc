"""What `tracemalloc` can be asked."""

import numpy as np
import pytest

traced = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) >= "2.5.0",
    reason="NumPy 2.5 tells tracemalloc of the new size of a resized array before it forgets the "
    "old one; the process itself holds one of them",
)
