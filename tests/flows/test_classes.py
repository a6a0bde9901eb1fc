"""selected.csv names the class of each feature and its p-value, classes.csv the features of each
class, and label sets and real targets have a baseline.
"""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bigfs import storage
from bigfs.storage.runs.runs import Run

CLASSES = ["low", "mid", "top"]


def write_table(file, target):
    """60 samples of 8 positive columns, of which two are large in each class."""
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(3), 20)
    X = rng.random((60, 8))
    for c in range(3):
        X[codes == c, 2 * c : 2 * c + 2] += 1
    labels = {
        "class": [CLASSES[c] for c in codes],
        "multilabel": [f"{CLASSES[c]},{CLASSES[(c + i % 2) % 3]}" for i, c in enumerate(codes)],
        "real": codes + rng.random(60),
    }[target]
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    if target == "multilabel":
        frame = frame.assign(kind=[sorted(set(label.split(","))) for label in labels])
    else:
        frame = frame.assign(kind=labels)
    frame.to_parquet(file)
    return X, codes, frame


def select(bigfs, target, method, features=6):
    words = ("run", "t.parquet?columns=x*&label=kind", "--out", "r")
    status, out, err = bigfs(
        *words, "--method", method, "--features", features, "--workers", 0, "--json"
    )
    assert status == 0, err
    return json.loads(out)


def test_the_tables_of_a_run_say_what_each_feature_stands_for(bigfs, tmp_path):
    X, codes, _ = write_table(tmp_path / "t.parquet", "class")
    select(bigfs, "class", "anova")
    chosen = pd.read_csv("r/selected.csv")
    assert list(chosen) == ["rank", "index", "name", "score", "class", "p_value"]
    assert dict(zip(chosen["index"], chosen["class"], strict=True)) == {
        j: CLASSES[j // 2] for j in range(6)
    }
    groups = [X[codes == c] for c in range(3)]
    F, p = stats.f_oneway(*groups)
    np.testing.assert_allclose(chosen["score"], F[chosen["index"]], rtol=1e-4)
    np.testing.assert_allclose(chosen["p_value"], p[chosen["index"]], rtol=1e-3)
    table = pd.read_csv("r/classes.csv")
    assert list(table) == ["class", "rank", "index", "name", "t"]
    for c, name in enumerate(CLASSES):
        rows = table[table["class"] == name]
        t = stats.ttest_ind(X[codes == c], X[codes != c]).statistic
        expected = [j for j in np.argsort(-t) if t[j] > 0 and j in set(chosen["index"])]
        assert list(rows["index"]) == expected
        assert list(rows["rank"]) == list(range(1, len(expected) + 1))
        np.testing.assert_allclose(rows["t"], t[expected], rtol=1e-4)
        assert list(rows["name"]) == [f"x{j}" for j in expected]
    assert Run.open("r").selected.tolist() == chosen["index"].tolist()
    assert (
        bigfs("transform", "r", storage.stage("t.parquet", columns="x*", label="kind"), "z")[0] == 0
    )


def test_a_method_without_p_values_and_a_target_without_classes_have_no_such_columns(
    bigfs, tmp_path
):
    write_table(tmp_path / "t.parquet", "real")
    about = select(bigfs, "real", "sparge-cca")
    assert (tmp_path / "r" / "selected.csv").read_text().startswith("rank,index,name,score\n")
    assert not (tmp_path / "r" / "classes.csv").exists()
    assert {"sparge-cca", "f-regression"} <= {point["method"] for point in about["curves"]}


def test_label_sets_have_a_baseline_and_a_table_for_each_label(bigfs, tmp_path):
    X, _, frame = write_table(tmp_path / "t.parquet", "multilabel")
    about = select(bigfs, "multilabel", "sparge-cca")
    assert {"sparge-cca", "anova"} <= {point["method"] for point in about["curves"]}
    assert "no baselines" not in about["evaluation"]
    table = pd.read_csv("r/classes.csv")
    has = frame["kind"].map(lambda labels: "mid" in labels).to_numpy()
    t = stats.ttest_ind(X[has], X[~has]).statistic
    rows = table[table["class"] == "mid"]
    np.testing.assert_allclose(rows["t"], t[rows["index"]], rtol=1e-4)


def test_a_class_without_samples_owns_no_feature():
    from bigfs.flows.steps import _class_rows, _class_sizes

    y = np.array([0, 0, 2, -1])
    sizes = _class_sizes(y, 3)
    assert sizes.tolist() == [2, 0, 1]
    profile = np.array([[0.5, 9.0, -1.0], [-0.5, 9.0, 1.0]])
    assert {row[0] for row in _class_rows(profile, sizes, 3)} == {0, 2}


@pytest.mark.parametrize("method", ["laplacian", "variance"])
def test_an_unsupervised_choice_from_labeled_samples_names_classes_too(bigfs, tmp_path, method):
    write_table(tmp_path / "t.parquet", "class")
    select(bigfs, "class", method)
    assert set(pd.read_csv("r/selected.csv")["class"]) <= set(CLASSES)


def test_a_method_of_images_says_that_it_has_vectors(bigfs, tmp_path):
    write_table(tmp_path / "t.parquet", "class")
    words = ("run", "t.parquet?columns=x*&label=kind", "--method", "smr", "--features", 3)
    with pytest.warns(UserWarning, match="the samples are taken as vectors"):
        assert bigfs(*words, "--out", "r", "--workers", 0)[0] == 0
    assert any("taken as vectors" in hint for hint in Run.open("r").metadata["hints"])
    words = (*words, "--set", "sample_shape=[4,2]")
    assert bigfs(*words, "--out", "s", "--workers", 0)[0] == 0
