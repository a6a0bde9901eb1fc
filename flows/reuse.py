"""Names and keys of runs, by which the results of earlier ones are found again.

It imports neither Prefect nor scikit-learn, so a command that has nothing to do ends at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import bigfs
import flows
import storage
from bigfs.result import Status
from storage.errors import redacted
from storage.runs import Run, RunError


def default_out(source: str, method: str, features: int | str) -> str:
    return str(Path("runs") / f"{source_name(source)}-{method}-{features}")


def source_name(source: str) -> str:
    """Return a file name for a source: the last part of its path without suffixes."""
    name = redacted(source).removesuffix("?…").rstrip("/").rsplit("/", 1)[-1]
    for suffix in (".gz", ".bz2", ".xz", ".zip", ".tar", ".tgz", ".svm", ".libsvm", ".txt"):
        name = name.removesuffix(suffix)
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "corpus"


def is_done(
    source: str,
    store: str | None,
    out: str,
    method: str,
    features: int | str,
    parameters: dict[str, Any],
    settings: dict[str, Any],
    scoring: Mapping[str, Any] | None = None,
) -> bool:
    """Return whether the run at `out` is finished, and of this source and these choices.

    The source is looked at only if there is such a run.
    """
    try:
        run = Run.open(out)
    except RunError:
        return False
    if not is_whole(run):
        return False
    from storage.staging.plan import is_staged, make_plan  # not needed before the first run

    plan = make_plan(source, store, **settings)
    if not is_staged(plan):
        return False
    key = selection_key(plan.key, plan.uri, out, method, features, parameters, scoring or {})
    found = find_run(out, key)
    return found is not None and is_whole(found) and is_scored(found, scoring or {})


def is_whole(run: Run) -> bool:
    """Return whether a run is finished and has its selection, its scores and its report."""
    has_report = (run.path / "report.html").exists()
    return run.path == run.final and is_selected(run) and "curves" in run.metadata and has_report


def is_selected(run: Run) -> bool:
    """Return whether a run has its selection. One that ended for lack of memory is made again."""
    return bool(run.metadata.get("status", Status.MEMORY) != Status.MEMORY)


def is_scored(run: Run, scoring: Mapping[str, Any]) -> bool:
    """Return whether a run has its curves, by these choices of the scoring."""
    return "curves" in run.metadata and run.metadata.get("scoring", {}) == dict(scoring)


def find_run(out: str, key: str) -> Run | None:
    """Return the run of this content at `out`, finished or partial, or None."""
    for open_run in (Run.open_unfinished, Run.open):
        with contextlib.suppress(RunError):
            run = open_run(out)
            if run.metadata.get("key") == key:
                return run
    return None


def selection_key(
    content: str,
    store: str,
    out: str,
    method: str,
    features: int | str,
    parameters: dict[str, Any],
    scoring: Mapping[str, Any],
) -> str:
    """Return the key of a run's selection. The metric is part of it where it chooses the number."""
    metric = number_metric(features, scoring)
    chosen = [] if metric is None else [metric]
    return content_key(content, store, out, method, features, parameters, *chosen)


def number_metric(features: int | str, scoring: Mapping[str, Any]) -> str | None:
    """Return the metric that chooses the number of features, where one is given for that."""
    metrics = scoring.get("metrics") or ()
    return metrics[0] if features == "auto" and metrics else None


def content_key(*parts: Any) -> str:
    """Return the cache key of a stage: a hash of its inputs and of the program's source."""
    return digest([*parts, source_hash()])[:24]


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


@cache
def source_hash() -> str:
    """Hash the source of the packages, so that a changed program never reuses the results of an old
    one.
    """
    source = hashlib.sha256()
    for package in (bigfs, storage, flows):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            source.update(file.read_bytes())
    return source.hexdigest()
