"""Runs with kept and forbidden features, and runs whose number of features p-values choose."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from bigfs import ANOVA, LaplacianScore, storage
from bigfs.flows.evaluation import selection
from bigfs.flows.job import Job
from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.commands import fails


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two classes in 30 named columns, of which the first six follow them, and a store of noise."""
    folder, rng = tmp_path_factory.mktemp("knobs"), np.random.default_rng(3)
    y = np.arange(90) % 2

    def staged(name, gain, split):
        counts = rng.poisson(0.6 + gain * (np.arange(30) < 6) * y[:, None])
        rows = (
            {"text": " ".join(f"w{j}" for j in np.repeat(range(30), row)), "label": int(c)}
            | ({"split": "test" if i % 3 == 0 else "train"} if split else {})
            for i, (c, row) in enumerate(zip(y, counts, strict=True))
        )
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
        return storage.stage(folder / f"{name}.jsonl", folder / f"{name}.zarr")

    return {
        "split": staged("split", 1.2, True),
        "plain": staged("plain", 1.2, False),
        "noise": staged("noise", 0.0, False),
    }


def names_of(store, index):
    return set(storage.open(store).feature_names[np.asarray(index)])


# --- keep and forbid ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["anova", "sparge-lda"])
def test_command_keeps_and_forbids_by_name_and_by_file(bigfs, stores, tmp_path, method):
    (tmp_path / "banned.txt").write_text("w0\nw1\n\n")
    status, _, err = bigfs(
        *("select", stores["split"], "--out", "r", "--method", method, "--features", "4"),
        *("--keep", "w20, w25", "--forbid", "banned.txt", "--workers", "0"),
    )
    assert status == 0, err
    run = Run.open("r")
    chosen = names_of(stores["split"], run.selected)
    assert chosen >= {"w20", "w25"}
    assert not chosen & {"w0", "w1"}
    assert run.metadata["parameters"]["parameters"] == {
        "keep": ["w20", "w25"],
        "forbid": ["w0", "w1"],
    }
    rows = run.read_table("selected.csv")
    assert {rows[0]["name"], rows[1]["name"]} == {"w20", "w25"}
    report = (run.path / "report.html").read_text()
    assert "Must be chosen: w20, w25." in report
    assert "Must not be chosen: w0, w1." in report


def test_a_forbidden_feature_takes_no_part_in_the_graph(stores, tmp_path):
    parameters = {"forbid": ["w0", "w1"], "metric": "euclidean"}
    assert stages.build_graph(stores["plain"], "laplacian", parameters) is None
    run = stages.select(
        stores["plain"], tmp_path / "r", method="laplacian", features=3, parameters=parameters
    )
    X = storage.open(stores["plain"]).X
    allowed = np.flatnonzero(~np.isin(X.feature_names[np.arange(X.shape[1])], ["w0", "w1"]))
    dropped = LaplacianScore(n_features_to_select=3, metric="euclidean")
    dropped.fit(X.columns(allowed).tocsr())
    chosen = run.selected
    assert names_of(stores["plain"], chosen) == names_of(
        stores["plain"], allowed[dropped.selected_]
    )


def test_a_run_that_forbids_features_makes_its_own_graph(bigfs, stores):
    status, _, err = bigfs(
        *("run", stores["plain"], "--method", "laplacian", "--features", 3, "--out", "r"),
        *("--forbid", "w0,w1", "--workers", 0),
    )
    assert status == 0, err
    assert not names_of(stores["plain"], Run.open("r").selected) & {"w0", "w1"}


def test_rivals_and_folds_obey_the_constraints(stores, tmp_path, monkeypatch):
    parameters = {"keep": ["w20"], "forbid": ["w0", "w1"]}
    fitted = []
    original = selection.usable

    def seen(selector, method, X, y):
        fitted.append((method, selector.keep, selector.forbid))
        return original(selector, method, X, y)

    monkeypatch.setattr(selection, "usable", seen)
    run = stages.select(
        stores["plain"], tmp_path / "r", method="sparge-lda", features=3, parameters=parameters
    )
    stages.evaluate(run, folds=2, baselines=["anova"])
    assert len(fitted) == 5
    assert all(one[1:] == (["w20"], ["w0", "w1"]) for one in fitted)


def test_number_is_chosen_among_those_that_obey(stores, tmp_path):
    run = stages.select(
        stores["split"],
        tmp_path / "r",
        method="anova",
        features="auto",
        parameters={"keep": ["w20", "w21", "w22"], "forbid": ["w0"]},
    )
    assert run.metadata["size_choice"]["sizes"] == [3, 5, 10, 20, 29]
    assert names_of(stores["split"], run.selected[:3]) == {"w20", "w21", "w22"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keep", "nobody"), "keep: no feature is named 'nobody'"),
        (("--keep", "w1,w2", "--forbid", "w2"), "keep and forbid share 1 features, such as 'w2'"),
        (("--keep", "0,1,2,3,4"), "keep holds 5 features, but only 4 are to be selected"),
        (("--keep", ","), "--keep must name one or more features; got ','"),
        (("--keep", "w1", "--set", "keep=[2]"), "--keep is given twice: leave out --set keep="),
        (("--method", "jgsc", "--keep", "w1"), "jgsc has no parameter keep"),
        (("--metric", "macro_f1"), "--metric says what --features auto and --method auto choose"),
    ],
)
def test_bad_constraints_are_one_line_before_any_work(bigfs, stores, words, message):
    answer = bigfs(
        *("select", stores["split"], "--out", "r", "--method", "anova", "--features", "4"),
        *("--workers", "0", *words),
    )
    fails(answer, message)


# --- the number by p-values -----------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "level"), [("fdr", 0.1), ("percentile", 20)])
def test_mode_chooses_as_the_estimator(stores, tmp_path, mode, level):
    run = stages.select(
        stores["split"],
        tmp_path / "r",
        method="anova",
        features=mode,
        parameters={"param": level},
    )
    stages.evaluate(run, baselines=["chi2"])
    train = storage.open(stores["split"]).part("train")
    expected = ANOVA(mode=mode, param=level).fit(train.X, train.y).selected_
    np.testing.assert_array_equal(run.selected, expected)
    done = Run.open(stages.finish(run))
    assert done.metadata["n_features"] == len(expected)
    points = {(p["method"], p["n_features"]) for p in done.metadata["curves"]}
    assert points >= {("anova", len(expected)), ("chi2", len(expected))}
    assert f"The number of features is the choice of {mode}" in done.metadata["evaluation"]


def test_mode_is_chosen_again_in_each_fold(stores, tmp_path):
    run = stages.select(stores["plain"], tmp_path / "r", method="anova", features="fpr")
    points = stages.evaluate(run, folds=3, baselines=())
    m = len(run.selected)
    assert 0 < m < 30
    assert {p.n_features for p in points if p.method == "anova"} >= {m}
    assert "again in each fold" in run.metadata["evaluation"]


def test_command_takes_a_mode(bigfs, stores):
    status, out, err = bigfs(
        *("select", stores["split"], "--out", "r", "--method", "anova", "--features", "fwe"),
        *("--set", "param=0.01", "--workers", "0", "--json"),
    )
    assert status == 0, err
    assert json.loads(out)["n_features"] == len(Run.open("r").selected)


@pytest.mark.parametrize(
    ("method", "features", "parameters", "message"),
    [
        (
            "sparge-lda",
            "fdr",
            {},
            "p-values, which sparge-lda does not have: use one of anova",
        ),
        ("anova", 5, {"mode": "fdr"}, "give it as the number, --features fdr"),
        ("anova", "fdr", {"param": 2}, "param must be at most 1 for fdr; got 2"),
    ],
)
def test_modes_without_meaning_are_refused(method, features, parameters, message):
    with pytest.raises(ValueError, match=message):
        selection.require_parameters(method, features, parameters)


def test_a_choice_of_nothing_is_refused(stores, tmp_path):
    with pytest.raises(ValueError, match="anova accepts no feature by fwe: the least p-value is"):
        stages.select(
            stores["noise"],
            tmp_path / "r",
            method="anova",
            features="fwe",
            parameters={"param": 1e-6},
        )


# --- the metric of auto ---------------------------------------------------------------------------


def test_metric_chooses_the_number(stores, tmp_path):
    run = stages.select(
        stores["split"], tmp_path / "r", method="anova", features="auto", metric="auc"
    )
    accuracy = stages.select(stores["split"], tmp_path / "s", method="anova", features="auto")
    assert run.metadata["parameters"]["metric"] == "auc"
    assert "metric" not in accuracy.metadata["parameters"]
    assert run.metadata["size_choice"]["scores"] != accuracy.metadata["size_choice"]["scores"]
    stages.evaluate(run, metrics=["auc"], baselines=())
    assert "within one standard error of the best AUC" in run.metadata["evaluation"]


def test_metric_is_part_of_the_identity_of_auto_alone():
    def key(features, metric):
        job = Job(source="s", features=features, scoring={"metrics": metric and [metric]})
        return job.key({"content": "content"})

    assert key("auto", "auc") != key("auto", "accuracy")
    assert key(5, "auc") == key(5, "accuracy")


# --- the classifier -------------------------------------------------------------------------------


def test_a_logistic_classifier_scores_the_run_and_is_its_model(bigfs, stores):
    words = ("--method", "anova", "--features", 6, "--workers", 0, "--out", "r", "--no-prefect")
    status, _, err = bigfs("run", stores["split"], *words, "--classifier", "logistic")
    assert status == 0, err
    run = Run.open("r")
    assert run.metadata["measured"]["metrics"] == ["accuracy", "auc", "neg_log_loss"]
    assert run.metadata["evaluation"].startswith("Logistic regression, ")
    corpus = storage.open(stores["split"])
    index, (train, test) = np.sort(run.selected), (corpus.part("train"), corpus.part("test"))
    model = LogisticRegression(max_iter=10_000).fit(train.X.columns(index).tocsr(), train.y)
    Z = test.X.columns(index).tocsr()
    point = next(
        p for p in run.metadata["curves"] if p["method"] == "anova" and p["n_features"] == 6
    )
    expected = -log_loss(test.y, model.predict_proba(Z))
    assert point["neg_log_loss"] == pytest.approx(expected, rel=1e-4)
    assert run.model().linear.is_logistic
    np.testing.assert_allclose(run.model().linear.coef, model.coef_, rtol=1e-3)
    status, _, err = bigfs("run", stores["split"], *words)  # scored again, by the SVM
    assert status == 0, err
    assert not Run.open("r").model().linear.is_logistic
    answer = bigfs("run", stores["split"], *words, "--metric", "neg_log_loss")
    fails(answer, "neg_log_loss is of probabilities: give --classifier logistic too")


def test_a_comparison_may_have_a_logistic_classifier(bigfs, stores):
    words = ("--methods", "anova", "--sizes", "3,6", "--workers", 0, "--no-prefect", "--json")
    status, out, err = bigfs(
        "compare", stores["plain"], "--out", "c", *words, "--classifier", "logistic"
    )
    assert status == 0, err
    about = json.loads(out)
    assert about["metrics"] == ["accuracy", "auc", "neg_log_loss"]
    assert all(point["neg_log_loss"] < 0 for point in about["rows"][0]["points"])
