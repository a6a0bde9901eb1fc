"""The page of the race of the choosers: differences between the methods, and their cost.

python -m benchmarks.choosing_page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.choosing import METRICS, OURS, RACE, SOURCES
from benchmarks.papers.pages import PROTOCOLS, mean_error, save, table
from bigfs.evaluation.metrics import METRIC_NAMES

DOCS = Path(__file__).parents[1] / "docs" / "measured"
LABELS = {
    "sparge-lda": "SparGE",
    "sparge-lda-cv": "SparGECV",
    "chi2": "χ²",
    "anova": "ANOVA",
    "l1-svm": "ℓ1",
    "l2-svm": "ℓ2",
    "svm-rfe": "SVM-RFE",
    "cmim": "CMIM",
}
FIRST = OURS[0]
TIE = 0.0005  # the difference up to which a set counts as a tie

Case = tuple[str, int]  # set and split
Scores = dict[Case, dict[str, float]]  # of each method


def cases(name: str, by: str) -> Scores:
    """Return the mean of a number over the sizes, for the splits that all methods have.

    A method that chooses by a metric has the cell that chose by `by`. Methods that lack a set are
    left out.
    """
    found: Scores = {}
    for key, values in RACE.results().cells.items():
        if key.data in SOURCES and key.parameters in ("", f"by={by}"):
            case = found.setdefault((key.data, key.repetition), {})
            case[key.method] = float(values[name].mean())
    sets = {data for data, _ in found}
    shown = {
        method
        for method in LABELS
        if sets == {data for (data, _), by in found.items() if method in by}
    }
    return {case: scores for case, scores in found.items() if shown <= set(scores)}


def by_set(name: str, kind: str) -> dict[str, dict[str, float]]:
    """Return the mean over the splits: set → method → number."""
    found = cases(name, name if name in METRICS else METRICS[0])
    return {
        data: {method: float(np.mean([one[method] for one in splits])) for method in splits[0]}
        for data in SOURCES
        if SOURCES[data].kind == kind
        and (splits := [scores for (of, _), scores in found.items() if of == data])
    }


def shown_choosers(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the methods of all sets, ours first."""
    return [name for name in LABELS if found and all(name in one for one in found.values())]


def signed(values: Sequence[float]) -> str:
    """Return the mean with its sign and its standard error."""
    return ("" if np.mean(values) < 0 else "+") + mean_error(values, 4)


def standing(gaps: Sequence[float]) -> str:
    """Return the mean difference, and how many sets are won, tied and lost."""
    won, lost = (sum(sign * gap > TIE for gap in gaps) for sign in (1, -1))
    return f"{signed(gaps)}, {won}/{len(gaps) - won - lost}/{lost}"


def standings(metric: str, kind: str) -> str:
    """Return the table of the differences of ours to every method."""
    found = by_set(metric, kind)
    names = shown_choosers(found)
    ours = [name for name in OURS if name in names]
    rows = []
    for other in names:
        gaps = {one: [scores[one] - scores[other] for scores in found.values()] for one in ours}
        mean = np.mean([scores[other] for scores in found.values()])
        cells = ["" if one == other else standing(gaps[one]) for one in ours]
        rows.append([LABELS[other], f"{mean:.4f}", *cells])
    return table(["", "mean", *(f"{LABELS[one]} ahead by" for one in ours)], rows)


def cost(method: str, kind: str) -> float:
    """Return the median time over the sets, in fits of SparGE's default."""
    found = by_set("seconds", kind).values()
    return float(np.median([seconds[method] / seconds[FIRST] for seconds in found]))


def costs() -> str:
    """Return the table of the times, in fits of SparGE's default."""
    kinds = ("text", "dense")
    names = shown_choosers(by_set("seconds", kinds[0]) | by_set("seconds", kinds[1]))
    rows = [[LABELS[one], *(f"{cost(one, kind):.2g}" for kind in kinds)] for one in names]
    return table(["", *kinds], rows)


def every_set(metric: str) -> str:
    """Return the table of the scores on each set."""
    rows, names = [], []
    splits = [data for data, _ in cases(metric, metric)]
    for kind in ("text", "dense"):
        found = by_set(metric, kind)
        names = shown_choosers(found)
        for data, scores in found.items():
            cells = [f"{scores[name]:.3f}" for name in names]
            rows.append([data, kind, splits.count(data), *cells])
    return table(["", "", "splits", *(LABELS[name] for name in names)], rows)


def picture(folder: Path) -> str:
    """Draw the difference of every other method to SparGE's default, and its standard error."""
    kinds = ("text", "dense")
    figure, axes = plt.subplots(
        len(METRICS), len(kinds), figsize=(8, 5.4), layout="constrained", sharey=True
    )
    for row, metric in zip(axes, METRICS, strict=True):
        for ax, kind in zip(row, kinds, strict=True):
            found = by_set(metric, kind)
            names = [name for name in shown_choosers(found) if name != FIRST]
            for place, name in enumerate(names):
                gaps = [scores[name] - scores[FIRST] for scores in found.values()]
                error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
                color = "C0" if name in OURS else "C1"
                ax.errorbar(np.mean(gaps), place, xerr=error, fmt="o", color=color)
            ax.axvline(0, color="0.6", linewidth=1)
            ax.set_yticks(range(len(names)), [LABELS[name] for name in names])
            ax.set(title=f"{kind}, {len(found)} sets", xlabel=f"{METRIC_NAMES[metric]} − SparGE's")
    axes[0, 0].invert_yaxis()
    return save(figure, folder, "choosing", "The difference of each method to SparGE's default")


def write(folder: Path = DOCS) -> None:
    """Write the page and its picture."""
    parts = [(PROTOCOLS / "choosing.md").read_text(), picture(folder)]
    for kind in ("text", "dense"):
        for metric in METRICS:
            n_sets = len(by_set(metric, kind))
            parts += [f"## {METRIC_NAMES[metric].capitalize()}, {kind}, {n_sets} sets\n"]
            parts += [standings(metric, kind)]
    parts += ["## Cost\n", "Processor seconds of one choice of the largest number of"]
    parts[-1] += " features, as a multiple of those of SparGE's default. Medians over the sets.\n"
    parts += [costs(), "## Every set\n"]
    for metric in METRICS:
        parts += [f"{METRIC_NAMES[metric].capitalize()}, mean over the sizes and the splits.\n"]
        parts += [every_set(metric)]
    (folder / "choosing.md").write_text("\n".join(parts))


if __name__ == "__main__":
    write()
