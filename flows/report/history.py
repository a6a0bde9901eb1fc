"""The runs of a folder in the order of time: what each chose, and how the choice changed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.flows.report.summary import gaps, metrics_of, verdict_text
from bigfs.storage.errors import RunError
from bigfs.storage.runs.runs import Run, failures_of, names_below, results_of

CHANGES = ("added", "removed")  # of features, against the result before
NOTHING = dict.fromkeys(  # of what failed
    ["folder", "method", "n_features", "status", "gap", "metric", "score", "verdict", *CHANGES]
)
NAMED = 8  # names of changed features in the lines for a terminal


def history(folder: str | Path) -> list[dict[str, Any]]:
    """Return a record of each result and of each failure of the runs in a folder, or of one run.

    Parameters
    ----------
    folder : str or Path
        A folder with runs at any depth, or the name of a run.

    Returns
    -------
    list of dict
        By the time they were made: the run, the folder of the result, when, the method, the number
        of features, the certified gap, the score with this number, compared with other
        methods and with all features, None where a value is missing, and the names of the
        features added and removed against the result before of the same run. A failure, and a
        result that is damaged, has an "error", and in place of the rest None.

    Raises
    ------
    RunError
        There is no run.
    """
    records = [record for name in names_of(folder) for record in _records_of(name)]
    if not records:
        raise RunError(f"{folder} holds no run: `bigfs run` and `bigfs select` make them")
    return sorted(records, key=_moment)


def names_of(folder: str | Path) -> list[Path]:
    """Return the names of the runs in a folder, or the name of a run itself."""
    folder = Path(folder)
    return [folder] if results_of(folder) or failures_of(folder) else names_below(folder)


def _records_of(name: Path) -> list[dict[str, Any]]:
    """Return the results and the failures of a run."""
    records: list[dict[str, Any]] = []
    before: list[str] | None = None
    for folder in results_of(name):
        try:
            run = Run.open(folder)
            names = [row["name"] for row in run.read_table("selected.csv")]
        except RunError as error:
            made = f"{folder.name[:10]}T{folder.name[11:19].replace('-', ':')}"
            damaged = {"run": str(name), "folder": str(folder), "made": made}
            records.append(NOTHING | damaged | {"error": str(error)})
            continue
        about, now, then = run.metadata, set(names), set(before or [])
        metric, score = _score(about, len(names))
        records.append(
            {
                "run": str(name),
                "folder": str(folder),
                "made": about.get("made"),
                "method": about["parameters"]["method"],
                "n_features": len(names),
                "status": about["status"],
                "gap": gaps(about).get("features"),
                "metric": metric,
                "score": score,
                "verdict": verdict_text(about) if about.get("verdict") else None,
                "added": None if before is None else [name for name in names if name not in then],
                "removed": None if before is None else [name for name in before if name not in now],
                "error": None,
            }
        )
        before = names
    for failure in failures_of(name):
        reason = f"{failure['reason']} (in {failure['folder']})"
        records.append(NOTHING | {"run": str(name), "made": failure["made"], "error": reason})
    return records


def _moment(record: dict[str, Any]) -> tuple[float, str]:
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(record["made"] or "").timestamp(), record["run"]
    return 0.0, record["run"]


def _score(about: dict[str, Any], n_features: int) -> tuple[str | None, float | None]:
    """Return the first metric of a run, and its value with all its features."""
    metric, method = metrics_of(about)[0], about["parameters"]["method"]
    for point in about.get("curves", []):
        if (point["method"], point["n_features"]) == (method, n_features):
            return metric, point[metric]
    return None, None


def history_rows(records: Sequence[dict[str, Any]], folder: str) -> list[list[str]]:
    """Return the records as rows of text for a terminal, the head first."""
    runs = {record["run"] for record in records}
    metrics = {record["metric"] for record in records} - {None}
    names = [METRIC_NAMES[metric] for metric in sorted(metrics)]
    rows = [["when", "method" if len(runs) == 1 else "run", "features", "added", "removed", "gap"]]
    rows[0].append(names[0] if len(names) == 1 else "score")
    for record in records:
        run = Path(record["run"])
        name = str(run.relative_to(folder) if run.is_relative_to(folder) else run)
        when = (record["made"] or "–")[:16].replace("T", " ")
        label = (record["method"] or "failed") if len(runs) == 1 else name
        if record["error"] is not None:
            rows.append([when, label, "failed", "", "", "", ""])
            continue
        is_scored, is_first = record["score"] is not None, record["added"] is None
        rows.append(
            [
                when,
                label,
                f"{record['n_features']:,}",
                "" if is_first else f"+{len(record['added'])}",
                "" if is_first else f"−{len(record['removed'])}",
                "–" if record["gap"] is None else f"{100 * record['gap']:.2f} %",
                f"{record['score']:.4f}" if is_scored else "–",
            ]
        )
    return rows


def change_lines(records: Sequence[dict[str, Any]]) -> list[str]:
    """Return the last change of each run, its verdict, and the failures."""
    lines, last = [], {record["run"]: record for record in records if record["error"] is None}
    for run, record in last.items():
        of = f" in {run}" if len(last) > 1 else ""
        for word in CHANGES:
            if names := record[word]:
                more = f" and {len(names) - NAMED} others" if len(names) > NAMED else ""
                lines.append(f"{word} last{of}: {', '.join(names[:NAMED])}{more}")
        if record["verdict"]:
            lines.append(f"last{of}: {record['verdict']}")
    failed = [record for record in records if record["error"] is not None]
    lines += [
        f"{(record['made'] or '–')[:16].replace('T', ' ')} failed: {record['error']}"
        for record in failed
    ]
    return lines
