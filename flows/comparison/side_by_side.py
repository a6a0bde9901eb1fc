"""Several parts of the work at once, each in a thread that submits to the one cluster."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from typing import TypeVar

from bigfs.flows.comparison.time_limit import interrupt
from threadpoolctl import threadpool_limits

from bigfs.result import NotConverged

Result = TypeVar("Result")


def run_side_by_side(
    call: Callable[[str], Result], names: Sequence[str], at_once: int
) -> dict[str, Result]:
    """Return ``{name: call(name) for name in names}``, with several calls at once.

    A thread has the context of the caller: its cluster, its memory limit and its progress display.
    BLAS takes one thread, as it does where methods run one after another and the last bits matter.
    """
    running: set[int] = set()

    def noted(name: str) -> Result:
        running.add(threading.get_ident())
        try:
            return call(name)
        finally:
            running.discard(threading.get_ident())

    # filters and thread limits belong to the process: a call that ends must not put back those of
    # before for the others
    with (
        threadpool_limits(1, user_api="blas"),
        warnings.catch_warnings(),
        ThreadPoolExecutor(at_once) as pool,
    ):
        warnings.simplefilter("ignore", NotConverged)
        futures = {name: pool.submit(copy_context().run, noted, name) for name in names}
        try:
            for future in as_completed(futures.values()):
                future.result()
        except BaseException:
            for future in futures.values():
                future.cancel()
            for thread in list(running):
                interrupt(thread, KeyboardInterrupt)
            raise
    return {name: future.result() for name, future in futures.items()}
