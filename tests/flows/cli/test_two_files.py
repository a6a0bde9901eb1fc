"""Training and test samples that lie apart: each journey is one command."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file

from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails


def table(n, seed):
    """A table whose classes differ in the columns `a` and `b`."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {f"n{j}": rng.normal(size=n).round(3) for j in range(6)}
    signal = {"a": y + rng.normal(size=n) / 2, "b": rng.normal(size=n) - y}
    return pd.DataFrame({**columns, **signal, "bought": np.where(y, "yes", "no")})


def split_of(out):
    return Run.open(out).metadata["measured"]


RUN = ("--method", "anova", "--features", 2, "--workers", 0, "--out", "r")


def test_a9a_with_its_test_file(bigfs, tmp_path):
    for name, n, d in (("a9a", 90, 12), ("a9a.t", 40, 11)):
        rng = np.random.default_rng(n)
        X, y = (rng.random((n, d)) < 0.3).astype(float), rng.choice([-1, 1], n)
        X[:, 4] = y > 0
        dump_svmlight_file(X, y, str(tmp_path / name), zero_based=False)
    status, _, _ = bigfs("run", "a9a", "--test", "a9a.t", "--store", "s.zarr", *RUN)
    assert status == 0
    measured = split_of("r")
    assert (measured["how"], measured["train"], measured["test"]) == ("test half", 90, 40)
    assert 4 in pd.read_csv("r/selected.csv")["name"].to_numpy()
    assert json.loads(bigfs("info", "s.zarr", "--json")[1])["options"] == {
        "test": str(tmp_path / "a9a.t")
    }


def test_a_folder_of_hugging_face_with_three_splits(bigfs, tmp_path):
    (tmp_path / "posts" / "data").mkdir(parents=True)
    for name, n in (("train", 60), ("validation", 20), ("test", 24)):
        path = tmp_path / "posts" / "data" / f"{name}-00000-of-00001.parquet"
        table(n, n).to_parquet(path, index=False)
    words = ("run", "posts", "--label", "bought", "--split-map", "validation=train", *RUN)
    assert bigfs(*words)[0] == 0
    measured = split_of("r")
    assert (measured["how"], measured["train"], measured["test"]) == ("test half", 80, 24)
    assert set(pd.read_csv("r/selected.csv")["name"]) == {"a", "b"}


def test_two_files_of_which_one_has_no_labels(bigfs, tmp_path):
    table(60, 0).to_csv("train.csv", index=False)
    table(20, 1).drop(columns="bought").to_csv("test.csv", index=False)
    status, _, err = bigfs("run", "train.csv", "--label", "bought", "--test", "test.csv", *RUN)
    assert status == 0
    assert "test.csv: row 0 (from 0): the test samples have no labels" in err
    assert split_of("r")["how"] == "nested folds"
    status, out, _ = bigfs("predict", "r", "test.csv", "p.csv", "--json")
    assert status == 0
    assert json.loads(out)["rows"] == 20


def test_the_folder_of_a_competition_is_refused_with_what_works_when_typed(bigfs, tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    table(60, 0).to_csv(folder / "train.csv", index=False)
    table(20, 1).drop(columns="bought").to_csv(folder / "test.csv", index=False)
    fails(
        bigfs("run", "shop", "--label", "bought", *RUN),
        "shop has no column 'bought'",
        "give the training file alone and the other as test=",
    )
    files = ("shop/train.csv", "--label", "bought", "--test", "shop/test.csv")
    assert bigfs("run", *files, *RUN)[0] == 0
    assert split_of("r")["how"] == "nested folds"
    assert bigfs("predict", "r", "shop/test.csv", "out.csv", "--workers", 0)[0] == 0
    assert len(pd.read_csv("out.csv")) == 20


def test_a_table_without_labels_is_answered_with_the_columns_that_may_hold_them(bigfs):
    table(60, 0).assign(grade=np.arange(60) % 4).to_csv("t.csv", index=False)
    answer = bigfs("run", "t.csv", *RUN)
    fails(
        answer,
        "has no labels: give --label, one of 'bought' (2 values), 'grade' (4 values), or use",
    )


@pytest.mark.parametrize("words", [("look", "a9a"), ("append", "a9a", "s.zarr")])
def test_only_what_stages_takes_a_test_file(bigfs, tmp_path, words):
    (tmp_path / "a9a").write_text("1 1:1\n-1 2:1\n")
    assert bigfs(*words, "--test", "a9a")[0] == 2
