"""The verdict of a run: how its own table ranks the method that it ran."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from bigfs.evaluation.curves import Point
from bigfs.flows.evaluation.verdict import verdict
from bigfs.matrix.statistics import UNEQUAL_SCALES


def table(own, anova, metric="accuracy"):
    points = [
        ("sparge-lda", 5, own),
        ("anova", 5, anova),
        ("anova", 2, 1.0),
        ("all features", 5, 1.0),
    ]
    return [Point(method, m, {metric: score}) for method, m, score in points]


@pytest.mark.parametrize(
    ("own", "anova", "hints", "expected"),
    [
        (0.51, 0.86, [], "anova is 0.350 ahead in accuracy: take it, or compare more methods"),
        (
            0.51,
            0.86,
            [f"{UNEQUAL_SCALES}: …"],
            "ahead in accuracy: the units of the columns differ",
        ),
        (0.86, 0.51, [], "0.350 ahead of anova in accuracy"),
        # two standard errors of two shares of 200 samples are 0.080 at 0.8
        (0.80, 0.87, [], "level with anova in accuracy, which is 0.070 apart"),
        (0.80, np.nan, [], ""),
    ],
)
def test_verdict_is_that_of_the_table(own, anova, hints, expected):
    found = verdict(table(own, anova), "sparge-lda", 5, "accuracy", 200, hints)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_score_that_is_no_share_has_the_largest_error():
    found = verdict(table(-0.5, -0.4, "r2"), "sparge-lda", 5, "r2", 100, [])
    assert found.startswith("level with anova")  # 0.1 is less than 2 √(0.5 / 100) = 0.14


def in_two_units():
    """Return a table of two classes, with half of the columns of noise in thousands."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = rng.normal(size=(300, 12))
    X[:, :3] += 2 * y[:, None]
    X[:, 6:] *= 1000
    return X, y


@pytest.fixture
def units(tmp_path, monkeypatch):
    X, y = in_two_units()
    names = [*(f"c{j}" for j in range(12)), "label"]
    np.savetxt(
        tmp_path / "t.csv",
        np.column_stack([X, y]),
        "%.9g",
        ",",
        header=",".join(names),
        comments="",
    )
    monkeypatch.chdir(tmp_path)
    return "t.csv?columns=*"


def test_a_run_ends_with_the_verdict_of_its_table(bigfs, units):
    words = "run", units, "--features", 3, "--test-size", 0.3, "--workers", 0
    status, out, err = bigfs(*words, "--json")
    assert status == 0, err
    about = json.loads(out)
    read = next(stage["read"] for stage in about["stages"] if "read" in stage)
    assert "columns standardized, because their units differ" in read
    assert about["verdict"].startswith("level with anova in accuracy")
    assert about["verdict"] in Path(about["run"], "report.html").read_text(encoding="utf-8")
    with pytest.warns(UserWarning, match=UNEQUAL_SCALES):
        status, out, _ = bigfs(*words, "--scale", "none")
    assert "sparge-lda: anova is 0." in out
    assert "the units of the columns differ" in out


def test_the_verdict_names_the_units_of_any_format(bigfs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = in_two_units()
    np.savez("t.npz", X=X, y=y)
    dump_svmlight_file(X, y, "t.svm")
    for source in ("t.npz", "t.svm"):
        words = "run", source, "--features", 3, "--test-size", 0.3, "--workers", 0
        with pytest.warns(UserWarning, match=UNEQUAL_SCALES):
            _, out, _ = bigfs(*words, "--scale", "none")
        assert "the units of the columns differ" in out
