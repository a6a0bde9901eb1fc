"""The standings of a comparison: ranks, overlap and paired tests against the best method.

The best method has the highest mean of the first metric over the sizes. It is the best on the very
samples that the tests use, so their p-values describe the figures and prove nothing about new
data. They are adjusted by Holm's method for all tests of the comparison. On one set of test samples
the methods are paired sample by sample, and over folds by their scores in each fold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.evaluation.significance import (
    choice_stability,
    corrected_t_test,
    holm,
    jaccard,
    paired_test,
)
from bigfs.flows.comparison.bench import Bench
from bigfs.flows.comparison.outcomes import Outcome
from bigfs.flows.comparison.request import LIST
from bigfs.flows.evaluation.controls import draws_text
from bigfs.flows.report.summary import choice_text, markdown_table, score_text
from bigfs.result import ALL

ALPHA = 0.05  # below it, the tables say that a method differs from the best
COUNTED = ("accuracy", "balanced_accuracy")  # shares of right answers
RESUMED = "went on from an earlier call, so its time and passes are those since then"
SMALLEST = 1e-16  # smaller p-values are not told apart
COLUMNS = (  # of compare.csv, around the columns of the metrics
    "rank method n_features",
    "mean redundancy overlap stability repeat_overlap wins defeats p_value p_holm seconds "
    "processor_seconds peak_memory passes fits scoring_seconds status error",
)


def make_standings(
    bench: Bench, outcomes: Sequence[Outcome], failures: Mapping[str, str]
) -> dict[str, Any]:
    """Rank the methods of a comparison and test each against the best."""
    metric = bench.metrics[0]
    means = {
        o.method: float(np.mean([p[metric] for p in o.points])) for o in outcomes if o.method != ALL
    }
    ranked = sorted(
        (o for o in outcomes if o.method != ALL),
        key=lambda o: -means[o.method] if np.isfinite(means[o.method]) else np.inf,
    )
    rows = [_row(bench, rank, o, ranked[0], means[o.method]) for rank, o in enumerate(ranked, 1)]
    tested = [point for row in rows[1:] for point in row["points"]]
    n_tests = len(tested) * len(ranked) // 2  # of all pairs, as the best is one of them
    adjusted = holm([point["p_value"] for point in tested], n_tests)
    for point, p in zip(tested, adjusted, strict=True):
        point["p_holm"] = float(p)
    rows += [
        {"rank": None, "method": name, "error": reason, "points": []}
        for name, reason in failures.items()
    ]
    # what the stability of a choice is measured on
    n_splits, repeats = len(bench.splits), None
    if bench.subsamples:
        repeats = f"{bench.subsamples} random halves of the training samples"
    elif n_splits > 1:
        repeats = f"the {n_splits} folds"
    everything = next((o.points[0] for o in outcomes if o.method == ALL), None)
    return {
        "metrics": list(bench.metrics),
        "sizes": list(bench.sizes),
        "best": ranked[0].method if ranked else None,
        "test": "corrected t" if n_splits > 1 else "sign",
        "repeats": repeats,
        "rows": rows,
        ALL: everything,
    }


def _row(bench: Bench, rank: int, outcome: Outcome, best: Outcome, mean: float) -> dict[str, Any]:
    points = []
    for i, point in enumerate(outcome.points):
        m = point["n_features"]
        overlap = jaccard(outcome.sets[m], best.sets[m])
        own: dict[str, Any] = {**point, "overlap": overlap}
        if len(outcome.again) > 1:
            choices = [sets[m] for sets in outcome.again]
            found = choice_stability(choices, bench.train.X.shape[1])
            own |= {"stability": found.phi, "repeat_overlap": found.overlap}
        if outcome is not best:
            test = paired_test(outcome.losses[i], best.losses[i])
            p_value = test.p_value
            if len(bench.splits) > 1:
                differences = outcome.split_scores[:, i] - best.split_scores[:, i]
                n, least = len(outcome.losses[i]), 0.0
                if bench.metrics[0] in COUNTED:
                    least = len(bench.splits) * test.discordant / n**2
                p_value = corrected_t_test(differences, bench.test_ratio, least)
            own |= {"wins": test.wins, "defeats": test.defeats, "p_value": p_value}
        points.append(own)
    late = outcome.figures["not_converged"]
    figures = {k: v for k, v in outcome.figures.items() if k != "not_converged"}
    resumed = [RESUMED] if outcome.figures["resumed"] else []
    status = "; ".join([*late[:1], *resumed]) or "finished"
    head = {"rank": rank, "method": outcome.method, "mean": mean, "status": status, "error": ""}
    if outcome.method in bench.parameters:
        head["parameters"] = bench.parameters[outcome.method]
    return {**head, **figures, "points": points}


# --- tables of text -------------------------------------------------------------------------------


def score_rows(standings: dict[str, Any], digits: int = 3) -> list[list[str]]:
    """Return the table of the first metric as text: a header, a row per method, all features."""
    metric, sizes = standings["metrics"][0], standings["sizes"]
    table = [[f"{METRIC_NAMES[metric]} with", *(f"{m:,}" for m in sizes), "mean"]]
    for row in standings["rows"]:
        if row["error"]:
            continue
        # a star where the score differs from the best method's beyond chance
        marks = ["*" if p.get("p_holm", 1.0) < ALPHA else "" for p in row["points"]]
        cells = [
            score_text(p, metric, digits) + m for p, m in zip(row["points"], marks, strict=True)
        ]
        table.append([row["method"], *cells, f"{row['mean']:.{digits}f}"])
    if standings[ALL]:
        value = f"{standings[ALL][metric]:.{digits}f}"
        table.append([f"all {standings[ALL]['n_features']:,}", *[""] * len(sizes), value])
    return table


def cost_rows(standings: dict[str, Any]) -> list[list[str]]:
    """Return the table of costs, and of the choice at the largest size, as text."""
    head = ["method", "time", "processor", "memory", "passes"]
    table = [[*head, "redundancy", "overlap", "stability", "discordant", "p (Holm)"]]
    for row in standings["rows"]:
        if row["error"]:
            continue
        point, memory = row["points"][-1], row["peak_memory"]
        is_best = "p_holm" not in point
        table.append(
            [
                row["method"],
                _text(row["seconds"], "{:,.1f} s"),
                _text(row["processor_seconds"], "{:,.1f} s"),
                _text(None if memory is None else memory / 1e6, "{:,.0f} MB"),
                f"{row['passes']:,}",
                _text(point["redundancy"], "{:.3f}"),
                f"{point['overlap']:.2f}",
                _text(point.get("stability"), "{:.2f}"),
                "–" if is_best else f"{point['wins'] + point['defeats']:,}",
                "best" if is_best else p_text(point["p_holm"]),
            ]
        )
    return table


def failure_lines(standings: dict[str, Any]) -> list[str]:
    """Return a line per method that failed or ended before its tolerance."""
    failed = [f"{row['method']}: {row['error']}" for row in standings["rows"] if row["error"]]
    late = [
        f"{row['method']}: {row['status']}"
        for row in standings["rows"]
        if not row["error"] and row["status"] != "finished"
    ]
    return failed + late


def choice_lines(standings: dict[str, Any]) -> list[str]:
    """Return a line per method that chose another one, and per control."""
    choices = {row["method"]: row["choice"] for row in standings["rows"] if row.get("choice")}
    lines = [f"{method}: {choice_text(choice)}" for method, choice in choices.items()]
    points = {row["method"]: row["points"][-1] for row in standings["rows"] if row["points"]}
    metric, best = standings["metrics"][0], standings["best"]
    for control, point in points.items():
        if "draws" in point and control != best:
            text = draws_text(control, points[best][metric], point["draws"][metric])
            lines.append(f"{text} as {best} with {point['n_features']:,} features")
    return lines


def explanation(standings: dict[str, Any]) -> list[str]:
    """Return the sentences that say how to read the tables."""
    sizes, best = standings["sizes"], standings["best"]
    test = (
        "the corrected resampled t-test over the folds"
        if standings["test"] == "corrected t"
        else "the exact paired test on the samples that one of the two predicts better"
    )
    stability = (
        f" Stability is the index of Nogueira and others over the choices from "
        f"{standings['repeats']}: 1 for the same choice each time, 0 for random ones."
        if standings["repeats"]
        else " Stability is not measured on one set of training samples: ask for subsamples."
    )
    given = (
        " A list is the same in every fold. If it was chosen with samples that test it here, its "
        "scores are too high."
        if any(row["method"].startswith(LIST.format("")) for row in standings["rows"])
        else ""
    )
    return [
        f"The methods are ordered by the mean of {METRIC_NAMES[standings['metrics'][0]]} over the "
        f"sizes. Time and passes are for choosing at all sizes.{given}",
        f"Redundancy is the mean absolute correlation of the chosen features, and overlap their "
        f"Jaccard index with the features of {best}, both with {sizes[-1]:,} features.{stability}",
        f"* differs from {best}: {test} has p < {ALPHA} after Holm's adjustment for all tests of "
        f"this comparison. The best method was picked on the same samples, so the p-values are "
        f"descriptive.",
    ]


def lines_of(standings: dict[str, Any]) -> list[str]:
    """Return what failed, what was chosen, how it was scored, and how to read the tables."""
    lines = [*failure_lines(standings), *choice_lines(standings), standings["evaluation"]]
    return [*lines, *(explanation(standings) if standings["best"] else [])]


def p_text(p: float) -> str:
    """Return a p-value as text."""
    if np.isnan(p):
        return "–"
    if p < SMALLEST:
        return f"< {SMALLEST:.0e}"
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


# --- files ----------------------------------------------------------------------------------------


def csv_rows(standings: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the header and the rows of compare.csv: a row per method and size.

    A method that failed has one row without a size.
    """
    header = [*COLUMNS[0].split(), *standings["metrics"], *COLUMNS[1].split()]
    return header, [
        {**row, **point} for row in standings["rows"] for point in row["points"] or [{}]
    ]


def markdown(standings: dict[str, Any]) -> str:
    """Return compare.md."""
    title = f"# Feature selection on {standings['corpus']['name']}"
    lines = [title, "", standings["evaluation"], ""]
    for table in (score_rows(standings), cost_rows(standings)):
        lines += markdown_table(table)
    lines += [f"- {line}" for line in (*failure_lines(standings), *choice_lines(standings))]
    if standings["best"]:
        lines += ["", " ".join(explanation(standings)).replace("*", r"\*")]
    return "\n".join(lines) + "\n"
