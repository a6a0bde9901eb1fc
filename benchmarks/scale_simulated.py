"""What Dask's scheduler and the driver take at 64, 256 and 1,024 workers, whose tiles only wait.

python benchmarks/scale_simulated.py                     # the table
python benchmarks/scale_simulated.py --workers 1024 --tiles-per-worker 98      # 10⁵ tiles
python benchmarks/scale_simulated.py --graph planned     # RCV1's graph until its first tasks end
python benchmarks/scale_simulated.py --graph whole       # 200,000 rows on real processes

The scheduler and the driver are a process each, and 128 workers share one. A tile takes its time
asleep, so a machine of two cores has 1,024 workers. Every pass is one of the engine: a sum over
tiles of an array (d × r), or the result of every tile. A process's processor time is what it costs,
and a pass by the clock what all three cost together: here the workers share the cores, so it is a
bound from above.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import dask
import numpy as np
import psutil
import scipy.sparse as sp
import typer
from distributed import Client, Worker
from shared import load, table

from bigfs import Matrix, engine
from bigfs.graph import knn
from bigfs.graph.approximate.cost import predict
from bigfs.graph.row_blocks import RowBlock, Step, block_size, compare_pairs

SHAPE = 1000, 10  # of the sum
PER_PROCESS = 128  # workers: they share an event loop and its lock
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.http.routes": [],
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "10s",  # by default 50 checks a second and worker
    "distributed.admin.tick.cycle": "60s",
    "distributed.worker.memory.pause": False,  # a process holds many workers
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
}


@dataclass(frozen=True)
class Tile:
    """A tile that takes a time and holds nothing."""

    start: int
    stop: int
    seconds: float
    place: float = field(compare=False)
    verified: ClassVar[bool] = True


def wait(tile: Tile, V: np.ndarray) -> np.ndarray:
    time.sleep(tile.seconds)
    return V


def wait_alone(tile: Tile, V: np.ndarray) -> float:
    time.sleep(tile.seconds)
    return float(tile.start)


class Pass(NamedTuple):
    """One pass: its clock, and processor milliseconds per tile."""

    kind: str
    workers: int
    tiles: int
    tile_seconds: float
    seconds: float
    scheduler: float
    driver: float
    driver_mb: float

    @property
    def overhead(self) -> float:
        """By how much the pass is longer than its tiles, as a share of them."""
        return self.seconds / (self.tiles / self.workers * self.tile_seconds) - 1


async def host(address: str, names: range) -> None:
    """Run a worker per name in this process, until the scheduler ends."""
    with dask.config.set(QUIET):
        workers = [
            Worker(
                address,
                nthreads=1,
                name=i,
                memory_limit="1GB",
                dashboard=False,
                heartbeat_interval="30s",
            )
            for i in names
        ]
        for first in range(0, len(names), 32):
            await asyncio.gather(*workers[first : first + 32])
        print("ready", flush=True)
        await asyncio.gather(*[worker.finished() for worker in workers])


@contextmanager
def processes(n: int) -> Iterator[tuple[str, psutil.Process]]:
    """Start a scheduler and n workers, each in a process. Give its address and the scheduler."""
    dask_command = Path(sys.executable).with_name("dask")
    file = Path(f"/tmp/bigfs-simulated-{n}.json")
    file.unlink(missing_ok=True)
    options = ["--no-dashboard", "--scheduler-file", file, "--host", "127.0.0.1", "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}  # for the tiles
    quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "env": environment}
    scheduler = subprocess.Popen([dask_command, "scheduler", *map(str, options)], **quiet)
    started = [scheduler]
    try:
        while not file.exists():
            time.sleep(0.1)
        with Client(scheduler_file=file, set_as_default=False) as client:
            address = client.scheduler.address
        hosts = []
        for first in range(0, n, PER_PROCESS):
            names = ["--first", str(first), "--workers", str(min(PER_PROCESS, n - first))]
            command = [sys.executable, __file__, "--address", address, *names]
            hosts.append(subprocess.Popen(command, stdout=subprocess.PIPE, **quiet))
            started.append(hosts[-1])
        for each in hosts:
            each.stdout.readline()
        yield address, psutil.Process(scheduler.pid)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
        file.unlink(missing_ok=True)


def passes(n: int, per_worker: int, times: list[float], repeats: int) -> Iterator[Pass]:
    """Yield the passes of n workers: of each time of a tile, the best of some."""
    from scale_simulated import wait, wait_alone  # by their names, as of a package

    me, tiles = psutil.Process(), n * per_worker
    V = np.zeros(SHAPE)
    with (
        processes(n) as (address, scheduler),
        Client(address, set_as_default=False) as client,
        engine.cluster(client),
    ):
        engine.reduce_tiles(wait, some_tiles(n, 0.0), V)  # connections, imports
        for seconds in times:
            all_tiles = some_tiles(tiles, seconds)
            for kind, compute, fn in (
                ("sum", engine.reduce_tiles, wait),
                ("each", engine.map_tiles, wait_alone),
            ):
                found = []
                for _ in range(repeats):
                    before = [processor(process) for process in (scheduler, me)]
                    start = time.perf_counter()
                    compute(fn, all_tiles, V)
                    clock = time.perf_counter() - start
                    took = [
                        1e3 * (processor(process) - b) / tiles
                        for process, b in zip((scheduler, me), before, strict=True)
                    ]
                    memory = me.memory_info().rss / 1e6
                    found.append(Pass(kind, n, tiles, seconds, clock, *took, memory))
                yield min(found, key=lambda one: one.seconds)


def nothing(*_: Any) -> tuple[int, int]:
    return 0, 0


class FirstTasksEnded(Exception):
    """The first tasks of a graph have ended."""


def plan_graph(workers: list[int]) -> None:
    """Print what the exact graph of RCV1 takes until its first tasks end, with tasks that do
    nothing."""
    from scale_simulated import nothing

    def end(label: str, done: int, total: int) -> None:
        raise FirstTasksEnded

    n, rows = 804_414, []
    for n_workers in workers:
        with (
            processes(n_workers) as (address, scheduler),
            Client(address, set_as_default=False) as client,
            engine.cluster(client),
        ):
            engine.map_tiles(nothing, some_tiles(n_workers, 0.0))  # connections, imports
            processes_here = psutil.Process(), scheduler
            before = [one.memory_info().rss for one in processes_here]
            start = time.perf_counter()
            size = block_size(n, 24 * 10, predict(n, np.full(47_236, n * 76 / 47_236)))
            blocks = [RowBlock(a, min(a + size, n), ()) for a in range(0, n, size)]
            X = SimpleNamespace(local=False, passes=0)
            step = Step(nothing, ())
            try:
                with engine.progress(end):
                    compare_pairs(X, blocks, step, step, step, "neighbors")
            except FirstTasksEnded:
                seconds = time.perf_counter() - start
            more = [
                one.memory_info().rss - b for one, b in zip(processes_here, before, strict=True)
            ]
        tasks = len(blocks) * (len(blocks) + 3) // 2
        rows.append(
            [n_workers, len(blocks), tasks, f"{seconds:.2f}", *(f"{m / 1e6:.0f}" for m in more)]
        )
        print(*rows[-1], flush=True)
    header = ["workers", "blocks", "tasks in all", "s", "driver +MB", "scheduler +MB"]
    table(f"RCV1's graph until its first tasks end; {load()}", header, rows)


@dataclass(frozen=True)
class Rows:
    """Random sparse rows, made where they are loaded."""

    start: int
    stop: int
    verified: ClassVar[bool] = True

    def load(self) -> sp.csr_array:
        rng, n = np.random.default_rng(self.start), self.stop - self.start
        columns = np.sort(rng.integers(0, 4000, (n, 5)) * 5 + np.arange(5), axis=1)
        return sp.csr_array(
            (rng.random(5 * n), columns.ravel().astype(np.int32), np.arange(0, 5 * n + 1, 5)),
            shape=(n, 20_000),
        )


def whole_graph(workers: list[int], n: int) -> None:
    """Print the bits of a graph of n rows, and the processor time of the driver and the scheduler,
    which is in its process, per task."""
    from scale_simulated import Rows

    rows = []
    for n_workers in workers:
        X = Matrix((n, 20_000), rows=[Rows(a, min(a + 4096, n)) for a in range(0, n, 4096)])
        with engine.cluster(workers=n_workers, memory_limit="600MB") as client:
            client.wait_for_workers(n_workers)
            _ = X.stats
            done: list[int] = []
            start, used = time.perf_counter(), time.process_time()
            with engine.progress(partial(lambda done, *step: done.append(step[2]), done)):
                found = knn(X, 10, method="exact")
            seconds, used = time.perf_counter() - start, time.process_time() - used
        bits = hashlib.sha256(found.index.tobytes() + found.distance.tobytes()).hexdigest()[:12]
        rows.append([n_workers, done[-1], f"{seconds:.1f}", f"{1e3 * used / done[-1]:.2f}", bits])
        print(*rows[-1], flush=True)
    header = ["workers", "tasks", "s", "driver and scheduler ms/task", "bits"]
    table(f"An exact graph of {n:,} rows; {load()}", header, rows)


def some_tiles(n: int, seconds: float) -> list[Tile]:
    from scale_simulated import Tile

    return [Tile(i, i + 1, seconds, (i + 0.5) / n) for i in range(n)]


def processor(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def main(
    workers: Annotated[list[int] | None, typer.Option(help="their number, once or more")] = None,
    tiles_per_worker: int = 64,
    seconds: Annotated[list[float] | None, typer.Option(help="of a tile, once or more")] = None,
    repeats: int = 2,
    graph: Annotated[Literal["planned", "whole"] | None, typer.Option(help="and no pass")] = None,
    graph_rows: int = 200_000,
    address: Annotated[str | None, typer.Option(hidden=True)] = None,
    first: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    if address is not None:
        asyncio.run(host(address, range(first, first + (workers or [1])[0])))
        return
    if graph is not None:
        if graph == "planned":
            plan_graph(workers or [2, 32, 256, 1024])
        else:
            whole_graph(workers or [2, 8, 16, 32], graph_rows)
        return
    found: list[Pass] = []
    for n in workers or [64, 256, 1024]:
        # as many tiles per second in all, so that the cores can have all workers
        times = seconds or [n / 8192 * factor for factor in (0.5, 1, 4, 16)]
        for one in passes(n, tiles_per_worker, times, repeats):
            found.append(one)
            print(one, f"overhead {one.overhead:.1%}", flush=True)
    table(
        f"A pass of tiles that only wait; {load()}",
        ["pass", "workers", "tiles", "s/tile", "s", "overhead", "scheduler ms/tile", "driver"],
        [
            [
                one.kind,
                f"{one.workers:,}",
                f"{one.tiles:,}",
                f"{one.tile_seconds:.3f}",
                f"{one.seconds:.1f}",
                f"{one.overhead:.0%}",
                f"{one.scheduler:.3f}",
                f"{one.driver:.3f}",
            ]
            for one in found
        ],
    )


if __name__ == "__main__":
    typer.run(main)
