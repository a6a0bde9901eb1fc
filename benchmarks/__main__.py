"""The figures of benchmarks/RESULTS.md, and the commands that measure them.

python -m benchmarks list                    # how old the rows of each command are
python -m benchmarks check                   # what is wrong with the page
python -m benchmarks run 'knn.py exact'      # measure, and write the rows of a command of the page

A script prints its rows by `benchmarks.shared.row`. A row takes the place of the one with its first
two cells, or comes after the last row of the command. DATA and FOLDER stand for folders.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.shared import ROOT, ROW, table
from bigfs.settings import Setting

PAGE = Setting(ROOT / "benchmarks" / "RESULTS.md")
MOST_LINES = 300
MOST_LOAD = 0.5  # processes that may run beside a measurement
HEAD = ("what", "on what", "figure", "peer or limit (ratio)", "date", "command")
app = typer.Typer(help=__doc__, add_completion=False)


def rows_of(text: str) -> list[tuple[int, list[str]]]:
    """Return the number of the line and the cells of each row of the page."""
    rows = []
    for number, line in enumerate(text.splitlines()):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and not set(line) <= set("| -:") and tuple(cells) != HEAD:
            rows.append((number, cells))
    return rows


# --- measuring ------------------------------------------------------------------------------------


def words_of(command: str, data: Path, folder: Path) -> list[str]:
    """Return the words by which a command of the page is called."""
    places = {"DATA": str(data), "FOLDER": str(folder)}
    first, *others = [places.get(word, word) for word in shlex.split(command)]
    if first.endswith(".py"):
        return [sys.executable, str(ROOT / "benchmarks" / first), *others]
    if first in ("python", "pytest"):
        return [sys.executable, *(["-m", "pytest"] if first == "pytest" else []), *others]
    return [first, *others]


def written(text: str, command: str, found: Sequence[str], made: str) -> str:
    """Return the page with the rows that a command printed, each of four cells."""
    lines = text.splitlines()
    for row in found:
        ours = [(n, cells) for n, cells in rows_of("\n".join(lines)) if cells[-1] == f"`{command}`"]
        line = f"| {row} | {made} | `{command}` |"
        same = [n for n, cells in ours if cells[:2] == [c.strip() for c in row.split("|")][:2]]
        at = same[0] if same else ours[-1][0] + 1
        lines[at : at + len(same[:1])] = [line]
    return "\n".join(lines) + "\n"


@app.command()
def run(
    command: Annotated[str, typer.Argument(help="As in the last column of the page.")],
    data: Annotated[Path, typer.Option(help="What DATA stands for.")] = ROOT / "data",
    folder: Annotated[Path, typer.Option(help="What FOLDER stands for.")] = Path("benchmarked"),
) -> None:
    """Measure, and write the rows of a command of the page."""
    if all(cells[-1] != f"`{command}`" for _, cells in rows_of(PAGE.value.read_text())):
        sys.exit(
            f"{command} is no command of {PAGE.value.name}: add a row with it, and – as its figure"
        )
    git = [["git", "-C", str(ROOT), *words] for words in (["diff", "HEAD"], ["rev-parse", "HEAD"])]
    changed, commit = (subprocess.run(w, capture_output=True, check=True).stdout for w in git)
    if changed:
        sys.exit("there are changes: commit them first, as the rows name the commit")
    if (load := os.getloadavg()[0]) > MOST_LOAD:
        sys.exit(f"other work is on this machine (load {load:.1f}): wait until it has ended")
    found = []
    with subprocess.Popen(words_of(command, data, folder), stdout=subprocess.PIPE, text=True) as it:
        for line in it.stdout or ():
            print(line, end="", flush=True)
            found += [line.removeprefix(ROW).strip()] if line.startswith(ROW) else []
    if it.returncode or not found:
        sys.exit(f"nothing is written: {command} ended with {it.returncode}, {len(found)} rows")
    made = f"{date.today()} {commit.decode()[:8]}"
    PAGE.value.write_text(written(PAGE.value.read_text(), command, found, made))


@app.command(name="list")
def list_ages() -> None:
    """Show how old the rows of each command are, the oldest first."""
    ages: dict[str, list[str]] = {}
    for _, cells in rows_of(PAGE.value.read_text()):
        ages.setdefault(cells[-1].strip("`"), []).append(cells[4])
    rows = []
    for command, dates in sorted(ages.items(), key=lambda item: min(item[1])):
        day, *commit = min(dates).split()
        days = (date.today() - date.fromisoformat(day)).days
        rows.append([command, len(dates), f"{days} days", *(commit or ["by hand"])])
    table("Figures by age", ["command", "rows", "age", "commit"], rows)


# --- the check ------------------------------------------------------------------------------------


def unknown_command(command: str) -> str:
    """Return what a command names that is not there, or nothing."""
    first, *others = command.split()
    if first.endswith(".py"):
        file = ROOT / "benchmarks" / first
        word = re.match(r"[a-z][a-z-]*$", others[0]) if others else None
        if not file.exists() or (word and word[0] not in file.read_text().replace("_", "-")):
            return f"{first} {word[0] if word else ''}".strip()
        return ""
    places = {
        "python": [
            package if (package := stem / "__main__.py").exists() else stem.with_suffix(".py")
            for module in others[1:2]
            for stem in [ROOT.joinpath(*module.split("."))]
        ],
        "pytest": [ROOT / other for other in others],
        "make": [ROOT / "Makefile"],
        "bigfs": [ROOT / "flows" / "cli"],
    }
    missing = [str(place) for place in places.get(first, [ROOT / first]) if not place.exists()]
    return ", ".join(missing)


def problems(text: str, today: date | None = None) -> list[str]:
    """Return the faults of the page, a line each."""
    found = []
    if (count := len(text.splitlines())) > MOST_LINES:
        found.append(f"{count} lines, and at most {MOST_LINES} are allowed")
    for number, cells in rows_of(text):
        where = f"line {number + 1}"
        if len(cells) != len(HEAD) or not all(cells):
            found.append(f"{where}: {len(list(filter(None, cells)))} cells in place of six")
            continue
        made = re.fullmatch(r"(\d{4}-\d\d-\d\d)( [0-9a-f]{8})?", cells[4])
        if made is None:
            found.append(f"{where}: the date is {cells[4]!r}, expected YYYY-MM-DD and a commit")
        elif date.fromisoformat(made[1]) > (today or date.today()):
            found.append(f"{where}: {cells[4]} has not come yet")
        command = re.fullmatch(r"`([^`]+)`", cells[5])
        if command is None:
            found.append(f"{where}: no command in backticks")
        elif unknown := unknown_command(command[1]):
            found.append(f"{where}: {unknown} is not there")
    return found


@app.command()
def check() -> None:
    """Say what is wrong with the page."""
    sys.exit("\n".join(problems(PAGE.value.read_text())) or None)


if __name__ == "__main__":
    app()
