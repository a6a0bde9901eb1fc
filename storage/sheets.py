"""CSV that a spreadsheet can open safely: no text in it is taken for a formula.

A spreadsheet evaluates a cell that starts with one of ``= + - @``, a tab or a carriage return. Text
that starts so gets an apostrophe before it. Some spreadsheets split a line at semicolons or tabs,
even inside quotes, so the same holds after a semicolon, a tab or a line end inside a text. So that
`read` can remove the apostrophes and return exactly the text that was written, an apostrophe at
such a place gets another one. Numbers stay as they are.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# the start of a cell, in whatever way a spreadsheet splits the line
CELL = r"(?<![^;\t\r\n])"
MARKED = re.compile(CELL + r"(?=[=+\-@\t\r＝＋－＠'])" + r'|(?<=[;\t\r\n])(?=")')
MARK = re.compile(CELL + "'")


def write(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table as CSV.

    Parameters
    ----------
    file : Path
        The file to write. It is overwritten.
    header : sequence of str
        The names of the columns.
    rows : iterable of sequences
        The cells of each row.
    """
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow([_marked(name) for name in header])
        writer.writerows([_marked(cell) for cell in row] for row in rows)


def read(file: Path, *, marked: bool = True) -> Iterator[dict[str, str]]:
    """Read a table that `write` wrote.

    Parameters
    ----------
    file : Path
        The CSV file.
    marked : bool, default=True
        Whether the file has the apostrophes of `write`. Versions before them wrote none.

    Yields
    ------
    dict
        The cells of a row by the names of the columns.

    Raises
    ------
    ValueError
        A row has more or fewer cells than the header.
    csv.Error
        The file is no CSV.
    """
    with file.open(newline="", encoding="utf-8") as opened:
        rows = (
            [MARK.sub("", cell) if marked else cell for cell in row]
            for row in csv.reader(opened, strict=True)
        )
        header = next(rows, [])
        for row in rows:
            yield dict(zip(header, row, strict=True))


def _marked(cell: Any) -> Any:
    if isinstance(cell, int | float | np.number) or cell is None:
        return cell
    return MARKED.sub("'", str(cell))
