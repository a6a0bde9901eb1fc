"""Controls beside a score: what is drawn, what is scored, and what p-values say where nothing is
to be found."""

import json

import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.datasets import dump_svmlight_file

from bigfs import ANOVA, Matrix, storage
from bigfs.evaluation import linear_model
from bigfs.evaluation.curves import measure
from bigfs.evaluation.metrics import Scorer
from bigfs.evaluation.splits import Split, labeled_rows
from bigfs.flows.evaluation import controls
from tests.helpers.commands import fails
from tests.helpers.daily import daily

BOTH = ("--controls", "shuffled-labels,random-list")
SMALL = ("-m", "anova", "-n", 4, "--against", "chi2", "--workers", 0)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Give a folder with a table of 30 columns, of which four tell the class, and its own test
    samples."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 240)
    X = rng.random((240, 30))
    X[:, :4] += 0.4 * y[:, None]
    dump_svmlight_file(X[:120], y[:120], "a.svm")
    dump_svmlight_file(X[120:], y[120:], "b.svm")
    return tmp_path


def curves_of(bigfs, *words):
    status, out, _ = bigfs(*words, "--json")
    assert status == 0
    about = json.loads(out)
    return about, {(p["method"], p["n_features"]): p for p in about["curves"]}


def test_a_run_scores_lists_of_shuffled_labels_and_of_no_labels(bigfs, home):
    """Each draw is what the method chooses from the shuffled labels, scored by the true ones."""
    words = ("run", "a.svm", "--test", "b.svm", *SMALL, *BOTH, "--draws", 3)
    about, points = curves_of(bigfs, *words, "--out", "r")
    corpus = storage.open(about["parameters"]["store"])
    train, test = corpus.part("train"), corpus.part("test")
    for k in range(3):
        y = train.y[np.random.default_rng([0, k + 1]).permutation(120)]
        chosen = np.sort(ANOVA(n_features_to_select=4).fit(train.X, y).selected_)
        model = linear_model.fit(train.X.columns(chosen).tocsr(), train.y)
        right = model.predict(test.X.columns(chosen).tocsr()) == test.y
        assert points["shuffled-labels", 4]["draws"]["accuracy"][k] == right.mean()
    assert points["anova", 4]["accuracy"] > 0.75
    for control in ("shuffled-labels", "random-list"):
        point = points[control, 4]
        assert point["accuracy"] == pytest.approx(np.mean(point["draws"]["accuracy"]))
        assert point["spread"]["accuracy"] == pytest.approx(
            np.std(point["draws"]["accuracy"], ddof=1)
        )
        assert f"of 3 draws of {control} score as high (p = " in about["verdict"]
    assert "random-list: the mean of 3 draws" in about["evaluation"]
    _, out, _ = bigfs(*words, "--out", "r")
    cell = f"{point['accuracy']:.4f} ± {point['spread']['accuracy']:.4f}"
    assert cell in out
    assert (
        f"{point['accuracy']:.3f} ± {point['spread']['accuracy']:.3f}"
        in (home / "r" / "report.html").read_text()
    )
    header, *rows = (home / "r" / "curves.csv").read_text().splitlines()
    assert header == "method,n_features,accuracy"
    assert sum(row.startswith("random-list,4,") for row in rows) == 1


def test_draws_are_the_same_in_other_tiles_and_with_more_of_them(bigfs, home):
    words = ("run", "a.svm", "-m", "anova", "-n", 4, "--cv", 3, "--workers", 0, *BOTH)
    _, few = curves_of(bigfs, *words, "--draws", 2, "--out", "r")
    _, more = curves_of(bigfs, *words, "--draws", 3, "--tile-rows", 17, "--out", "s")
    for control in ("shuffled-labels", "random-list"):
        for m in (1, 2, 4):
            draws = more[control, m]["draws"]["accuracy"]
            assert few[control, m]["draws"]["accuracy"] == draws[:2]
            assert len(draws) == 3
    assert few["anova", 4] == more["anova", 4]


def test_kept_features_are_in_each_random_list_and_forbidden_ones_in_none():
    X = Matrix.from_array(np.random.default_rng(0).random((5, 12)))
    given = {"keep": [7, 2], "forbid": [0, 11]}
    found = [controls.draw_list(f"random-list {k}", X, given) for k in range(1, 9)]
    for order in found:
        assert {2, 7} == set(order[:2].tolist())
        assert sorted(order.tolist()) == [j for j in range(12) if j not in (0, 11)]
    assert len({tuple(order.tolist()) for order in found}) == 8
    again = controls.draw_list("random-list 1", X, given)
    np.testing.assert_array_equal(again, found[0])
    seeded = controls.draw_list("random-list 1", X, {**given, "random_state": 1})
    assert (seeded != found[0]).any()


def test_only_labels_are_shuffled():
    y = np.array([-1, 0, 1, 1, -1, 2, 0, 1] * 5)
    found = controls.shuffle_labels(y, "shuffled-labels 1", {})
    np.testing.assert_array_equal(labeled_rows(found), labeled_rows(y))
    assert (found != y).any()
    np.testing.assert_array_equal(np.bincount(found + 1), np.bincount(y + 1))


def test_a_comparison_has_a_row_for_each_control(bigfs, home):
    words = ("compare", "a.svm", "--test", "b.svm", "--methods", "anova,chi2", "--sizes", "2,4")
    words = (*words, "--workers", 0, "--out", "c")
    assert bigfs(*words)[0] == 0
    status, out, _ = bigfs(*words, *BOTH, "--draws", 3)
    assert status == 0
    about = json.loads((home / "c" / "compare.json").read_text())
    assert set(about["reused"]) == {"anova", "chi2", "all features"}  # no score follows from them
    rows = {row["method"]: row for row in about["rows"]}
    assert set(rows) == {"anova", "chi2", "shuffled-labels", "random-list"}
    for control in ("shuffled-labels", "random-list"):
        for point in rows[control]["points"]:
            assert point["accuracy"] == pytest.approx(np.mean(point["draws"]["accuracy"]))
        last = rows[control]["points"][-1]
        assert f"{last['accuracy']:.3f} ± {last['spread']['accuracy']:.3f}" in out
        assert f"of 3 draws of {control} score as high" in out
        assert f"of 3 draws of {control} score" in (home / "c" / "compare.md").read_text()
    _, points = curves_of(
        bigfs, "run", "a.svm", "--test", "b.svm", *SMALL, *BOTH, "--draws", 3, "--out", "r"
    )
    for control in ("shuffled-labels", "random-list"):  # the same lists in both commands
        draws = rows[control]["points"][-1]["draws"]["accuracy"]
        assert draws == points[control, 4]["draws"]["accuracy"]


def test_an_audit_scores_controls_of_the_lists_lengths(bigfs, home):
    (home / "list.txt").write_text("0\n1\n2\n")
    words = ("audit", "a.svm", "list.txt", "--test", "b.svm", "--workers", 0, "--out", "d")
    status, out, _ = bigfs(*words, *BOTH, "--draws", 2)
    assert status == 0
    about = json.loads((home / "d" / "audit.json").read_text())
    rows = {row["list"]: row for row in about["rows"]}
    assert list(rows) == ["list", "SparGE", "shuffled-labels", "random-list"]
    for control in ("shuffled-labels", "random-list"):
        assert rows[control]["n_features"] == 3
        assert len(rows[control]["draws"]["accuracy"]) == 2
        row = f"{rows[control]['accuracy']:.3f} ± {rows[control]['spread']['accuracy']:.3f}"
        assert row in out
        assert row in (home / "d" / "report.html").read_text()
    assert "1 list of features of" in (home / "d" / "report.html").read_text()


def test_what_controls_cannot_be_is_refused_before_any_work(bigfs, home):
    fails(
        bigfs("run", "a.svm", "-m", "variance", "-n", 3, "--workers", 0, *BOTH),
        "shuffled-labels is for methods that learn from labels",
        "--controls random-list",
    )
    fails(bigfs("run", "a.svm", "--draws", 3), "draws are of controls")
    fails(bigfs("run", "a.svm", *BOTH, "--draws", 1), "greater than or equal to 2")
    fails(bigfs("run", "a.svm", "--controls", "noise"), "'shuffled-labels' or 'random-list'")
    status, out, _ = bigfs(
        *("compare", "a.svm", "--methods", "variance,anova", "--sizes", 2, "--workers", 0),
        *("--controls", "shuffled-labels", "--draws", 2),
    )
    assert status == 0
    assert "shuffled-labels: variance learns from no labels" in out


@pytest.mark.slow
@pytest.mark.parametrize("told", daily([0.0, 1.0], 1.0))
def test_p_values_of_a_choice_are_uniform_on_noise(told):
    """Over 50 tables with 19 draws each. Where columns tell the class, hardly a draw is as high.

    A p-value stands for all between those that it would have if all or none of the equal draws were
    lower.
    """
    draws = [f"{name} {k}" for name in (controls.SHUFFLED, controls.RANDOM) for k in range(1, 20)]
    p_values = {}
    between = np.random.default_rng(0)
    for seed in range(50 if told == 0 else 5):
        rng = np.random.default_rng([7, seed])
        y = rng.permutation(np.arange(120) % 2)
        X = rng.normal(size=(120, 40)) + told * (np.arange(40) < 4) * y[:, None]
        split = Split(Matrix.from_array(X[:60]), y[:60], Matrix.from_array(X[60:]), y[60:])

        def rank(number, split, seed=seed):
            X, y, make = split.X_train, split.y_train, ANOVA(n_features_to_select=4)
            seeded = {"random_state": seed}
            sets = {"own": make.fit(X, y).selected_}
            for draw in draws:
                if controls.control_of(draw) == controls.RANDOM:
                    sets[draw] = controls.draw_list(draw, X, seeded)[:4]
                else:
                    shuffled = controls.shuffle_labels(y, draw, seeded)
                    sets[draw] = make.fit(X, shuffled).selected_
            return {name: {4: chosen} for name, chosen in sets.items()}

        points = measure([split], rank, with_all=False, scorer=Scorer("svm", with_auc=True)).points
        for metric in ("accuracy", "auc"):
            scores = {point.method: point.scores[metric] for point in points}
            own = scores.pop("own")
            for name in (controls.SHUFFLED, controls.RANDOM):
                found = [score for draw, score in scores.items() if draw.startswith(name)]
                p_value = controls.p_value(own, found)
                if told == 0:
                    p_value -= between.random() * (1 + found.count(own)) / 20
                p_values.setdefault((metric, name), []).append(p_value)
    for about, found in p_values.items():
        if told:
            assert np.mean(found) < 0.1, about
        else:
            assert kstest(found, "uniform").pvalue > 0.05, about
