"""What `tracemalloc` can be asked."""

import tracemalloc

import numpy as np
import pytest

from bigfs import engine

traced = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) >= "2.5.0",
    reason="NumPy 2.5 tells tracemalloc of the new size of a resized array before it forgets the "
    "old one; the process itself holds one of them",
)

# of what a step is projected to take, the least that is seen: NumPy below 2.5 hides LAPACK's part
LEAST_SEEN = 0.7 if np.lib.NumpyVersion(np.__version__) >= "2.5.0" else 0.5


def projected_and_peak(monkeypatch, step):
    """Return what a step first asks for and the most that it takes, in bytes, after a run of it
    that imports and compiles."""
    asked = []
    monkeypatch.setattr(engine, "require_memory", lambda projected, what: asked.append(projected))
    step()
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return asked[0], peak
