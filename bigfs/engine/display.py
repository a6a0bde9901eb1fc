"""Progress bars in a terminal or a notebook, and lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Any

import orjson

from bigfs import engine
from bigfs.result import Record, observe

SILENCE = 30.0  # seconds of work after which a log gets another line


@contextlib.contextmanager
def progress(*, first: str | None = None, as_json: bool = False) -> Iterator[None]:
    """Show progress inside the block, in a notebook or on standard error.

    A step over tiles or folds has a bar, and a solver has a line with its step and its gap. Where
    standard error is no terminal, such as in a log, a line says when each of them begins and ends,
    and how far it is after half a minute without a line.

    Parameters
    ----------
    first : str or None, default=None
        Name of what happens before the first step. Its line ends there.
    as_json : bool, default=False
        Whether to write lines for programs, also in a terminal: a JSON object each, with `time`,
        `step`, `event` ("begins", "works" or "ends"), `seconds` since the beginning of the block,
        and the numbers of a solver.

    Yields
    ------
    None
        Nothing.

    See Also
    --------
    bigfs.result.observe : Call a function at each step of a solver.

    Examples
    --------
    >>> import bigfs
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> with bigfs.progress():
    ...     selector = bigfs.SparGE(n_features_to_select=2).fit(X, y)
    >>> selector.selected_
    array([2, 1])
    """
    if as_json:
        with _lines(as_json):
            yield
        return
    from rich.console import Console  # most programs show no bars
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.table import Column

    console = Console(stderr=True, markup=False, emoji=False)
    # rich draws bars in Jupyter by ipywidgets, which no other part of bigfs needs
    is_notebook = console.is_jupyter and find_spec("ipywidgets") is not None
    if not (is_notebook or (console.is_terminal and not console.is_jupyter)):
        with _lines():
            yield
        return
    columns = (
        SpinnerColumn(),
        TextColumn(
            "{task.description}", markup=False, table_column=Column(min_width=16, no_wrap=True)
        ),
        BarColumn(bar_width=16),
        MofNCompleteColumn(table_column=Column(min_width=7, no_wrap=True)),
        TimeElapsedColumn(table_column=Column(min_width=7, no_wrap=True)),
        TextColumn(
            "{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True, ratio=1)
        ),
    )
    with Progress(*columns, console=console) as display:
        rows: dict[str, TaskID] = {}
        waiting = [display.add_task(first, total=None, detail="")] if first else []

        def get_row(name: str, total: float | None) -> TaskID:
            if name not in rows:
                while waiting:
                    display.update(waiting.pop(), completed=1, total=1)
                rows[name] = display.add_task(name, total=total, detail="")
            return rows[name]

        def show_tiles(label: str, done: int, total: int) -> None:
            display.update(get_row(label, total), completed=done, total=total)

        def show_step(name: str, record: Record) -> None:
            detail = "  ".join(f"{k} {v:.4g}" for k, v in record.items())
            display.update(get_row(name, None), advance=1, detail=detail)

        with engine.progress(show_tiles), observe(callback=show_step):
            yield


def json_line(**facts: Any) -> str:
    """Return a line of a log for programs: the time and the facts as a JSON object."""
    line = {"time": datetime.now().astimezone().isoformat(timespec="milliseconds"), **facts}
    return orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY).decode()


@contextlib.contextmanager
def _lines(as_json: bool = False) -> Iterator[None]:
    """Write a line where a step or a solver of the block begins or ends, or works for long."""
    began, last = time.monotonic(), dict[str, float]()
    solvers, ended = dict[str, Record](), set[str]()

    def write(name: str, event: str, **numbers: float) -> None:
        last[name] = time.monotonic()
        seconds = last[name] - began
        if as_json:
            line = json_line(step=name, event=event, seconds=round(seconds, 3), **numbers)
        else:
            words = "  ".join(f"{k} {v:.4g}" for k, v in numbers.items())
            if "total" in numbers:
                words = f"{numbers['done']} of {numbers['total']}"
            if event != "works":
                words = f"{event} with {words}" if words else event
            line = f"{timedelta(seconds=round(seconds))} {name}: {words}"
        print(line, file=sys.stderr, flush=True)

    def is_due(name: str) -> bool:
        return time.monotonic() - last[name] > SILENCE

    def show_tiles(label: str, done: int, total: int) -> None:
        if label not in last:
            write(label, "begins")
        if done < total and is_due(label):
            write(label, "works", done=done, total=total)
        elif done == total and (label not in ended or is_due(label)):
            ended.add(label)
            write(label, "ends")

    def show_step(name: str, record: Record) -> None:
        solvers[name] = record
        if name not in last:
            write(name, "begins")
        elif is_due(name):
            write(name, "works", **record)

    with engine.progress(show_tiles), observe(callback=show_step):
        yield
    for name, record in solvers.items():
        write(name, "ends", **record)
