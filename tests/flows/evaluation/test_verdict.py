"""The verdict of a run: how its own table ranks the method that it ran."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from bigfs.evaluation.curves import Point
from bigfs.flows.evaluation.verdict import verdict
from bigfs.flows.messages import repeat_command
from bigfs.matrix.statistics import UNEQUAL_SCALES


def table(own, anova, everything=None, metric="accuracy"):
    points = [("sparge-lda", 5, own), ("anova", 5, anova), ("anova", 2, 1.0)]
    points += [] if everything is None else [("all features", 40, everything)]
    return [Point(method, m, {metric: score}) for method, m, score in points]


@pytest.mark.parametrize(
    ("own", "anova", "everything", "expected"),
    [
        (0.51, 0.86, None, "0.350 ± 0.043 behind anova in accuracy: take anova"),
        (0.86, 0.51, None, "0.350 ± 0.043 ahead of anova in accuracy"),
        # two standard errors of two shares of 200 samples are 0.080 at 0.8
        (0.80, 0.87, None, "level with anova (0.070 ± 0.037 apart) in accuracy"),
        (0.80, np.nan, None, ""),
        (
            *(0.86, 0.51, 0.86),
            "0.350 ± 0.043 ahead of anova and level with all 40 features (0.000 ± 0.035 apart) "
            "in accuracy",
        ),
        (0.51, np.nan, 0.86, "0.350 ± 0.043 behind all 40 features in accuracy: take None"),
    ],
)
def test_verdict_is_that_of_the_table(own, anova, everything, expected):
    points = table(own, anova, everything)
    assert verdict(points, "sparge-lda", 5, "accuracy", 200, "take {}".format) == expected


def test_a_score_that_is_no_share_has_the_largest_error():
    found = verdict(table(-0.5, -0.4, metric="r2"), "sparge-lda", 5, "r2", 100, "{}".format)
    assert found.startswith("level with anova")  # 0.1 is less than 2 √(0.5 / 100) = 0.14


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("run t.csv -n 5 --method=chi2 -o r -q", "bigfs run t.csv -n 5 -q --method anova"),
        ("run 'a b.csv?x=1' -m chi2", "bigfs run 'a b.csv?x=1' --method anova"),
    ],
)
def test_advice_is_the_command_with_the_change_in_it(typed, line):
    assert repeat_command(f"bigfs {typed}", method="anova") == line
    assert (
        repeat_command(f"python -m bigfs {typed}", method="anova").removeprefix("python -m ")
        == line
    )
    assert repeat_command("notebook.py", method="anova") == "--method anova"


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
    assert about["verdict"].startswith("level with anova (")
    assert " and level with all 12 features (" in about["verdict"]
    assert about["verdict"] in Path(about["run"], "report.html").read_text(encoding="utf-8")
    with pytest.warns(UserWarning, match=UNEQUAL_SCALES):
        status, out, _ = bigfs(*words, "--scale", "none")
    said = out.splitlines()[-1]
    assert said.startswith("sparge-lda: 0.")
    assert " behind anova" in said
    line = f"bigfs run '{units}' --features 3 --test-size 0.3 --workers 0 --scale standard"
    assert said.endswith(f"the units of the columns differ, so standardize them: {line}")
    assert said in bigfs("history")[1]
    assert said in {run["verdict"] for run in json.loads(bigfs("history", "--json")[1])["runs"]}


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
