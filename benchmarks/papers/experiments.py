"""What an experiment is, the data, and the loop over the cells that are not finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sklearn import config_context

from benchmarks import data as sets
from benchmarks.papers import origin, results
from benchmarks.papers.results import Key, Results, Values


class Cell(NamedTuple):
    """A cell that can be computed."""

    method: str
    parameters: str
    compute: Callable[[], Values]


class Experiment(NamedTuple):
    """An experiment. `cells` lists the cells of a folder, a name of data and a repetition."""

    name: str  # of its file of results
    data: tuple[str, ...]
    repetitions: int  # as many as the paper has
    cells: Callable[[Path, str, int], Iterable[Cell]]
    files: tuple[str, ...] | None = None  # what it reads; None: the files of each data set

    def results(self) -> Results:
        """Return the finished cells, to be read only."""
        path = results.FOLDER.value / f"{self.name}.tsv"
        return _read(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=64)
def _read(path: Path, changed: int) -> Results:
    return Results(path)


def run(
    experiments: Sequence[Experiment],
    folder: Path,
    *,
    repetitions: int | None = None,
    seconds: float | None = None,
    say: Callable[[str], Any] = print,
) -> int:
    """Compute the cells that are not finished, the first repetition of everything first."""
    begin, computed, made = time.monotonic(), 0, origin.now()
    stores = {e.name: Results(results.FOLDER.value / f"{e.name}.tsv") for e in experiments}
    try:
        for repetition in range(max((e.repetitions for e in experiments), default=0)):
            for e in experiments:
                if repetition >= min(e.repetitions, repetitions or e.repetitions):
                    continue
                for data in e.data:
                    needed = sets.files(data) if e.files is None else e.files
                    if not all((folder / file).exists() for file in needed):
                        continue
                    start, before = time.monotonic(), computed
                    for cell in e.cells(folder, data, repetition):
                        key = Key(data, cell.method, cell.parameters, repetition)
                        if key in stores[e.name]:
                            continue
                        if seconds is not None and time.monotonic() - begin > seconds:
                            return computed
                        with config_context(assume_finite=True, skip_parameter_validation=True):
                            stores[e.name].add(key, cell.compute(), made)
                        computed += 1
                    if computed > before:
                        say(
                            f"{e.name}, {data}, repetition {repetition}: {computed - before} cells "
                            f"in {time.monotonic() - start:.0f} s"
                        )
    finally:
        for store in stores.values():
            store.sort()
    return computed
