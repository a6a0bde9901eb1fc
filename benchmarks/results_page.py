"""Check benchmarks/RESULTS.md: its length, and of each row the cells, the date and the command.

python benchmarks/results_page.py
"""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "RESULTS.md"
MOST_LINES = 300
HEAD = ("what", "on what", "figure", "peer or limit (ratio)", "date", "command")


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
    lines, found = text.splitlines(), []
    if len(lines) > MOST_LINES:
        found.append(f"{len(lines)} lines, and at most {MOST_LINES} are allowed")
    for number, line in enumerate(lines, start=1):
        if not line.startswith("|") or set(line) <= set("| -:"):
            continue
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if cells == HEAD:
            continue
        if len(cells) != len(HEAD) or not all(cells):
            found.append(f"line {number}: {len(list(filter(None, cells)))} cells in place of six")
            continue
        try:
            if date.fromisoformat(cells[4]) > (today or date.today()):
                found.append(f"line {number}: {cells[4]} has not come yet")
        except ValueError:
            found.append(f"line {number}: the date is {cells[4]!r}, expected YYYY-MM-DD")
        command = re.fullmatch(r"`([^`]+)`", cells[5])
        if command is None:
            found.append(f"line {number}: no command in backticks")
        elif unknown := unknown_command(command[1]):
            found.append(f"line {number}: {unknown} is not there")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(problems(PAGE.read_text())) or None)
