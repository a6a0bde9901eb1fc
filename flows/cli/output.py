"""Terminal output: progress bars per step of a stage, a line per solver, tables of results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bigfs.flows.messages import notes, shown
from bigfs.flows.options import Engine
from rich.console import Console
from rich.table import Column, Table

from bigfs.engine.display import progress

out_console = Console(markup=False, emoji=False)  # paths, names and labels are printed as they are


state: dict[str, bool] = {"debug": False, "quiet": False}


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
        else shown(str(value))
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
def cluster_and_progress(engine: Engine, as_json: bool) -> Iterator[None]:
    """Start or reach the cluster of `engine` for the block, and show progress."""
    with engine.start(), show_progress(as_json):
        yield


def print_record(record: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        from bigfs.storage.runs.metadata import strict_json

        print(strict_json(record))
    else:
        out_console.print(text, highlight=False, soft_wrap=True)


def print_rows(rows: list[list[str]], n_texts: int = 1) -> None:
    """Print rows of text, the head first. The first columns are texts, the others numbers."""
    head, *body = rows
    columns = [
        Column(name, no_wrap=i != 1, overflow="fold", justify="left" if i < n_texts else "right")
        for i, name in enumerate(head)
    ]
    table = Table(*columns, box=None, pad_edge=False)
    for cells in body:
        table.add_row(*map(shown, cells))
    out_console.print(table)


def print_run(path: str, as_json: bool) -> None:
    from bigfs.flows.report.summary import (
        choice_rows,
        choice_text,
        metric_names,
        score_table,
        status_text,
    )
    from bigfs.storage.runs.metadata import strict_json
    from bigfs.storage.runs.runs import Run

    run = Run.open(path)
    if as_json:
        print(strict_json({"run": path, **run.metadata}))
        return
    scores = score_table(run.metadata)
    if scores is not None:
        table = Table(
            f"{metric_names(run.metadata)} with",
            *(Column(f"{k:,}", no_wrap=True) for k in scores["counts"]),
            box=None,
            pad_edge=False,
        )
        for name, values in scores["rows"]:
            table.add_row(name, *values)
        out_console.print(table)
        if scores["all"]:
            out_console.print(
                f"all {scores['all'][0]:,} features  {scores['all'][1]}", highlight=False
            )
    if "evaluation" in run.metadata:
        out_console.print(run.metadata["evaluation"], highlight=False, markup=False, soft_wrap=True)
    if (choice := run.metadata.get("choice")) is not None:
        if rows := choice_rows(choice):
            print_rows(rows)
        out_console.print(
            f"{run.metadata['parameters']['method']}: {choice_text(choice)}",
            highlight=False,
            soft_wrap=True,
        )
    out_console.print(
        f"{run.metadata['parameters']['method']}: {status_text(run.metadata)}",
        highlight=False,
        soft_wrap=True,
    )
    out_console.print(f"report: {Path(path) / 'report.html'}", highlight=False, soft_wrap=True)
