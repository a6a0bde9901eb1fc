"""Progress for people: a bar for each stage's tiles, a line for each method's steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from bigfs import blocks
from bigfs.result import Record, observed


@contextlib.contextmanager
def shown(enabled: bool = True) -> Iterator[None]:
    """Show on stderr what `bigfs` does inside the block."""
    if not enabled:
        yield
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(min_width=16, no_wrap=True)),
        BarColumn(bar_width=16),
        MofNCompleteColumn(table_column=Column(min_width=7, no_wrap=True)),
        TimeElapsedColumn(table_column=Column(min_width=7, no_wrap=True)),
        TextColumn("{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True, ratio=1)),
    )
    with Progress(*columns, console=Console(stderr=True, markup=False, emoji=False)) as display:
        rows: dict[str, TaskID] = {}

        def row(name: str, total: float | None) -> TaskID:
            if name not in rows:
                rows[name] = display.add_task(name, total=total, detail="")
            return rows[name]

        def tiles(label: str, done: int, total: int) -> None:
            display.update(row(label, total), completed=done, total=total)

        def steps(name: str, record: Record) -> None:
            detail = "  ".join(f"{k} {v:.4g}" for k, v in record.items())
            display.update(row(name, None), advance=1, detail=detail)

        with blocks.progress(tiles), observed(callback=steps):
            yield
