"""One task per tile: maps, and reductions in a tree of fixed shape."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Protocol

import dask
import numpy as np
from dask.callbacks import Callback
from dask.delayed import Delayed

from bigfs.engine.budget import holding
from bigfs.engine.clusters import client, translate_cluster_errors, worker_threads
from bigfs.engine.lazy_blocks import lazy_inputs
from bigfs.engine.placement import prefer, preferred_workers
from bigfs.engine.shared import Bundle, attach, detach
from bigfs.engine.watchdog import watch
from bigfs.engine.workers import one_blas_thread, release_memory
from bigfs.types import AnyArray

# Parts that are summed at a time. The last bits of a sum depend on it, so it is a constant.
TREE_ARITY = 8
TASKS_PER_THREAD = 4  # of a map, from which on a task takes several tiles
GROUP_TILES = 16  # at most, whose large sum one task makes
WINDOW = 2  # tasks per thread whose results are fetched as they come
LEAST_WINDOW = 8  # of them, or 128 MB of columns with the default tiles of a store
BEHIND = -1  # Dask's priority of tasks that others go before
CANCEL_SECONDS = 10.0  # to wait for running tasks of a failed step
_annotating = threading.Lock()  # Dask's annotations are those of all threads


class Tile(Protocol):
    """Key of the rows or columns [start, stop) of a matrix. They are loaded where they are used."""

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
    progress_tasks: Sequence[Delayed] = (),
) -> list[Any]:
    """Return ``[fn(tile, *each_i, *shared) for tile in tiles]``, computed by one task per tile."""
    if not progress_tasks and _runs_plainly(tiles, shared, each, local):
        return list(_run_now(fn, tiles, shared, each, label))
    size = 1 if progress_tasks else _bundle_size(tiles, shared, each, local)
    if size > 1:
        homes = preferred_workers(tiles)
        runs = [
            range(a, b)
            for first in range(0, len(tiles), size)
            for a, b in _same_home(homes, first, min(first + size, len(tiles)))
        ]
        tasks = _lazy_bundles(_OnBundle(fn), tiles, runs, homes, *shared, each=each)
        return list(itertools.chain.from_iterable(_collect(tasks, local, label)))
    return _collect(
        lazy_tiles(fn, tiles, *shared, each=each, local=local), local, label, progress_tasks
    )


def stream_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Yield the results of `map_tiles` with their numbers, on a cluster as they come. Only a few
    tasks per worker run or wait to be fetched at a time."""
    if _runs_plainly(tiles, shared, each, local):
        yield from enumerate(_run_now(fn, tiles, shared, each, None))
        return
    if local or client() is None:
        for a in range(0, len(tiles), LEAST_WINDOW):
            own = [operand[a : a + LEAST_WINDOW] for operand in each]
            tasks = lazy_tiles(fn, tiles[a : a + LEAST_WINDOW], *shared, each=own, local=local)
            yield from enumerate(_collect(tasks, local, None), a)
        return
    from distributed import as_completed

    with translate_cluster_errors():  # each travels once, and not with every part of the window
        shared = tuple(client().compute(o) if isinstance(o, Delayed) else o for o in _once(shared))
    homes = preferred_workers(tiles)
    tasks = lazy_tiles(fn, tiles, *shared, each=each, preferred=homes)
    waiting = deque(_by_turns(homes))
    running: dict[Any, int] = {}
    ends = as_completed(with_results=True, loop=client().loop)

    def start(n: int) -> None:
        some = [waiting.popleft() for _ in range(min(n, len(waiting)))]
        _, futures = _submit([tasks[i] for i in some], ())
        running.update(zip(futures, some, strict=True))
        ends.update(futures)

    with translate_cluster_errors(), watch(client(), running):
        try:
            start(max(LEAST_WINDOW, WINDOW * sum(worker_threads().values())))
            while running:
                done = ends.next_batch()
                start(len(done))
                while done:
                    future, result = done.pop()
                    yield running.pop(future), result
        except BaseException:
            _cancel(list(running))
            raise


def _by_turns(homes: list[list[str]]) -> list[int]:
    """Return the numbers of tasks in an order in which the workers take turns."""
    turns: dict[str, int] = {}
    turn = []
    for home in homes:
        turn.append(turns.setdefault(home[0], 0) if home else 0)
        if home:
            turns[home[0]] += 1
    return sorted(range(len(homes)), key=turn.__getitem__)


def _runs_plainly(tiles: Sequence[Any], shared: Any, each: Any, local: bool) -> bool:
    """Return whether a map needs no task graph: it is serial, and nothing is lazy. Arrays in memory
    are often so small that planning a graph takes longer than computing."""
    if local:  # the tiles hold their arrays
        return not any(isinstance(o, Delayed) for operands in (shared, *each) for o in operands)
    return client() is None and not lazy_inputs(tiles, shared, each)


def _run_now(
    fn: Callable[..., Any], tiles: Sequence[Any], shared: Any, each: Any, label: str | None
) -> Iterator[Any]:
    """Run the tasks one by one."""
    task = _Task(fn)
    show = _progress.get() if label else None
    for i, tile in enumerate(tiles):
        yield task(tile, *(operand[i] for operand in each), *shared)
        if show:
            show(str(label), i + 1, len(tiles))


@contextlib.contextmanager
def started_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
) -> Iterator[Callable[[], list[Any]]]:
    """Start the tasks of `map_tiles`, which run on the cluster beside what the block does. The
    tasks of the block go before them. They are canceled if the block fails."""
    if local or client() is None:
        yield lambda: map_tiles(fn, tiles, *shared, each=each, local=local, label=label)
        return
    _, futures = _submit(
        lazy_tiles(fn, tiles, *shared, each=each, local=local), (), priority=BEHIND
    )
    try:
        yield lambda: _wait([], futures, label)
    except BaseException:
        _cancel(futures)
        raise


def shared_operand(operand: Any) -> Delayed:
    """Return an operand for several maps. It travels to a worker once, not once per map."""
    return dask.delayed(operand)


@contextlib.contextmanager
def beside(fn: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Call a function that waits for the workers in a thread, beside what the block does."""
    if client() is None:
        yield fn
        return
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(copy_context().run, fn).result


def compute(lazy: Any) -> Any:
    """Return the value of a Dask collection, computed where `map_tiles` computes."""
    if client() is None:
        return lazy.compute(scheduler="sync")
    with translate_cluster_errors():
        return client().compute(lazy, sync=True)


@contextlib.contextmanager
def in_this_process() -> Iterator[None]:
    """Let other libraries compute Dask collections in this process, one task after the other."""
    with dask.config.set(scheduler="sync"):
        yield


def dask_array(sizes: Sequence[int], tasks: Sequence[tuple[Any, ...]], meta: Any) -> Any:
    """Return a lazy Dask array of blocks, one below the other."""
    import dask.array as da

    return da.concatenate(
        [
            da.from_delayed(dask.delayed(fn)(*operands), (size, meta.shape[1]), meta=meta)
            for size, (fn, *operands) in zip(sizes, tasks, strict=True)
        ]
    )


def dask_slices(X: Any, chunks: tuple[int, int]) -> Any:
    """Return an array that is read by slices, such as one in a file, as a lazy Dask array."""
    import dask.array as da

    return da.from_array(X, chunks=chunks, inline_array=True)


def dask_vector(values: Any, sizes: Sequence[int]) -> Any:
    """Return an array (n,) as a Dask array in blocks of these sizes."""
    import dask.array as da

    return da.from_array(values, chunks=(tuple(sizes),))


def reduce_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    combine: Callable[[list[Any]], Any] | None = None,
    arity: int = TREE_ARITY,
    local: bool = False,
    label: str | None = None,
) -> Any:
    """Combine the results of `map_tiles` into one value, in a tree of fixed shape. At most arity ·
    log(n) results exist at a time."""
    combine = combine or add
    if _runs_plainly(tiles, shared, each, local):
        return _fold(_run_now(fn, tiles, shared, each, label), len(tiles), combine, arity)
    size = _bundle_size(tiles, shared, each, local) if arity == TREE_ARITY else 1
    if size == 1:
        tasks = lazy_tiles(fn, tiles, *shared, each=each, local=local)
        return _collect(_tree(tasks, combine, arity), local, label, tasks if label else ())[0]
    size = TREE_ARITY ** max(k for k in range(1, 32) if TREE_ARITY**k <= size)  # a subtree
    homes, shared = preferred_workers(tiles), _once(shared)
    tasks, sent = list[Delayed](), dict[int, Delayed]()

    def subtree(first: int, size: int) -> Delayed:
        """Return the sum over tiles, by one task if they have the same worker."""
        stop = min(first + size, len(tiles))
        if len(_same_home(homes, first, stop)) == 1:
            own = _OnBundle(fn, partial(_fold, n=stop - first, combine=combine, arity=arity))
            run = [range(first, stop)]
            tasks.extend(_lazy_bundles(own, tiles, run, homes, *shared, each=each, sent=sent))
            return tasks[-1]
        below = size // arity
        return dask.delayed(combine, pure=False)(
            [subtree(a, below) for a in range(first, stop, below)]
        )

    parts = [subtree(first, size) for first in range(0, len(tiles), size)]
    return _collect(_tree(parts, combine, arity), local, label, tasks if label else ())[0]


def _tree(parts: list[Delayed], combine: Callable[[list[Any]], Any], arity: int) -> list[Delayed]:
    """Return the task of the whole, the only one, which combines at least once."""
    parts = [
        dask.delayed(combine, pure=False)(parts[k : k + arity]) for k in range(0, len(parts), arity)
    ]
    return parts if len(parts) == 1 else _tree(parts, combine, arity)


def _bundle_size(tiles: Sequence[Any], shared: Any, each: Any, local: bool) -> int:
    """Return how many consecutive tiles one task takes: 1 unless each thread has many. A task takes
    a millisecond of the scheduler, whatever it does."""
    if local or client() is None or len(tiles) < TREE_ARITY * TASKS_PER_THREAD:
        return 1
    if lazy_inputs(tiles, shared, each) or any(_is_future(values[0]) for values in each):
        return 1
    size = len(tiles) // (TASKS_PER_THREAD * max(sum(worker_threads().values()), 1))
    return size if size >= TREE_ARITY else 1


def _is_future(value: Any) -> bool:
    from distributed import Future

    return isinstance(value, Future)


def _same_home(homes: list[list[str]], start: int, stop: int) -> list[tuple[int, int]]:
    """Cut a range of tiles into the longest parts whose tiles have the same worker."""
    cuts = [start, *(i for i in range(start + 1, stop) if homes[i] != homes[i - 1]), stop]
    return list(itertools.pairwise(cuts))


class _OnBundle:
    """Turn a function of a tile into one of a bundle: the list of results, or what `fold` makes of
    them as they come."""

    def __init__(self, fn: Callable[..., Any], fold: Callable[..., Any] = list) -> None:
        self.fn, self.fold = fn, fold
        self.__name__ = getattr(fn, "__name__", "tile")

    def __call__(self, bundle: Bundle, *shared: Any) -> Any:
        task = _Task(self.fn)
        own = zip(bundle.tiles, bundle.operands, strict=True)
        return self.fold(task(tile, *operands, *shared) for tile, operands in own)


def _lazy_bundles(
    fn: _OnBundle,
    tiles: Sequence[Any],
    runs: Sequence[range],
    homes: list[list[str]],
    *shared: Any,
    each: Sequence[Sequence[Any]],
    sent: dict[int, Delayed] | None = None,
) -> list[Delayed]:
    """Return a task for each range of tiles."""
    bundles = [
        Bundle([tiles[i] for i in run], [tuple(operand[i] for operand in each) for i in run])
        for run in runs
    ]
    preferred = [homes[run[0]] for run in runs]
    return lazy_tiles(fn, bundles, *shared, preferred=preferred, sent=sent)


def _fold(parts: Iterator[Any], n: int, combine: Callable[[list[Any]], Any], arity: int) -> Any:
    """Combine n parts as they come, in the same tree as that of the tasks."""
    if n <= arity:
        return combine(list(parts))
    size = arity  # of the parts below a child of the root
    while size * arity < n:
        size *= arity
    of_children = (
        _fold(itertools.islice(parts, size), min(size, n - first), combine, arity)
        for first in range(0, n, size)
    )
    return combine(list(of_children))


def reduce_groups(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    n_groups: int,
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
) -> Any:
    """Sum a function over the tiles by at most `n_groups` tasks, each with consecutive tiles."""
    size = min(-(-len(tiles) // n_groups), GROUP_TILES)
    groups = [range(a, min(a + size, len(tiles))) for a in range(0, len(tiles), size)]
    operands = list(zip(*each, strict=True)) if each else [()] * len(tiles)
    arity = 2  # a task holds as many large parts, and their sum
    if local or _runs_plainly(tiles, shared, each, local):
        return reduce_tiles(
            _Group(fn),
            [[tiles[i] for i in group] for group in groups],
            *shared,
            None,
            each=[[[operands[i] for i in group] for group in groups]],
            arity=arity,
            local=local,
            label=label,
        )
    homes = [] if client() is None else preferred_workers(tiles)
    waits = bool(lazy_inputs(tiles))  # a task then waits for the values of one tile
    shared = _once(shared)
    totals, sent = list[Delayed](), dict[int, Delayed]()
    for group in groups:
        total: Any = None  # it goes from task to task
        cuts = [(i, i + 1) for i in group] if waits or not homes else None
        for a, b in cuts or _same_home(homes, group.start, group.stop):
            (total,) = lazy_tiles(
                _Group(fn),
                [list(tiles[a:b])],
                *shared,
                total,
                each=[[operands[a:b]]],
                preferred=homes[a : a + 1],
                sent=sent,
            )
        totals.append(total)
    return _collect(_tree(totals, add, arity), local, label, totals if label else ())[0]


class _Group:
    """Turn a function of a tile and a sum into a function of a group of tiles and a sum."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "group")

    def __call__(
        self, group: Sequence[Any], each: Sequence[tuple[Any, ...]], *shared: Any
    ) -> AnyArray:
        *shared, total = shared  # type: ignore[assignment]
        for tile, own in zip(group, each, strict=True):
            total = self.fn(tile, *own, *shared, total)
        return np.asarray(total)


def add(parts: list[Any]) -> Any:
    """Sum arrays in order, in float64. They are aligned first, because NumPy rounds unaligned ones
    differently."""
    dtype = np.result_type(parts[0], np.float64)
    if len(parts) == 1:  # the sum may be large, and nobody else has it
        return np.asarray(parts[0], dtype=dtype)
    total = np.array(parts[0], dtype=dtype)
    for part in parts[1:]:
        total += np.require(part, requirements="A")
    return total


def lazy_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    preferred: list[list[str]] | None = None,
    sent: dict[int, Delayed] | None = None,
) -> list[Delayed]:
    """Return the tasks of `map_tiles` without running them. They may be the operands (`each`) of a
    later map, which runs each of them once. `preferred` are the workers, and `sent` the shared
    values of other tasks of the same map, which get those of these tiles too."""
    if preferred is None:
        preferred = [] if local or client() is None else preferred_workers(tiles)
    sent = {} if sent is None else sent
    tiles = [detach(tile, sent) for tile in tiles]
    operands = (*_once(shared), *sent.values())
    task = dask.delayed(_Task(fn, list(sent)), pure=False)
    tasks = []
    with _annotating:
        for i, tile in enumerate(tiles):
            with prefer(preferred[i] if preferred else []):
                tasks.append(task(tile, *(operand[i] for operand in each), *operands))
    return tasks


def _once(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return operands that are looked into, and sent, once and not with every task."""
    return tuple(
        dask.delayed(o) if isinstance(o, np.ndarray | list) or hasattr(o, "indptr") else o
        for o in operands
    )


class _Task:
    """Call `fn` with aligned arrays and one thread of BLAS, which would round differently. Arrays
    that traveled between processes may be unaligned. The last operands are what the tile shares
    with others."""

    def __init__(self, fn: Callable[..., Any], sent: Sequence[int] = ()) -> None:
        self.fn, self.sent = fn, sent
        self.__name__ = getattr(fn, "__name__", "tile")

    def __call__(self, *operands: Any) -> Any:
        try:
            if self.sent:
                tile, *operands = operands  # type: ignore[assignment]
                n = len(operands) - len(self.sent)
                values = dict(zip(self.sent, operands[n:], strict=True))
                operands = attach(tile, values), *operands[:n]
            with one_blas_thread():
                return self.fn(
                    *(
                        np.require(o, requirements="A") if isinstance(o, np.ndarray) else o
                        for o in operands
                    )
                )
        finally:
            release_memory()


def _collect(
    tasks: list[Delayed],
    local: bool,
    label: str | None,
    progress_tasks: Sequence[Delayed] = (),
) -> list[Any]:
    show = _progress.get() if label else None
    if local or client() is None:
        counted = {task.key for task in (*progress_tasks, *tasks)}
        with _TaskCounter(show, str(label), counted) if show else contextlib.nullcontext():
            return list(dask.compute(*tasks, scheduler="sync", optimize_graph=False))
    ends, futures = _submit(tasks, progress_tasks if show else ())
    return _wait(ends, futures, label)


def _submit(
    tasks: Sequence[Delayed], progress_tasks: Sequence[Delayed], priority: int = 0
) -> tuple[list[Any], list[Any]]:
    """Start tasks on the cluster. Returns the futures of the progress and of the results."""
    ends = [dask.delayed(_end, pure=False)(step) for step in progress_tasks]
    with translate_cluster_errors():
        futures = client().compute([*ends, *tasks], optimize_graph=False, priority=priority)
    return futures[: len(ends)], futures[len(ends) :]


def _wait(ends: list[Any], futures: list[Any], label: str | None) -> list[Any]:
    """Return the results of tasks that `_submit` has started, and show their progress."""
    from distributed import as_completed

    show, steps = _progress.get() if label else None, [*ends, *futures]
    with translate_cluster_errors(), watch(client(), steps):
        try:
            if show:
                for done, _ in enumerate(as_completed(steps, loop=client().loop), 1):
                    show(str(label), done, len(steps))
            return list(client().gather(futures))
        except BaseException:
            _cancel(steps)
            raise


def _cancel(futures: Sequence[Any]) -> None:
    """Cancel tasks, and wait for those that run. Dask cannot stop a running task, and it may write
    a file. Whoever deletes the files of a failed step must not do so before."""
    keys, end = [future.key for future in futures], time.monotonic() + CANCEL_SECONDS
    # if the cluster is lost, the caller's error says so
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        client().cancel(futures)
        while any(client().run(_runs_any, keys).values()) and time.monotonic() < end:
            time.sleep(0.05)


def _runs_any(keys: list[str], dask_worker: Any) -> bool:
    return not {task.key for task in dask_worker.state.all_running_tasks}.isdisjoint(keys)


def _end(step: Any) -> None:
    """Depend on `step` without transferring its result. Used to count progress."""


class _TaskCounter(Callback):
    """Show the progress of a serial run. Counts the wanted tasks, not their dependencies."""

    def __init__(self, show: Progress, label: str, wanted: set[Any]) -> None:
        super().__init__(posttask=self._count)
        self.show, self.label, self.wanted, self.done = show, label, wanted, 0

    def _count(self, key: Any, *_: Any) -> None:
        if key in self.wanted:
            self.done += 1
            self.show(self.label, self.done, len(self.wanted))


# --- progress -----------------------------------------------------------------------------------

Progress = Callable[[str, int, int], None]  # called with (label, tasks done, tasks in total)
_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


def progress(show: Progress) -> contextlib.AbstractContextManager[None]:
    """Call `show(label, done, total)` after each task of a labeled map while the block runs. The
    function of an enclosing `progress` is called too."""
    outer = _progress.get()

    def show_both(label: str, done: int, total: int) -> None:
        if outer is not None:
            outer(label, done, total)
        show(label, done, total)

    return holding(_progress, show_both)


def show_progress(label: str, done: int, total: int) -> None:
    """Report work that is not a labeled map, such as folds, to the enclosing `progress`."""
    show = _progress.get()
    if show is not None:
        show(label, done, total)
