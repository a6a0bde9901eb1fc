"""The runs of a folder in the order of time: what each one chose, and what came and went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bigfs.flows.report.summary import gaps, metrics_of
from bigfs.storage.errors import RunError
from bigfs.storage.runs.earlier import kept_folder
from bigfs.storage.runs.runs import Run

from bigfs.evaluation.metrics import METRIC_NAMES

NAMED = 8  # features that came or went, in the lines for a terminal


def history(folder: str | Path) -> list[dict[str, Any]]:
    """Return a record of each finished run in a folder, or of a run and its earlier results.

    Parameters
    ----------
    folder : str or Path
        A folder with runs at any depth, or the directory of a run.

    Returns
    -------
    list of dict
        By the time they were made: the directory, when, the method, the number of features, the
        certified gap and the score with this number, None where there is none, and the names of
        the features that came and went against the run before.

    Raises
    ------
    RunError
        There is no run, or one is damaged.
    """
    records: list[dict[str, Any]] = []
    before: list[str] | None = None
    for run in runs_below(Path(folder)):
        names = [row["name"] for row in run.read_table("selected.csv")]
        about, now, then = run.metadata, set(names), set(before or [])
        metric, score = _score(about, len(names))
        records.append(
            {
                "run": str(run.path),
                "made": about.get("made"),
                "method": about["parameters"]["method"],
                "n_features": len(names),
                "status": about["status"],
                "gap": gaps(about).get("features"),
                "metric": metric,
                "score": score,
                "came": None if before is None else [name for name in names if name not in then],
                "went": None if before is None else [name for name in before if name not in now],
            }
        )
        before = names
    return records


def runs_below(folder: Path) -> list[Run]:
    """Return the finished runs in a folder, or a run and its earlier results, in order of time."""
    homes = [folder, kept_folder(folder)] if (folder / "run.json").exists() else [folder]
    files = [
        file
        for home in homes
        for file in home.rglob("run.json")
        if not any(part.startswith(".") for part in file.relative_to(home).parts)
    ]
    if not files:
        raise RunError(f"{folder} holds no run: `bigfs run` and `bigfs select` make them")
    runs = {}
    for file in sorted(files, reverse=True):
        run = Run.open(file.parent)
        # a killed process may leave a result in its place and among the earlier ones
        runs[run.metadata.get("made"), run.metadata.get("key"), _home(run.path)] = run
    return sorted(runs.values(), key=_moment)


def _home(run: Path) -> str:
    """Return the directory of a run, also that of an earlier result of it."""
    is_kept = run.parent.name.endswith(kept_folder("").name)
    return str(run.parent).removesuffix(kept_folder("").name) if is_kept else str(run)


def _moment(run: Run) -> tuple[float, str]:
    made = run.metadata.get("made")
    return datetime.fromisoformat(made).timestamp() if made else 0.0, str(run.path)


def _score(about: dict[str, Any], n_features: int) -> tuple[str | None, float | None]:
    """Return the first metric of a run, and its value with all its features."""
    metric, method = metrics_of(about)[0], about["parameters"]["method"]
    for point in about.get("curves", []):
        if (point["method"], point["n_features"]) == (method, n_features):
            return metric, point[metric]
    return None, None


def history_rows(records: Sequence[dict[str, Any]], folder: str) -> list[list[str]]:
    """Return the records as rows of text for a terminal, the head first."""
    homes = {_home(Path(record["run"])) for record in records}
    metrics = {record["metric"] for record in records} - {None}
    names = [METRIC_NAMES[metric] for metric in sorted(metrics)]
    rows = [["when", "method" if len(homes) == 1 else "run", "features", "came", "went", "gap"]]
    rows[0].append(names[0] if len(names) == 1 else "score")
    for record in records:
        home = Path(_home(Path(record["run"])))
        name = str(home.relative_to(folder) if home.is_relative_to(folder) else home)
        is_scored, is_first = record["score"] is not None, record["came"] is None
        rows.append(
            [
                (record["made"] or "–")[:16].replace("T", " "),
                record["method"] if len(homes) == 1 else name,
                f"{record['n_features']:,}",
                "" if is_first else f"+{len(record['came'])}",
                "" if is_first else f"−{len(record['went'])}",
                "–" if record["gap"] is None else f"{100 * record['gap']:.2f} %",
                f"{record['score']:.4f}" if is_scored else "–",
            ]
        )
    return rows


def change_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return what came and went in the last run, in words."""
    last = records[-1]
    return [
        f"{word}: {', '.join(last[key][:NAMED])}"
        + (f" and {len(last[key]) - NAMED} others" if len(last[key]) > NAMED else "")
        for key, word in (("came", "came last"), ("went", "went last"))
        if last[key]
    ]
