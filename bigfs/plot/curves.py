"""Scores against the number of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigfs.evaluation.choosing import differences_to_best, recorded_scores
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.plot.axes import ACCENT, MUTED, OTHERS, axes_or_new, count_axis, legend_above
from bigfs.result import ALL
from bigfs.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_GAP = 0.052  # least distance of two labels, as a share of the height


def accuracy_curve(
    curves: Mapping[str, Mapping[int, float]],
    *,
    all_features: tuple[int, float] | None = None,
    highlight: str | None = None,
    metric: str = "accuracy",
    names_at_ends: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw a score against the number of features, with a line per method.

    Parameters
    ----------
    curves : dict of {str: dict of {int: float}}
        For each method the scores by the number of features.
    all_features : tuple of (int, float) or None, default=None
        Number of all features and the score with them, drawn as a dashed line.
    highlight : str or None, default=None
        The method that is drawn boldly. None takes the first.
    metric : str, default="accuracy"
        Name of the score, for the axis.
    names_at_ends : bool, default=False
        Whether to write the name of each line next to its end instead of a legend. The figure needs
        room at the right.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ValueError
        There is no curve, or no curve has the name `highlight`.

    See Also
    --------
    comparison : The curves of a comparison.
    size_choice : The curve by which a number of features was chosen.

    Examples
    --------
    >>> from bigfs import plot
    >>> ax = plot.accuracy_curve({"sparge": {10: 0.7, 20: 0.8}, "anova": {10: 0.6, 20: 0.7}})
    >>> [line.get_label() for line in ax.lines]
    ['sparge', 'anova']
    """
    if not curves or (highlight is not None and highlight not in curves):
        raise ValueError(f"highlight must be one of the curves {list(curves)}; got {highlight!r}")
    ax = axes_or_new(ax)
    bold = next(iter(curves)) if highlight is None else highlight
    colors = iter(OTHERS)
    ends: list[tuple[float, str, str, str]] = []
    for place, (name, scores) in enumerate(curves.items()):
        color = ACCENT if name == bold else next(colors, MUTED)
        width, marker = (2.8, 6) if name == bold else (1.0, 3) if color == MUTED else (1.7, 4)
        sizes = sorted(scores)
        values = [scores[m] for m in sizes]
        order = 10 if name == bold else 9 - min(place, 7)
        ax.plot(sizes, values, "o-", label=name, color=color, lw=width, ms=marker, zorder=order)
        ends.append((values[-1], name, color, "bold" if name == bold else "normal"))
    if all_features is not None:
        d, score = all_features
        label = f"all {d:,} features"
        ends.append((score, label, MUTED, "normal"))
        legend = label if names_at_ends else f"{label}: {score:.3f}"
        ax.axhline(score, color=MUTED, ls="--", lw=1.2, zorder=1, label=legend)
    count_axis(ax, sorted({m for scores in curves.values() for m in scores}))
    ax.set(ylabel=metric)
    ax.margins(x=0.03, y=0.06)
    if names_at_ends:
        _label_ends(ax, ends)
    else:
        legend_above(ax)
    return ax


def comparison(content: dict[str, Any], *, ax: Axes | None = None) -> Axes:
    """Draw the curves of a comparison, each with its name at its end.

    Parameters
    ----------
    content : dict
        The content of compare.json, as
        `bigfs.flows.comparison.standings.read_comparison` returns it.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. The figure needs room at the right for the names.

    Raises
    ------
    ValueError
        No method finished.

    See Also
    --------
    accuracy_curve : Curves of your own.

    Examples
    --------
    >>> from bigfs import plot
    >>> points = [{"n_features": 5, "accuracy": 0.8}]
    >>> rows = [{"method": "anova", "error": "", "points": points}]
    >>> ax = plot.comparison({"metrics": ["accuracy"], "rows": rows, "all features": None})
    >>> [text.get_text() for text in ax.texts]
    ['anova']
    """
    metric, everything = content["metrics"][0], content[ALL]
    curves = {
        row["method"]: {point["n_features"]: point[metric] for point in row["points"]}
        for row in content["rows"]
        if not row["error"]
    }
    return accuracy_curve(
        curves,
        all_features=(everything["n_features"], everything[metric]) if everything else None,
        metric=METRIC_NAMES[metric],
        names_at_ends=True,
        ax=ax,
    )


def size_choice(selector: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the scores by which a selector chose its number of features.

    Parameters
    ----------
    selector : SelectorCV
        The fitted selector.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes: the mean score of the folds, with the standard error of its difference to the
        best, and the chosen number: the smallest whose bar reaches the best score.

    See Also
    --------
    bigfs.SelectorCV : Chooses the number.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import ANOVA, SelectorCV, plot
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plot.size_choice(SelectorCV(ANOVA()).fit(X[::2], y[::2]))
    >>> ax.get_title()
    '2 features chosen'
    """
    ax, found = axes_or_new(ax), selector.cv_results_
    error = differences_to_best(recorded_scores(found))[1]
    sizes, mean = found["n_features"], found["mean_test_score"]
    ax.errorbar(sizes, mean, yerr=error, fmt="o-", color=ACCENT, lw=2, capsize=3)
    ax.axvline(selector.n_features_, color=OTHERS[0], ls="--", lw=1.2)
    count_axis(ax, sizes.tolist())
    ax.set(ylabel="score of the folds", title=f"{selector.n_features_:,} features chosen")
    return ax


def _label_ends(ax: Axes, ends: Sequence[tuple[float, str, str, str]]) -> None:
    """Write the name of each curve next to its end, with a thin line where it had to move."""
    low, high = ax.get_ylim()
    at = np.array([(value - low) / (high - low) for value, *_ in ends])
    gap = min(LABEL_GAP, 1 / max(len(at) - 1, 1))
    for y, place, (_, name, color, weight) in zip(at, spread(at, gap), ends, strict=True):
        ax.annotate(
            name,
            xy=(1.0, y),
            xytext=(1.045, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            color=color,
            fontweight=weight,
            fontsize=10.5,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.7,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def spread(at: FloatArray, gap: float) -> FloatArray:
    """Move positions apart as little as it takes for the labels not to overlap."""
    order = np.argsort(at, kind="stable")
    # of the positions less their place in the stack, which must not decrease: pooled neighbors
    groups: list[list[float]] = []  # mean, size
    for value in at[order] - gap * np.arange(len(at)):
        groups.append([float(value), 1.0])
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            mean, size = groups.pop()
            other, other_size = groups[-1]
            total = size + other_size
            groups[-1] = [(mean * size + other * other_size) / total, total]
    flat = np.concatenate([np.full(int(size), mean) for mean, size in groups] or [np.zeros(0)])
    places = np.empty(len(at))
    places[order] = np.clip(flat, 0, max(1 - gap * (len(at) - 1), 0)) + gap * np.arange(len(at))
    return places
