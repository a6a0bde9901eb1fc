"""The finished cells of an experiment: a text file, one line per cell.

The fields of a line are separated by tabs: data, method, parameters, repetition, and then one
`metric=number number …` per metric. The last one, `made=commit date`, tells which version of the
program made the cell; the cells before 2026-11-25 have none. A line without its end was cut off and
does not count.

`python -m benchmarks.papers --stale` lists cells that are older than their code. Delete
such lines, and the next run makes them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigfs.settings import Setting

FOLDER = Setting(Path(__file__).parent / "results")

Values = Mapping[str, Any]  # metric → its numbers, one per point of the curve


class Key(NamedTuple):
    """What a cell is of."""

    data: str
    method: str
    parameters: str  # "p=0.5 gamma=1", or "" where there are none
    repetition: int


class Results:
    """The cells of one experiment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[Key, dict[str, np.ndarray]] = {}
        self.made: dict[Key, str] = {}  # commit and date
        if not path.exists():
            return
        lines = path.read_text().split("\n")
        for number, line in enumerate(lines[:-1], start=1):  # the last one has no end
            try:
                key, values, made = parse(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            self.cells[key], self.made[key] = values, made
        if lines[-1]:
            self.sort()

    def __contains__(self, key: Key) -> bool:
        return key in self.cells

    def __len__(self) -> int:
        return len(self.cells)

    def add(self, key: Key, values: Values, made: str = "") -> None:
        """Add a finished cell to the file."""
        line = write(key, values, made)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(line + "\n")
        self.cells[key], self.made[key] = parse(line)[1:]

    def sort(self) -> None:
        """Write the file anew, in the order of the keys, where that changes it."""
        text = "".join(
            write(key, self.cells[key], self.made[key]) + "\n" for key in sorted(self.cells)
        )
        if text and (not self.path.exists() or text != self.path.read_text()):
            part = self.path.with_suffix(".part")
            part.write_text(text)
            part.replace(self.path)

    def runs(
        self, metric: str, data: str, method: str, keep: Callable[[str], bool] | None = None
    ) -> dict[str, dict[int, np.ndarray]]:
        """Return the curves of a method: parameters → repetition → the numbers of the metric."""
        found: dict[str, dict[int, np.ndarray]] = {}
        for key in sorted(self.cells):
            wanted = key[:2] == (data, method) and metric in self.cells[key]
            if wanted and (keep is None or keep(key.parameters)):
                curves = found.setdefault(key.parameters, {})
                curves[key.repetition] = self.cells[key][metric]
        return found

    def complete(
        self, data: str, cells: int, keep: Callable[[str], bool] | None = None
    ) -> set[int]:
        """Return the repetitions that have so many cells of the data, of the parameters kept."""
        counts = Counter(
            key.repetition
            for key in self.cells
            if key.data == data and (keep is None or keep(key.parameters))
        )
        return {repetition for repetition, count in counts.items() if count == cells}

    def complete_runs(
        self,
        metric: str,
        data: str,
        method: str,
        cells: int,
        keep: Callable[[str], bool] | None = None,
    ) -> dict[str, dict[int, np.ndarray]]:
        """Return what `runs` returns, of the repetitions with so many cells of the data alone."""
        whole = self.complete(data, cells)
        return {
            parameters: {r: curve for r, curve in curves.items() if r in whole}
            for parameters, curves in self.runs(metric, data, method, keep).items()
        }

    def datasets(self) -> list[str]:
        """Return the names of the data that have cells."""
        return sorted({key.data for key in self.cells})

    def methods(self, data: str) -> list[str]:
        """Return the names of the methods that have cells of the data."""
        return sorted({key.method for key in self.cells if key.data == data})


@lru_cache
def _printed(paper: str) -> Results:
    return Results(Path(__file__).parent / "printed" / f"{paper}.tsv")


def printed(paper: str, data: str, method: str, parameters: str = "") -> list[float]:
    """Return the numbers that a paper prints of a method, none where it prints none."""
    values = _printed(paper).cells.get(Key(data, method, parameters, 0), {})
    return [float(number) for number in values.get("printed", ())]


def write(key: Key, values: Values, made: str = "") -> str:
    """Return the line of a cell."""
    if not values:
        raise ValueError(f"no values for {key}: a cell needs at least one metric")
    if any("\t" in str(field) or "\n" in str(field) for field in key):
        raise ValueError(f"a tab or a line end in {key}: use other names")
    fields = [
        f"{metric}={' '.join(f'{number:.5g}' for number in np.atleast_1d(values[metric]))}"
        for metric in sorted(values)
    ]
    return "\t".join([*map(str, key), *fields, *([f"made={made}"] if made else [])])


def parse(line: str) -> tuple[Key, dict[str, np.ndarray], str]:
    """Return the key, the values and the origin of a line."""
    data, method, parameters, repetition, *fields = line.split("\t")
    texts = dict(field.split("=", 1) for field in fields)
    made = texts.pop("made", "")
    values = {metric: np.array(numbers.split(), dtype=float) for metric, numbers in texts.items()}
    return Key(data, method, parameters, int(repetition)), values, made


def settings(parameters: str) -> dict[str, str]:
    """Return the parameters of a cell by their names."""
    return dict(pair.split("=", 1) for pair in parameters.split())
