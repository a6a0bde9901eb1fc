"""Terminal output: progress bars per step of a stage, a line per solver, tables of results."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Column, Table

from bigfs.engine.display import progress
from bigfs.flows.messages import notes, printable
from bigfs.flows.options import ClusterOptions

WIDE = 1_000_000  # columns of a stream that is no terminal, where nothing is wrapped

state: dict[str, bool] = {"debug": False, "quiet": False}


def show(item: RenderableType) -> None:
    """Print a table or a text: as wide as the terminal, or without any wrapping and blanks at the
    ends of lines where a program or a file takes it.
    """
    if sys.stdout.isatty():
        # paths, names and labels are printed as they are
        Console(markup=False, emoji=False, highlight=False).print(item)
        return
    text = StringIO()
    Console(file=text, width=WIDE, markup=False, emoji=False, highlight=False).print(item)
    print(*(line.rstrip() for line in text.getvalue().splitlines()), sep="\n")


def readable(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(readable, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(item)}" for name, item in value.items()) or "–"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:.4g}"
        if isinstance(value, float)
        else printable(str(value))
    )


@contextlib.contextmanager
def show_progress(as_json: bool, first: str | None = None) -> Iterator[None]:
    """Show progress on stderr inside the block, unless the command prints JSON or is quiet. A
    log of JSON lines goes with a result in JSON.

    `first` names what happens before the first step. Its line ends there.
    """
    for_programs = notes["json"]
    is_silent = state["quiet"] or (as_json and not for_programs)
    with contextlib.nullcontext() if is_silent else progress(first=first, as_json=for_programs):
        yield


@contextlib.contextmanager
def cluster_and_progress(engine: ClusterOptions, as_json: bool) -> Iterator[None]:
    """Start or reach the cluster of `engine` for the block, and show progress."""
    with engine.start(), show_progress(as_json):
        yield


def print_json(record: Any) -> None:
    from bigfs.storage.runs.metadata import strict_json

    print(strict_json(record))


def print_record(record: dict[str, Any], as_json: bool, text: str) -> None:
    print_json(record) if as_json else print_lines(text.splitlines())


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line))


def print_rows(rows: Sequence[Sequence[str]], n_texts: int = 1, *, head: bool = True) -> None:
    """Print rows of text, the head first. The first columns are texts, the others numbers."""
    names, body = (rows[0], rows[1:]) if head else ([""] * len(rows[0]), rows)
    columns = [
        Column(name, no_wrap=i != 1, overflow="fold", justify="left" if i < n_texts else "right")
        for i, name in enumerate(names)
    ]
    table = Table(*columns, box=None, pad_edge=False, show_header=head)
    for cells in body:
        table.add_row(*map(printable, cells))
    show(table)


def print_run(path: str, as_json: bool) -> None:
    from bigfs.flows.report.summary import (
        choice_rows,
        choice_text,
        score_table,
        status_text,
        verdict_text,
    )
    from bigfs.storage.runs.runs import Run

    about = Run.open(path).metadata
    if as_json:
        print_json({"run": path, **about})
        return
    method, scores = about["parameters"]["method"], score_table(about)
    lines: list[str] = []
    if scores is not None:
        print_rows(scores["text"], n_texts=len(scores["text"][0]))
        if scores["all"]:
            lines.append(f"all {scores['all'][0]:,} features  {scores['all'][1]}")
    lines += [about["evaluation"]] if "evaluation" in about else []
    print_lines(lines)
    if (choice := about.get("choice")) is not None:
        if chosen := choice_rows(choice):
            print_rows(chosen)
        print_lines([f"{method}: {choice_text(choice)}"])
    report = f"report: {Path(path) / 'report.html'}"
    print_lines([f"{method}: {status_text(about)}", report, verdict_text(about)])
