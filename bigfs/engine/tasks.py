"""One task a tile: maps, and reductions in a tree of fixed shape."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import dask
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed

from bigfs.engine.clusters import addresses, client, lost
from bigfs.engine.relief import relieve

FAN = 8  # of the reduction tree; part of the answer's last bits, so a constant


class Tile(Protocol):
    """Rows or columns [start, stop) of a matrix, loaded where they are used."""

    start: int
    stop: int

    def load(self) -> Any: ...


# --- map and reduce -----------------------------------------------------------------------------


def map_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
    after: Sequence[Delayed] = (),
) -> list[Any]:
    """``[fn(tile, *each_i, *shared) for tile in tiles]`` in order, one task a tile.

    Parameters
    ----------
    shared : operands that every task needs.
    each : sequences as long as `tiles`: the operands that only tile i needs.
    local : run in this process whatever the cluster (the tiles hold arrays, not keys).
    label : show progress under this name.
    after : lazy tasks that the operands come from; the progress counts them too.
    """
    if (
        local
        and not after
        and not any(
            isinstance(operand, Delayed) for operands in (shared, *each) for operand in operands
        )
    ):
        return _at_once(fn, tiles, shared, each, label)
    return _collect(_tasks(fn, tiles, shared, each, local), local, label, after)


def _at_once(
    fn: Callable[..., Any], tiles: Sequence[Any], shared: Any, each: Any, label: str | None
) -> list[Any]:
    """The tasks of arrays in memory, without a graph of them: small data take longer to be planned
    than to be computed.
    """
    task, show, results = _Task(fn), _progress.get() if label else None, []
    for i, tile in enumerate(tiles):
        results.append(task(tile, *(operand[i] for operand in each), *shared))
        if show:
            show(str(label), i + 1, len(tiles))
    return results


def lazy_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
) -> list[Delayed]:
    """The tasks of `map_tiles`, not run: operands (`each`) of a later map, which runs each of them
    once.
    """
    return _tasks(fn, tiles, shared, each, local)


def once(operand: Any) -> Delayed:
    """An operand that several maps share: it travels to a worker once, and not once a map."""
    return dask.delayed(operand)


def reduce_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    combine: Callable[[list[Any]], Any] | None = None,
    local: bool = False,
    label: str | None = None,
) -> Any:
    """`map_tiles`, then one value: parts are combined (summed) in a tree of fixed shape."""
    if local or client() is None:
        parts = map_tiles(fn, tiles, *shared, each=each, local=local, label=label)
        while len(parts) > 1:
            parts = [(combine or add)(parts[k : k + FAN]) for k in range(0, len(parts), FAN)]
        return parts[0]
    parts = _tasks(fn, tiles, shared, each, local)
    while len(parts) > 1:
        parts = [
            dask.delayed(combine or add, pure=False)(parts[k : k + FAN])
            for k in range(0, len(parts), FAN)
        ]
    return _collect(parts, local, None)[0]


def add(parts: list[Any]) -> Any:
    """Sum in order. Aligned first: numpy rounds unaligned operands differently."""
    total = np.array(parts[0], dtype=np.result_type(parts[0], np.float64))
    for part in parts[1:]:
        total += np.require(part, requirements="A")
    return total


def _tasks(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    shared: Sequence[Any],
    each: Sequence[Sequence[Any]],
    local: bool,
) -> list[Delayed]:
    shared = [
        dask.delayed(s) if isinstance(s, np.ndarray) or hasattr(s, "indptr") else s for s in shared
    ]
    task = dask.delayed(_Task(fn), pure=False)
    on = [] if local or client() is None else addresses()
    tasks = []
    for i, tile in enumerate(tiles):
        with _prefer(on, i, len(tiles)):
            tasks.append(task(tile, *(operand[i] for operand in each), *shared))
    return tasks


def _prefer(on: list[str], i: int, count: int) -> contextlib.AbstractContextManager[Any]:
    """The worker that tile i prefers, the same in every pass, so that a kept tile is found
    again.
    """
    if not on:
        return contextlib.nullcontext()
    return dask.annotate(workers=[on[i * len(on) // count]], allow_other_workers=True)


class _Task:
    """`fn`, its arrays aligned (those that travelled between processes may not be, which changes
    how BLAS rounds).
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "tile")

    def __call__(self, *operands: Any) -> Any:
        try:
            return self.fn(
                *(
                    np.require(o, requirements="A") if isinstance(o, np.ndarray) else o
                    for o in operands
                )
            )
        finally:
            relieve()


def _collect(
    tasks: list[Delayed], local: bool, label: str | None, after: Sequence[Delayed] = ()
) -> list[Any]:
    show = _progress.get() if label else None
    if local or client() is None:
        counted = {task.key for task in (*after, *tasks)}
        with _Finished(show, str(label), counted) if show else contextlib.nullcontext():
            return list(dask.compute(*tasks, scheduler="sync", optimize_graph=False))
    from distributed import as_completed

    ends = [dask.delayed(_end, pure=False)(step) for step in after] if show else []
    with lost():
        futures = client().compute([*ends, *tasks], optimize_graph=False)
        if show:
            for done, _ in enumerate(as_completed(futures, loop=client().loop), 1):
                show(str(label), done, len(futures))
        return list(client().gather(futures[len(ends) :]))


def _end(step: Any) -> None:
    """That a step has ended, without its value."""


class _Finished(Callback):
    """Progress of a serial run: counts the tasks asked for, not what they depend on."""

    def __init__(self, show: Progress, label: str, wanted: set[Any]) -> None:
        super().__init__(posttask=self._count)
        self.show, self.label, self.wanted, self.done = show, label, wanted, 0

    def _count(self, key: Any, *_: Any) -> None:
        if key in self.wanted:
            self.done += 1
            self.show(self.label, self.done, len(self.wanted))


# --- progress -----------------------------------------------------------------------------------

Progress = Callable[[str, int, int], None]  # what runs, tiles done, tiles in all
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextlib.contextmanager
def progress(show: Progress) -> Iterator[None]:
    """Tell `show(label, done, total)` of every labelled map while the block runs; an enclosing
    `progress` is told too.
    """
    outer = _progress.get()

    def both(label: str, done: int, total: int) -> None:
        for told in (outer, show):
            if told is not None:
                told(label, done, total)

    token = _progress.set(both)
    try:
        yield
    finally:
        _progress.reset(token)


def show_progress(label: str, done: int, total: int) -> None:
    """Tell the enclosing `progress` of work that is no labelled map, such as folds."""
    show = _progress.get()
    if show is not None:
        show(label, done, total)
