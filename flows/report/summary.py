"""The scores and the certificate of a run as text, for the terminal, the report and Prefect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.result import ALL

NOT_COMPARED = "not compared with another method, so a small gap does not say that it predicts well"


def count_of_features(about: dict[str, Any]) -> str:
    """Return "1 feature" or "500 features", a number that the run may have chosen by itself."""
    given = about.get("n_features", about["parameters"]["features"])
    m = int(about.get("size_choice", {}).get("n_features", given))
    return f"{m:,} feature{'' if m == 1 else 's'}"


def metrics_of(about: dict[str, Any]) -> list[str]:
    """Return the metrics of a run. The first one is drawn."""
    return list(about.get("measured", {}).get("metrics", ["accuracy"]))


def metric_names(about: dict[str, Any]) -> str:
    """Return the names of the metrics: "accuracy", "micro F1 / macro F1" or "R²"."""
    return " / ".join(METRIC_NAMES[key] for key in metrics_of(about))


def score_table(about: dict[str, Any], digits: int | None = None) -> dict[str, Any] | None:
    """Return the curves as a table of text for the terminal and the report, None if nothing was
    measured.
    """
    curves, metrics = about.get("curves", []), metrics_of(about)
    digits = digits or (4 if len(metrics) == 1 else 3)  # two metrics in a cell must fit a terminal
    if not curves:
        return None
    cells = {
        (p["method"], p["n_features"]): " / ".join(score_text(p, key, digits) for key in metrics)
        for p in curves
    }
    with_all = next(
        ((p["n_features"], cells[ALL, p["n_features"]]) for p in curves if p["method"] == ALL), None
    )
    counts = sorted({m for method, m in cells if method != ALL})
    methods = [method for method in dict.fromkeys(method for method, _ in cells) if method != ALL]
    rows = [(name, [cells.get((name, k), "–") for k in counts]) for name in methods]
    head = [f"{metric_names(about)} with", *(f"{k:,}" for k in counts)]
    text = [head, *([name, *values] for name, values in rows)]
    return {"counts": counts, "rows": rows, "all": with_all, "text": text}


def score_text(point: Mapping[str, Any], metric: str, digits: int = 3) -> str:
    """Return a score, with the spread of its draws if it belongs to a control."""
    spread = point.get("spread", {}).get(metric)
    text = f"{point[metric]:.{digits}f}"
    return text if spread is None else f"{text} ± {spread:.{digits}f}"


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown, the head first. The first column is text."""
    marks = str.maketrans({"|": r"\|", "*": r"\*"})
    lines = [f"| {' | '.join(cell.translate(marks) for cell in row)} |" for row in rows]
    return [lines[0], f"| --- |{' --: |' * (len(rows[0]) - 1)}", *lines[1:], ""]


def choice_text(choice: dict[str, Any]) -> str:
    """Return which candidate was chosen, and why."""
    chosen = next(trial["candidate"] for trial in choice["tried"] if trial["is_chosen"])
    return f"{chosen}, {choice['why']}"


def choice_rows(choice: dict[str, Any]) -> list[list[str]]:
    """Return what was tried as a table of text: a header, and a row per candidate. It is empty
    where nothing was compared."""
    if choice["tried"][0]["score"] is None:
        return []
    head = ["tried", METRIC_NAMES[choice["metric"]], "to the best", "time"]
    rows = [
        [
            trial["candidate"],
            f"{trial['score']:.4f} ± {trial['error']:.4f}",
            f"−{-trial['difference']:.4f} ± {trial['error_of_difference']:.4f}"
            if trial["difference"]
            else "best",
            f"{trial['seconds']:.1f} s",
        ]
        for trial in choice["tried"]
    ]
    return [head, *rows]


def gaps(about: dict[str, Any]) -> dict[str, float]:
    """Return the certified gaps of a run, as far as its method has them.

    "relaxation" is the relative distance between the bounds of the relaxation's optimum.
    "features" is the share of the objective that another set of as many features can save at most.
    """
    history = about.get("history") or [{}]
    gap, objective_gap = history[-1].get("gap"), about.get("stats", {}).get("objective_gap")
    return {
        **({} if gap is None else {"relaxation": gap}),
        **({} if objective_gap is None else {"features": objective_gap}),
    }


def status_text(about: dict[str, Any]) -> str:
    """Return the status of a run with its gaps, for the terminal and Prefect."""
    words = {"relaxation": "relaxation", "features": count_of_features(about)}
    parts = [f"gap of the {words[name]} {100 * gap:.2f} %" for name, gap in gaps(about).items()]
    return f"{about['status']}{' (' + ', '.join(parts) + ')' if parts else ''}"


def verdict_text(about: dict[str, Any]) -> str:
    """Return how the method of a run compares with the others of its table."""
    return f"{about['parameters']['method']}: {about.get('verdict') or NOT_COMPARED}"
