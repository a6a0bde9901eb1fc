"""Names and keys of runs, by which the results of earlier ones are found again.

It imports neither Prefect nor scikit-learn, so a command that has nothing to do ends at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bigfs
from bigfs import flows, storage
from bigfs.result import Status
from bigfs.storage.errors import redact
from bigfs.storage.runs.checkpoints import digest
from bigfs.storage.runs.runs import Run, RunError

COMPUTING = ("numpy", "scipy", "scikit-learn")


def source_name(source: str) -> str:
    """Return a file name for a source: the last part of its path without suffixes."""
    name = redact(source).removesuffix("?…").rstrip("/").rsplit("/", 1)[-1]
    for suffix in (".gz", ".bz2", ".xz", ".zip", ".tar", ".tgz", ".svm", ".libsvm", ".txt"):
        name = name.removesuffix(suffix)
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "corpus"


def is_reported(run: Run) -> bool:
    """Return whether a run is finished and has its report."""
    return not run.unfinished and run.holds("report.html")


def is_selected(run: Run) -> bool:
    """Return whether a run has its selection. One that ended for lack of memory is made again."""
    has_status = run.metadata.get("status", Status.MEMORY) != Status.MEMORY
    return has_status and run.holds("selected.csv", "scores.npy", "classes.csv", "columns.npz")


def is_scored(run: Run, scoring: Mapping[str, Any]) -> bool:
    """Return whether a run has its curves, by these choices of the scoring."""
    same = "curves" in run.metadata and run.metadata.get("scoring", {}) == dict(scoring)
    return same and run.holds("curves.csv", "model.npz")


def find_run(out: str, key: str | None = None) -> Run | None:
    """Return the run at `out`, unfinished or finished, or None. With a key, only the run of it."""
    for open_run in (Run.open_unfinished, Run.open):
        with contextlib.suppress(RunError):
            run = open_run(out)
            if key is None or run.metadata.get("key") == key:
                return run
    return None


def content_key(*parts: Any) -> str:
    """Return the key of a result: a hash of its inputs and of the program."""
    return digest([*parts, source_hash()])[:24]


@cache
def source_hash() -> str:
    """Hash the source of the packages and the versions of those that compute, so that a changed
    program never reuses the results of an old one.
    """
    source = hashlib.sha256(repr([version(name) for name in COMPUTING]).encode())
    for package in (bigfs, storage, flows):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            source.update(file.read_bytes())
    return source.hexdigest()
