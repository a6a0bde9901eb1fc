"""The executor of tasks, and their shapes: maps, streams, and sums in a fixed tree.

`session` asks once who runs: the enclosing `cluster`, the user's own client, or this process. There
are two executors. A serial one calls a task where it is submitted. On a cluster a task is a future.
The results of the tasks, and so each bit of a sum, are the same on both.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

import dask
import numpy as np

from bigfs.engine.budget import IDLE, SERIAL, current_session, holding_session, in_task
from bigfs.engine.clusters import (
    ClusterLostError,
    asking_cluster,
    connection_lost,
    describe_workers,
    prepare_client,
    translate_cluster_errors,
)
from bigfs.engine.lazy_blocks import (
    WithInputs,
    graph_of_inputs,
    having_inputs,
    lazy_inputs,
)
from bigfs.engine.shared import Reference, Shared, replace_held, unshare
from bigfs.engine.watchdog import watch
from bigfs.engine.workers import one_blas_thread, own_memory, release_memory
from bigfs.result import holding
from bigfs.settings import Setting

# Parts that are summed at a time. The last bits of a sum depend on it, so it is a constant.
TREE_ARITY = 8
TASKS_PER_THREAD = 4  # of a map, from which on a task takes several tiles
TOTALS_ARITY = 2  # a task holds as many large totals, and their sum
CHAIN_TILES = 16  # at most, whose large sum one task makes
WINDOW = 2  # tasks per thread whose results are fetched as they come
LEAST_WINDOW = 8  # of them, or 128 MB of columns with the default tiles of a store
SMALL_BYTES = 1000  # of an array that travels with each task
BEHIND = -1  # Dask's priority of tasks that others go before
CANCEL_SECONDS = Setting(10.0)  # to wait for running tasks of a failed step

Combine = Callable[[list[Any]], Any]


# --- what a task calls ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Run:
    """Consecutive tiles of one task, each with its operands. Dask does not look into it."""

    tiles: list[Any]
    operands: list[tuple[Any, ...]]


class Task:
    """Call `fn` with aligned arrays and one thread of BLAS, which would round differently. The last
    operands are what the tile shares with others, by the numbers `sent`.

    For a run of tiles it returns the list of results, or what `fold` makes of them and their number
    as they come. A `running` total is the last operand, and what `fn` returns is given to the next.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        fold: Callable[..., Any] | None = None,
        running: bool = False,
        sent: Sequence[int] = (),
    ) -> None:
        self.fn, self.fold, self.running, self.sent = fn, fold, running, list(sent)
        self.__name__ = getattr(fn, "__name__", "tile")

    def __call__(self, tile: Any, *operands: Any) -> Any:
        n = len(operands) - len(self.sent)
        values, shared = dict(zip(self.sent, operands[n:], strict=True)), operands[:n]
        if not isinstance(tile, Run):
            return self._call(tile, values, shared)
        each = zip(tile.tiles, tile.operands, strict=True)
        if self.running:
            *common, total = shared
            for one, own in each:
                total = self._call(one, values, (*own, *common, total))
            return np.asarray(total)
        parts = (self._call(one, values, (*own, *shared)) for one, own in each)
        return list(parts) if self.fold is None else self.fold(parts, len(tile.tiles))

    def _call(self, tile: Any, values: dict[int, Any], operands: Sequence[Any]) -> Any:
        if values:
            tile = replace_held(tile, Reference, lambda refers: Shared(values[refers.number]))
        try:
            with one_blas_thread():
                return self.fn(*map(align, (tile, *operands)))
        finally:
            release_memory()


def align(value: Any) -> Any:
    """Return a value whose arrays are aligned.

    Arrays that traveled may not be, and NumPy rounds unaligned ones differently.
    """
    if isinstance(value, np.ndarray):
        return np.require(value, requirements="A")
    if isinstance(value, list | tuple):
        parts = [align(part) for part in value]
        if any(part is not before for part, before in zip(parts, value, strict=True)):
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def add(parts: list[Any]) -> Any:
    """Sum arrays in order, in float64."""
    dtype = np.result_type(parts[0], np.float64)
    if len(parts) == 1:  # the sum may be large, and nobody else has it
        return np.asarray(parts[0], dtype=dtype)
    total = np.array(parts[0], dtype=dtype)
    for part in parts[1:]:
        total += align(part)
    return total


def fold(parts: Iterator[Any], n: int, combine: Combine, arity: int) -> Any:
    """Combine n parts as they come, in the tree in which a cluster combines them."""
    if n <= arity:
        return combine(list(parts))
    size = arity  # of the parts below a child of the root
    while size * arity < n:
        size *= arity
    of_children = (
        fold(itertools.islice(parts, size), min(size, n - first), combine, arity)
        for first in range(0, n, size)
    )
    return combine(list(of_children))


# --- the executors --------------------------------------------------------------------------------


class Serial:
    """Calls each task at once, with the methods of `OnCluster`. A handle is the task's value."""

    def submit(
        self, fn: Any, tiles: Any, shared: Any, each: Any, priority: int = 0
    ) -> Sequence[Any]:
        return self.map(fn, tiles, shared, each, None)

    def gather(self, values: Sequence[Any], label: str | None = None) -> list[Any]:
        return list(values)

    def wait(self, values: Sequence[Any]) -> None:
        """Do nothing: a value is there."""

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
        return list(dask.get(graph, keys))

    def map(self, fn: Any, tiles: Any, shared: Any, each: Any, label: str | None) -> list[Any]:
        return list(self._results(fn, tiles, shared, each, label))

    def stream(self, fn: Any, tiles: Any, shared: Any, each: Any) -> Iterator[tuple[int, Any]]:
        yield from enumerate(self._results(fn, tiles, shared, each, None))

    def fold(
        self, fn: Any, tiles: Any, shared: Any, each: Any, combine: Combine, label: Any
    ) -> Any:
        parts = self._results(fn, tiles, shared, each, label)
        return fold(parts, len(tiles), combine, TREE_ARITY)

    def accumulate(
        self, fn: Any, groups: Sequence[range], tiles: Any, shared: Any, each: Any, label: Any
    ) -> Any:
        results = self._results(fn, tiles, shared, each, label, {group[0] for group in groups})
        totals = (deque(itertools.islice(results, len(group)), 1).pop() for group in groups)
        return fold(totals, len(groups), add, TOTALS_ARITY)

    def _results(
        self, fn: Any, tiles: Any, shared: Any, each: Any, label: str | None, begins: Any = None
    ) -> Iterator[Any]:
        """Run the tasks one by one.

        The last operand may be the result of the task before, None for those that begin.
        """
        task, shared = Task(fn), [unshare(value) for value in shared]
        show, total = _progress.get() if label else None, None
        inputs = InTurn([(tile, *own) for tile, *own in zip(tiles, *each, strict=True)], shared)
        for i, tile in enumerate(tiles):
            more = () if begins is None else (None if i in begins else total,)
            total = None  # it may be large
            with inputs.of(i):
                total = task(tile, *(operand[i] for operand in each), *shared, *more)
            yield total
            if show:
                show(str(label), i + 1, len(tiles))


class InTurn:
    """The inputs of tasks that run one by one.

    Each is computed once, and held until the last task that needs it has ended.
    """

    def __init__(self, operands: Sequence[Any], shared: Any) -> None:
        common = lazy_inputs(*shared)
        self.inputs = [common | lazy_inputs(*of_task) for of_task in operands]
        self.last = {key: i for i, needed in enumerate(self.inputs) for key in needed}
        self.held = dict[Any, Any]()

    @contextlib.contextmanager
    def of(self, i: int) -> Iterator[None]:
        """Have the inputs of the task number i in the block."""
        if not (keys := list(self.inputs[i])):
            yield
            return
        with having_inputs(self.held):
            self.held |= zip(keys, dask.get(graph_of_inputs(self.inputs[i]), keys), strict=True)
        with having_inputs(self.held):
            yield
        for key in keys:
            if self.last[key] == i:
                del self.held[key]


def is_handle(value: Any) -> bool:
    """Return whether an operand stands for the value of a task."""
    return hasattr(value, "key") and hasattr(value, "add_done_callback")


@dataclass(frozen=True)
class OnCluster:
    """Runs each task on a cluster. A handle is a future."""

    client: Any

    def threads(self) -> dict[str, int]:
        """Return the number of threads of each worker by its address, in a fixed order."""
        if self.client.status != "running":
            raise connection_lost()
        with asking_cluster():
            return dict(sorted(self.client.nthreads().items()))

    def submit(
        self, fn: Any, tiles: Any, shared: Any, each: Any, priority: int = 0
    ) -> Sequence[Any]:
        """Start the tasks, and return their futures."""
        with self._errors():
            return Pass(self, fn, tiles, shared, each, priority).start()

    def get(self, graph: dict[Any, Any], keys: list[Any]) -> list[Any]:
        """Start some keys of a graph of Dask, and return their futures."""
        return list(self.client.get(graph, keys, sync=False))

    def map(self, fn: Any, tiles: Any, shared: Any, each: Any, label: str | None) -> list[Any]:
        """Return the results of all tiles. A task takes several where each thread has many."""
        with self._errors():
            tasks = Pass(self, fn, tiles, shared, each)
            futures = tasks.start_all()
        results = self.gather(futures, label)
        return results if tasks.size == 1 else list(itertools.chain.from_iterable(results))

    def stream(self, fn: Any, tiles: Any, shared: Any, each: Any) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each tile as it comes.

        Only a few tasks per worker run or wait to be fetched at a time.
        """
        from distributed import as_completed

        running: dict[Any, int] = {}
        with self._errors(running):
            tasks = Pass(self, fn, tiles, shared, each)
            waiting = deque(tasks.by_turns())
            ends = as_completed(with_results=True, loop=self.client.loop)

            def start(n: int) -> None:
                numbers = [waiting.popleft() for _ in range(min(n, len(waiting)))]
                futures = tasks.start(numbers)
                running.update(zip(futures, numbers, strict=True))
                ends.update(futures)

            start(max(LEAST_WINDOW, WINDOW * len(tasks.slots)))
            while running:
                done = ends.next_batch()
                start(len(done))
                while done:
                    future, result = done.pop()
                    if future.status != "finished":  # canceled, and the result is an error
                        future.result()
                    yield running.pop(future), align(result)

    def fold(
        self, fn: Any, tiles: Any, shared: Any, each: Any, combine: Combine, label: Any
    ) -> Any:
        """Return what `combine` makes of the results, in a tree.

        A task sums the tiles of a subtree where each thread has many.
        """
        with self._errors():
            tasks = Pass(self, fn, tiles, shared, each)
            steps = tasks.start_all(partial(fold, combine=combine, arity=TREE_ARITY))
            root = tree(self.client, steps, combine, TREE_ARITY)
        return self.gather([root], label, steps)[0]

    def accumulate(
        self, fn: Any, groups: Sequence[range], tiles: Any, shared: Any, each: Any, label: Any
    ) -> Any:
        """Return the sum of the running totals of groups of tiles.

        A total goes from task to task, and each task is where its tiles are.
        """
        with self._errors():
            tasks = Pass(self, fn, tiles, shared, each)
            steps = [tasks.start_chain(fn, group) for group in groups]
            root = tree(self.client, steps, add, TOTALS_ARITY)
        return self.gather([root], label, steps)[0]

    def gather(
        self, futures: Sequence[Any], label: str | None = None, steps: list[Any] | None = None
    ) -> list[Any]:
        """Wait for tasks, and show the progress of theirs and of the steps before them.

        The steps are let go as they end, because their values may be large.
        """
        from distributed import as_completed

        show = _progress.get() if label else None
        running = {*(steps or ()), *futures} if show else set(futures)
        if steps:
            steps.clear()
        with self._errors(running):
            if show:
                total, ends = len(running), as_completed(list(running), loop=self.client.loop)
                for done, future in enumerate(ends, 1):
                    running.discard(future)
                    show(str(label), done, total)
            return list(map(align, self.client.gather(list(futures))))

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait until tasks have ended, or one of them fails."""
        from distributed import as_completed

        with self._errors(futures):
            for future in as_completed(futures, loop=self.client.loop):
                if future.status != "finished":
                    future.result()

    def cancel(self, futures: Sequence[Any]) -> None:
        """Cancel tasks, and wait for those that run. Dask cannot stop a running task, and it may
        write a file. Do not delete the files of a failed step before."""
        keys, end = [future.key for future in futures], time.monotonic() + CANCEL_SECONDS.value
        # if the cluster is lost, the caller's error says so
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self.client.cancel(list(futures))
            while any(self.client.run(runs_any, keys).values()) and time.monotonic() < end:
                time.sleep(0.05)

    @contextlib.contextmanager
    def _errors(self, running: Collection[Any] | None = None) -> Iterator[None]:
        """Turn errors of a broken cluster into `ClusterLostError`, and remember a lost client.
        Watch the tasks that run, if they are given, and cancel them where the block fails."""
        waiting = contextlib.nullcontext() if running is None else watch(self.client, running)
        try:
            with translate_cluster_errors(), waiting:
                try:
                    yield
                except BaseException:
                    if running is not None:
                        self.cancel(list(running))
                    raise
        except ClusterLostError:
            if self.client.status != "running" and self.client in _users:
                lost_clients.add(self.client)
            raise


def runs_any(keys: list[str], dask_worker: Any) -> bool:
    return not {task.key for task in dask_worker.state.all_running_tasks}.isdisjoint(keys)


class Pass:
    """The tasks of a map on a cluster, to be started together or a few at a time.

    Each prefers the worker of its tile, which may have it in its cache: a tile at the place p of
    its matrix, from 0 to 1, is that of the thread number p · threads, and tiles that one task takes
    together have the worker of the first. Others may take it. A task that waits for values of
    others runs where these lie.
    """

    def __init__(
        self, executor: OnCluster, fn: Any, tiles: Any, shared: Any, each: Any, priority: int = 0
    ) -> None:
        self.executor, self.client, self.priority = executor, executor.client, priority
        self.each, self.n_shared = each, len(shared)
        self.common = lazy_inputs(*shared)
        self.has_inputs = bool(self.common or lazy_inputs(tiles, each))
        self.waits = self.has_inputs or any(is_handle(values[0]) for values in each if len(values))
        self.slots = [worker for worker, n in executor.threads().items() for _ in range(n)]
        # consecutive tiles of a task: the tiles of a subtree of a sum, and 1 unless each thread has
        # many. A task takes a millisecond of the scheduler, whatever it does
        self.size = 1
        if not self.waits:
            while TASKS_PER_THREAD * max(len(self.slots), 1) * self.size * TREE_ARITY <= len(tiles):
                self.size *= TREE_ARITY
        self.homes: list[str | None] = [None] * len(tiles)
        if self.slots and not self.waits and not all(isinstance(t, np.ndarray) for t in tiles):
            places = [place(tile, (i + 0.5) / len(tiles)) for i, tile in enumerate(tiles)]
            firsts = [i - i % self.size for i in range(len(tiles))]  # of their runs
            self.homes = [self.slots[int(places[i] * len(self.slots))] for i in firsts]
        sent = dict[int, Shared]()

        def refer(shared: Shared) -> Reference:
            sent[id(shared)] = shared
            return Reference(id(shared))

        self.tiles = [replace_held(tile, Shared, refer) for tile in tiles]
        self.task = Task(fn, sent=list(sent))
        self.shared = [self._operand(value) for value in (*shared, *sent.values())]

    def _operand(self, value: Any) -> Any:
        """Return what stands for a value in the tasks. A large one travels once."""
        is_large = isinstance(value, list) or hasattr(value, "indptr")
        if is_large or getattr(value, "nbytes", 0) > SMALL_BYTES:
            value = Shared(value)
        return value.at(self.client) if isinstance(value, Shared) else value

    def start(self, numbers: Sequence[int] | None = None) -> list[Any]:
        """Start the tasks of some tiles, or of all, and return their futures."""
        numbers = range(len(self.tiles)) if numbers is None else numbers
        futures = dict[int, Any]()
        if self.has_inputs:
            own = [[self.tiles[i], *(values[i] for values in self.each)] for i in numbers]
            inputs = [self.common | lazy_inputs(operands) for operands in own]
            needed = {key: one for of_task in inputs for key, one in of_task.items()}
            started = self.executor.get(graph_of_inputs(needed), list(needed))
            at = dict(zip(needed, started, strict=True))
            return [
                self.client.submit(
                    WithInputs(self.task, list(of_task)),
                    [at[key] for key in of_task],
                    *(*operands, *self.shared),
                    pure=False,
                    priority=self.priority,
                )
                for operands, of_task in zip(own, inputs, strict=True)
            ]
        by_home = dict[str | None, list[int]]()
        for i in numbers:
            by_home.setdefault(self.homes[i], []).append(i)
        for home, of_home in by_home.items():
            options: dict[str, Any] = {"pure": False, "priority": self.priority}
            if home is not None:
                options |= {"workers": [home], "allow_other_workers": True}
            operands = [[values[i] for i in of_home] for values in (self.tiles, *self.each)]
            operands += [[value] * len(of_home) for value in self.shared]
            started = self.client.map(self.task, *operands, **options)
            futures.update(zip(of_home, started, strict=True))
        return [futures[i] for i in numbers]

    def by_turns(self) -> list[int]:
        """Return the numbers of the tasks in an order in which the workers take turns."""
        n_before, turns = Counter[str | None](), list[int]()
        for home in self.homes:
            turns.append(n_before[home])
            n_before[home] += 1
        return sorted(range(len(turns)), key=turns.__getitem__)

    # --- runs of several tiles ----------------------------------------------------------------

    def at_one_home(self, numbers: range) -> list[range]:
        """Cut numbers of tiles into the longest runs whose tiles have the same worker."""
        inner = (i for i in numbers[1:] if self.homes[i] != self.homes[i - 1])
        return [range(a, b) for a, b in itertools.pairwise((numbers.start, *inner, numbers.stop))]

    def start_all(self, fold: Callable[..., Any] | None = None) -> list[Any]:
        """Start a task per tile, or per run of tiles, whose results it folds."""
        if self.size == 1:
            return self.start()
        return self.start_runs(Task(self.task.fn, fold), cut(range(len(self.tiles)), self.size))

    def start_runs(self, task: Task, runs: Sequence[range], *more: Any) -> list[Any]:
        """Start a task for each run of tiles, with more shared operands after the pass's own."""
        twin = copy(self)
        twin.task, twin.each = task, ()
        task.sent = self.task.sent
        twin.tiles = [
            Run(self.tiles[run.start : run.stop], [tuple(of[i] for of in self.each) for i in run])
            for run in runs
        ]
        twin.homes = [self.homes[run.start] for run in runs]
        twin.shared = [*self.shared[: self.n_shared], *more, *self.shared[self.n_shared :]]
        return twin.start()

    def start_chain(self, fn: Any, group: range) -> Any:
        """Start the tasks of a running total over a group of tiles, and return the last one."""
        total = None  # it goes from task to task
        longest = 1 if self.waits else CHAIN_TILES  # a task waits for the values of one tile
        for part in cut(group, longest):
            for run in self.at_one_home(part):
                (total,) = self.start_runs(Task(fn, running=True), [run], total)
        return total


def place(tile: Any, default: float) -> float:
    """Return where a tile lies in its matrix, from 0 to 1, or the default."""
    while (inner := getattr(tile, "tile", None)) is not None:  # of which it has some rows
        tile = inner
    known = getattr(tile, "place", None)
    return default if known is None else float(known)


def cut(numbers: range, size: int) -> list[range]:
    """Cut a range into parts of one size, the last of which may be shorter."""
    return [numbers[a : a + size] for a in range(0, len(numbers), size)]


def tree(client: Any, parts: list[Any], combine: Combine, arity: int) -> Any:
    """Return the future of the whole, which combines at least once."""
    groups = [parts[k : k + arity] for k in range(0, len(parts), arity)]
    parts = [client.submit(combine, group, pure=False) for group in groups]
    return parts[0] if len(parts) == 1 else tree(client, parts, combine, arity)


# --- who runs -------------------------------------------------------------------------------------

_users: WeakSet[Any] = WeakSet()  # clients of the user's own that ran tasks
lost_clients: WeakSet[Any] = WeakSet()  # of the user's own, whose cluster is lost


def client() -> Any:
    """Return the client that runs the tasks: that of the enclosing `cluster` or `session`, else the
    user's own if it is synchronous. None when serial, and inside a task, because waiting there
    would block the worker.

    Raises
    ------
    ClusterLostError
        The user's own client has lost its cluster.
    """
    held = current_session().client
    if held is not None or in_task():
        return None if held is SERIAL else held
    if "distributed" not in sys.modules:
        return None
    from distributed import default_client

    try:
        current = default_client()
    except ValueError as error:  # "no clients found"
        if any(lost.status == "closed" for lost in lost_clients):
            raise connection_lost() from error
        return None
    if current.asynchronous:
        return None
    if current.status != "running":
        lost_clients.add(current)
        raise connection_lost()
    prepare_client(current)
    _users.add(current)
    return current


def current_executor(local: bool = False) -> Serial | OnCluster:
    """Return who runs the tasks. Tiles that hold their arrays (`local`) stay in this process."""
    current = None if local else client()
    return Serial() if current is None else OnCluster(current)


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Ask once who runs the tasks, and hold the answer in the block, with one thread of BLAS.

    Each public function that makes more than one pass is in such a block. A cluster that is lost in
    the block is an error of the step that needs it.
    """
    current, baseline = client(), held_memory()
    who = SERIAL if current is None else current
    said = current_session().said
    said = set() if said is None else said
    with holding_session(client=who, baseline=baseline, said=said), one_blas_thread():
        yield


def held_memory() -> int:
    """Return the bytes that this process holds without a step.

    In one that drives a cluster, what the user has loaded is not the step's.
    """
    if (baseline := current_session().baseline) is not None:
        return baseline
    return own_memory() if client() is None else IDLE


def n_workers() -> int:
    """Return the number of workers, 1 when serial and before the first worker is there."""
    runs = current_executor()
    return max(1, len(runs.threads())) if isinstance(runs, OnCluster) else 1


_known: WeakKeyDictionary[Any, tuple[dict[str, int], dict[str, Any]]] = WeakKeyDictionary()


def known_workers() -> dict[str, Any]:
    """Return what the scheduler knew of each worker, by address, when the last joined or left.

    It is asked no more often, as its answer has several kilobytes for each.
    """
    current = client()
    threads = OnCluster(current).threads()
    if current not in _known or _known[current][0] != threads:
        with asking_cluster():
            _known[current] = threads, describe_workers(current)
    return _known[current][1]


# --- maps, streams and sums -----------------------------------------------------------------------


def map_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
) -> list[Any]:
    """Return ``[fn(tile, *each_i, *shared) for tile in tiles]``, computed by one task per tile."""
    return current_executor(local).map(fn, tiles, shared, each, label)


def stream_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Yield the results of `map_tiles` with their numbers, on a cluster as they come. Only a few
    tasks per worker run or wait to be fetched at a time."""
    return current_executor(local).stream(fn, tiles, shared, each)


def reduce_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    combine: Combine | None = None,
    local: bool = False,
    label: str | None = None,
) -> Any:
    """Combine the results of `map_tiles` into one value, in a tree of fixed shape.

    At most `TREE_ARITY` · log(n) results exist at a time.
    """
    return current_executor(local).fold(fn, tiles, shared, each, combine or add, label)


def reduce_groups(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    n_groups: int,
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
) -> Any:
    """Sum a function over the tiles in at most `n_groups` running totals, each over consecutive
    tiles. The function takes the total as its last operand, None at first, and returns it."""
    groups = cut(range(len(tiles)), -(-len(tiles) // n_groups))
    return current_executor(local).accumulate(fn, groups, tiles, shared, each, label)


@contextlib.contextmanager
def started_tiles(
    fn: Callable[..., Any],
    tiles: Sequence[Any],
    *shared: Any,
    each: Sequence[Sequence[Any]] = (),
    local: bool = False,
    label: str | None = None,
) -> Iterator[Callable[[], list[Any]]]:
    """Start the tasks of `map_tiles`, which run on the cluster while the block does other work.

    The tasks of the block go before them. They are canceled if the block fails. In this process
    they run when they are asked for.
    """
    runs = current_executor(local)
    if isinstance(runs, Serial):
        yield lambda: runs.map(fn, tiles, shared, each, label)
        return
    futures = runs.submit(fn, tiles, shared, each, priority=BEHIND)
    try:
        yield lambda: runs.gather(futures, label)
    except BaseException:
        runs.cancel(futures)
        raise


@contextlib.contextmanager
def held_inputs(*tiles: Any, local: bool = False) -> Iterator[None]:
    """Compute what tiles of a Dask array need of one another once, for all passes of the block."""
    if not (inputs := lazy_inputs(tiles)):
        yield
        return
    runs, keys = current_executor(local), list(inputs)
    values = runs.get(graph_of_inputs(inputs), keys)
    with having_inputs(dict(zip(keys, values, strict=True))):
        yield


def compute(lazy: Any) -> Any:
    """Return the value of a Dask collection, computed where `map_tiles` computes."""
    runs = current_executor()
    if isinstance(runs, Serial):
        return lazy.compute(scheduler="sync")
    return runs.gather([runs.client.compute(lazy)])[0]


# --- Dask collections for other libraries ---------------------------------------------------------


def in_this_process() -> contextlib.AbstractContextManager[Any]:
    """Let other libraries compute Dask collections in this process, one task after the other."""
    return dask.config.set(scheduler="sync")


def dask_array(fn: Callable[..., Any], tiles: Sequence[Any], meta: Any) -> Any:
    """Return the blocks ``fn(tile, meta)`` as a lazy Dask array, one below the other."""
    import dask.array as da

    graph, inputs = dict[Any, Any](), dict[Any, Any]()
    name = f"{fn.__name__.strip('_')}-{uuid4()}"
    for i, tile in enumerate(tiles):
        needed = lazy_inputs(tile)
        graph[name, i, 0] = WithInputs(partial(Task(fn), tile, meta), list(needed)), list(needed)
        inputs |= needed
    graph |= graph_of_inputs(inputs)
    chunks = (tuple(tile.stop - tile.start for tile in tiles), (meta.shape[1],))
    return da.Array(graph, name, chunks, meta=meta)


def dask_slices(X: Any, chunks: tuple[Any, ...]) -> Any:
    """Return an array that is read by slices, such as one in a file, as a lazy Dask array."""
    import dask.array as da

    return da.from_array(X, chunks=chunks, inline_array=True)


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
