"""Pictures: what their lines, bars and labels say."""

import re
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.optimize import minimize
from sklearn.datasets import load_digits, load_iris

import bigfs
from bigfs import ANOVA, SelectorCV, SparGE, plot
from bigfs.advice import install_command
from bigfs.plot.axes import ACCENT, MUTED, OTHERS, short_count
from bigfs.plot.curves import LABEL_GAP, spread
from bigfs.result import ALL
from bigfs.selectors.stability import Stability


@pytest.fixture
def ax():
    return Figure(figsize=(8, 5), layout="constrained").subplots()


def lines(ax):
    """The points of each line by its label."""
    return {
        line.get_label(): dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in ax.lines
    }


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_curves_hold_their_scores(ax):
    curves = {"anova": {100: 0.8, 10: 0.5}, "sparge": {10: 0.6, 50: 0.7, 100: 0.9}}
    same = plot.accuracy_curve(curves, all_features=(2000, 0.85), highlight="sparge", ax=ax)
    assert same is ax
    shown = lines(ax)
    everything = shown.pop("all 2,000 features: 0.850")
    assert shown == curves
    assert list(shown["anova"]) == [10, 100]  # by size
    assert set(everything.values()) == {0.85}
    assert [line.get_color() for line in ax.lines] == [OTHERS[0], ACCENT, MUTED]
    assert legend(ax) == ["anova", "sparge", "all 2,000 features: 0.850"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("number of features", "accuracy")
    assert (ax.get_xscale(), ticks(ax.xaxis)) == ("log", ["10", "50", "100"])


def test_any_number_of_curves_has_a_color(ax):
    curves = {f"method-{i}": {5: 0.1 * i, 10: 0.2} for i in range(9)}
    plot.accuracy_curve(curves, ax=ax)
    colors = [line.get_color() for line in ax.lines]
    assert colors == [ACCENT, *OTHERS, *[MUTED] * 3]
    assert ax.get_xscale() == "linear"


def test_curves_refuse_an_unknown_highlight(ax):
    with pytest.raises(ValueError, match=r"one of the curves \['anova'\]; got 'sparge'"):
        plot.accuracy_curve({"anova": {1: 0.5}}, highlight="sparge", ax=ax)
    with pytest.raises(ValueError, match=r"one of the curves \[\]"):
        plot.accuracy_curve({}, ax=ax)


def test_comparison_names_each_curve_that_finished(ax):
    def row(method, scores, error=""):
        points = [{"n_features": m, "macro_f1": s, "overlap": 1} for m, s in scores.items()]
        return {"method": method, "points": points, "error": error}

    content = {
        "metrics": ["macro_f1", "accuracy"],
        "rows": [row("rfs", {5: 0.5, 20: 0.9}), row("mcfs", {5: 0.4, 20: 0.6}), row("x", {}, "no")],
        ALL: {"n_features": 3000, "macro_f1": 0.7},
    }
    plot.comparison(content, ax=ax)
    shown = lines(ax)
    assert shown["rfs"] == {5: 0.5, 20: 0.9}
    assert shown["mcfs"] == {5: 0.4, 20: 0.6}
    assert [text.get_text() for text in ax.texts] == ["rfs", "mcfs", "all 3,000 features"]
    assert [text.get_color() for text in ax.texts] == [ACCENT, OTHERS[0], MUTED]
    low, high = ax.get_ylim()
    assert [text.xy[1] for text in ax.texts] == pytest.approx(
        [(score - low) / (high - low) for score in (0.9, 0.6, 0.7)]
    )
    assert ax.get_ylabel() == "macro F1"


def test_bounds_and_gap_of_a_fitted_selector(ax):
    X, y = load_digits(return_X_y=True)
    selector = SparGE(n_features_to_select=8, tol=0.01).fit(X, y)
    history = selector.result_.history
    assert len(history) > 3
    steps = range(1, len(history) + 1)
    for result in (selector, selector.result_, history):
        ax.clear()
        plot.bounds(result, ax=ax)
        shown = lines(ax)
        for name in ("upper", "lower"):
            expected = [record[name] for record in history]
            assert shown[f"{name} bound"] == dict(zip(steps, expected, strict=True))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("cut", "objective")
    assert set(legend(ax)) == {"range of the optimum", "upper bound", "lower bound"}
    ax.clear()
    plot.gap(selector, tol=0.01, ax=ax)
    expected = [record["gap"] for record in history]
    assert lines(ax)["gap"] == dict(zip(steps, expected, strict=True))
    assert legend(ax) == ["gap", "tolerance 0.01"]
    assert ax.get_yscale() == "log"


def test_gap_of_zero_is_drawn(ax):
    plot.gap([{"gap": 0.0}], ax=ax)
    assert lines(ax) == {"gap": {1: 0.0}}
    assert ax.get_yscale() == "linear"


def test_what_a_method_without_steps_lacks_is_said(ax):
    X, y = load_iris(return_X_y=True)
    selector = ANOVA(n_features_to_select=2).fit(X, y)
    with pytest.raises(ValueError, match=r"bounds needs a history with upper and lower"):
        plot.bounds(selector, ax=ax)
    with pytest.raises(ValueError, match=r"gap needs a history with one of gap, violation"):
        plot.gap(selector, ax=ax)
    plot.gap([{"change": 0.5}, {"change": 0.1}], ax=ax)
    assert lines(ax) == {"change": {1: 0.5, 2: 0.1}}


def test_size_choice_shows_mean_error_and_choice(ax):
    X, y = load_iris(return_X_y=True)
    selector = SelectorCV(ANOVA(), cv=4).fit(X, y)
    plot.size_choice(selector, ax=ax)
    folds = np.array([selector.cv_results_[f"split{k}_test_score"] for k in range(4)])
    [bars] = ax.containers
    line, _, [segments] = bars
    np.testing.assert_allclose(line.get_ydata(), folds.mean(axis=0))
    ends = np.array([segment[:, 1] for segment in segments.get_segments()])
    mean = folds.mean(axis=0)
    error = (folds - folds[:, [mean.argmax()]]).std(axis=0, ddof=1) / 2
    reaches = np.flatnonzero(mean + error >= mean.max())
    assert selector.cv_results_["n_features"][reaches[0]] == selector.n_features_
    np.testing.assert_allclose(np.diff(ends)[:, 0], 2 * error, atol=1e-12)
    assert set(ax.lines[-1].get_xdata()) == {selector.n_features_}
    assert ticks(ax.xaxis) == ["1", "2", "4"]


def test_stability_draws_the_most_frequent_first(ax):
    found = Stability(np.array([0.5, 0.0, 1.0, 0.25]), 0.625, 8)
    plot.stability(found, feature_names=["a", "b", "c", "d"], ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [1.0, 0.5, 0.25]
    assert ticks(ax.yaxis) == ["c", "a", "d"]
    assert ax.yaxis_inverted()
    assert ax.get_title() == "stability 0.625"
    ax.clear()
    plot.stability(found, n_features=1, ax=ax)
    assert ticks(ax.yaxis) == ["x2"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_image_shows_each_pixel_at_its_place(ax, order):
    values = np.arange(6.0)
    values[5] = np.nan
    plot.scores_image(values, (2, 3), selected=[1], order=order, ax=ax)
    image, marks = (picture.get_array() for picture in ax.images)
    expected = values.reshape((2, 3), order=order)
    np.testing.assert_array_equal(image.filled(-1), np.nan_to_num(expected, nan=-1))
    assert image[~marks.mask].tolist() == [1.0]


def test_without_axes_a_figure_is_made():
    from matplotlib import pyplot

    with mpl.rc_context({"backend": "agg"}):
        ax = plot.gap([{"gap": 0.5}])
        assert pyplot.gcf() is ax.figure
        pyplot.close(ax.figure)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ImportError, match=f"need matplotlib.*{re.escape(install_command('flows'))}"
    ):
        plot.gap([{"gap": 0.5}])


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (1000, "1k"), (1500, "1.5k"), (1234, "1234")]
)
def test_short_counts(count, text):
    assert short_count(count) == text


@pytest.mark.slow
def test_pictures_are_imported_when_they_are_asked_for():
    code = (
        "import sys, bigfs; bigfs.plot.gap; "
        "print('plot' in dir(bigfs), 'matplotlib' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["True", "False"]
    assert bigfs.plot is plot


@pytest.mark.parametrize("n", [1, 2, 6, 15])
def test_labels_move_as_little_as_they_must(rng, n):
    at = np.clip(rng.choice([0.0, 0.5, 0.52, 0.9, 1.0], n) + 0.001 * rng.random(n), 0, 1)
    places = spread(at, LABEL_GAP)
    order = np.argsort(at, kind="stable")
    assert np.all(np.diff(places[order]) >= LABEL_GAP - 1e-12)
    assert places.min() >= 0
    assert places.max() <= 1
    if n > 1:
        constraint = {"type": "ineq", "fun": lambda p: np.diff(p[order]) - LABEL_GAP}
        start = np.empty(n)
        start[order] = np.linspace(0, 1, n)
        best = minimize(
            lambda p: np.sum((p - at) ** 2), start, bounds=[(0, 1)] * n, constraints=constraint
        )
        assert np.sum((places - at) ** 2) <= best.fun + 1e-7
