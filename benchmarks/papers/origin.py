"""Which commit made a cell, and which cells are older than the code that they depend on."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from bigfs.selectors.registry import MODULES

if TYPE_CHECKING:
    from benchmarks.papers.experiments import Experiment

ROOT = Path(__file__).parents[2]
UNKNOWN = "before 2026-11-25"
# they decide where and when something is computed, not what
ASIDE = ("bigfs.engine", "bigfs.plot", "bigfs.__init__")


def git(*words: str) -> str:
    """Return what git prints."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def now() -> str:
    """Return the commit and the date of today. A plus: the methods are not as in the commit.

    Outside a checkout, as in a source distribution, the commit is unknown.
    """
    if not (ROOT / ".git").exists():
        return f"unknown {date.today()}"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "bigfs")
    return f"{git('rev-parse', '--short=7', 'HEAD')}{'+' * bool(changed)} {date.today()}"


def path_of(module: str) -> Path | None:
    """Return the file of a module of the repository."""
    stem = ROOT.joinpath(*module.split("."))
    return next((p for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.exists()), None)


def public(package: str, name: str) -> str:
    """Return the module of a name, which for the selectors of `bigfs` is another one."""
    if package == "bigfs" and name in MODULES:
        return f"bigfs.selectors.{MODULES[name]}"
    return f"{package}.{name}"


def imported(path: Path) -> Iterator[str]:
    """List the modules that a file imports, and the modules of the public names `bigfs.NAME`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield public(node.module, alias.name)
            if node.module != "bigfs":
                yield node.module
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield public(node.value.id, node.attr)


def depends_on(experiment: Experiment) -> list[str]:
    """Return the files that decide what an experiment's cells are."""
    function = getattr(experiment.cells, "func", experiment.cells)
    waiting: list[str] = [function.__module__]
    seen: set[Path] = set()
    while waiting:
        module = waiting.pop()
        path = path_of(module)
        is_own = module.startswith(("bigfs.", "benchmarks.")) and not module.startswith(ASIDE)
        if path is None or not is_own or path in seen:
            continue
        seen.add(path)
        waiting += imported(path)
    return sorted(str(path.relative_to(ROOT)) for path in seen)


def line(experiments: Sequence[Experiment]) -> str:
    """Return a sentence about when the cells were made, and by which commits."""
    counts = Counter(made or UNKNOWN for e in experiments for made in e.results().made.values())
    days = ", ".join(f"{count} {made}" for made, count in sorted(counts.items()))
    return f"Cells by the commit that made them: {days}." if days else "Not run yet."


def stale(experiments: Sequence[Experiment]) -> list[tuple[str, ...]]:
    """List experiment, data, origin, cells, and how many later commits changed their code."""
    rows = []
    for experiment in experiments:
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for key, made in experiment.results().made.items():
            counts[key.data, made or UNKNOWN] += 1
        files = depends_on(experiment)
        for (data, made), cells in sorted(counts.items()):
            later = "unknown"
            commit = made.split()[0].rstrip("+")
            if commit not in (UNKNOWN.split()[0], "unknown"):
                later = str(len(git("log", "--format=%h", f"{commit}..", "--", *files).split()))
            rows.append((experiment.name, data, made, str(cells), later))
    return rows
