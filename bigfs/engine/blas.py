"""The one place that says how many threads BLAS may use: one, because it rounds by their number."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import lru_cache

import scipy.linalg  # noqa: F401  # it has a BLAS of its own, which is found only once it is there
from threadpoolctl import ThreadpoolController


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in the block, so that its answer has the same bits anywhere."""
    with _controller(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(1)
def _controller(n_modules: int) -> ThreadpoolController:
    """Return the controller of the libraries that are loaded, which another import may change."""
    return ThreadpoolController()
