"""`--features auto` against `SelectorCV`, and the user's choice of folds or a share."""

import json

import numpy as np
import pytest
from pydantic import ValidationError

from bigfs import ANOVA, SelectorCV, storage
from bigfs.evaluation.splits import held_out_split, stratified_folds
from bigfs.flows import reuse
from bigfs.flows.evaluation import selection
from bigfs.flows.evaluation.plan import MAX_WORK
from bigfs.flows.options import RunScoring
from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.commands import fails

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same three classes with and without a test half, in 40 columns, and without labels."""
    folder, rng = tmp_path_factory.mktemp("auto"), np.random.default_rng(5)
    y = np.arange(120) % 3
    counts = rng.poisson(np.where(np.arange(40) // 2 == y[:, None], 1.2, 0.5))

    def staged(name, about):
        rows = (
            {"features": {str(j): int(v) for j, v in enumerate(row) if v}} | about(i, int(c))
            for i, (c, row) in enumerate(zip(y, counts, strict=True))
        )
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
        return storage.stage(folder / f"{name}.jsonl", folder / f"{name}.zarr")

    return {
        "plain": staged("plain", lambda i, c: {"label": c}),
        "split": staged(
            "split", lambda i, c: {"label": c, "split": "test" if i % 4 == 0 else "train"}
        ),
        "bare": staged("bare", lambda i, c: {}),
    }


def evaluated(store, out, features="auto", **choices):
    run = stages.select(store, out, method="anova", features=features)
    stages.evaluate(run, **choices)
    return Run.open(stages.finish(run))


def accuracy(run, m):
    points = {(p["method"], p["n_features"]): p["accuracy"] for p in run.metadata["curves"]}
    return points["anova", m]


def test_number_is_chosen_by_the_training_half_alone(stores, tmp_path):
    run = evaluated(stores["split"], tmp_path / "r")
    corpus = storage.open(stores["split"])
    train, test = corpus.part("train"), corpus.part("test")
    expected = SelectorCV(ANOVA()).fit(train.X, train.y)
    np.testing.assert_array_equal(run.selected, expected.selected_)
    assert run.metadata["size_choice"]["sizes"] == expected.cv_results_["n_features"].tolist()
    np.testing.assert_array_equal(
        np.mean(run.metadata["size_choice"]["scores"], axis=1),
        expected.cv_results_["mean_test_score"],
    )
    assert accuracy(run, expected.n_features_) == expected.score(test.X, test.y)
    assert run.metadata["parameters"]["features"] == "auto"
    assert "the smallest within one standard error of the best" in run.metadata["evaluation"]
    assert run.metadata["evaluation"] in (run.path / "report.html").read_text()


def test_number_is_chosen_again_in_each_fold(stores, tmp_path):
    run = evaluated(stores["plain"], tmp_path / "r", folds=3)
    corpus = storage.open(stores["plain"])
    right = []
    for split in stratified_folds(corpus.X, corpus.y, 3):
        inner = SelectorCV(ANOVA()).fit(split.X_train, split.y_train)
        right.extend(inner.predict(split.X_test) == split.y_test)
    m = SelectorCV(ANOVA()).fit(corpus.X, corpus.y).n_features_
    assert len(run.selected) == m
    assert accuracy(run, m) == np.mean(right)
    assert run.metadata["measured"]["folds"] == 3
    assert run.metadata["scoring"] == {"folds": 3}
    assert "again in each fold without its test samples" in run.metadata["evaluation"]


def test_test_size_holds_out_that_share(stores, tmp_path):
    run = evaluated(stores["plain"], tmp_path / "r", features=8, test_size=0.25)
    measured = run.metadata["measured"]
    assert (measured["how"], measured["train"], measured["test"]) == ("held-out share", 90, 30)
    corpus = storage.open(stores["plain"])
    split = held_out_split(corpus.X, corpus.y, 0.25)
    assert np.bincount(split.y_test).tolist() == [10, 10, 10]
    expected = SelectorCV(ANOVA(), sizes=[8]).fit(split.X_train, split.y_train)
    assert accuracy(run, 8) == expected.score(split.X_test, split.y_test)
    assert reuse.is_scored(run, RunScoring(test_size=0.25).choices())
    assert not reuse.is_scored(run, {})


def test_folds_asked_for_are_not_too_much_work(stores, tmp_path, change):
    change(MAX_WORK, 1.0)
    run = evaluated(stores["plain"], tmp_path / "r", features=8, folds=4)
    assert run.metadata["measured"]["how"] == "nested folds"
    assert run.metadata["measured"]["folds"] == 4


def test_killed_choice_goes_on_after_its_last_fold(stores, tmp_path, monkeypatch):
    whole = evaluated(stores["plain"], tmp_path / "whole", folds=2)
    fits, usable = [], selection.usable

    def dies(selector, method, X, y):
        fits.append(X.shape[0])
        if len(fits) == 4:
            raise KeyboardInterrupt
        return usable(selector, method, X, y)

    monkeypatch.setattr(selection, "usable", dies)
    with pytest.raises(KeyboardInterrupt):
        stages.select(stores["plain"], tmp_path / "r", method="anova", features="auto")
    run = stages.select(stores["plain"], tmp_path / "r", method="anova", features="auto")
    # three folds were done, and the fourth, the fifth and the selection itself remained
    assert fits == [96] * 4 + [96, 96, 120]
    np.testing.assert_array_equal(run.selected, whole.selected)


def test_number_at_the_end_of_those_tried_is_said(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(ANOVA, "_largest_tried", 2)
    run = evaluated(stores["split"], tmp_path / "r")
    assert len(run.selected) == 2
    assert run.metadata["evaluation"].endswith("It is the largest that was tried.")


def test_command_chooses_the_number(bigfs, stores):
    status, out, _ = bigfs(
        *("select", stores["split"], "--out", "r", "--method", "anova", "--features", "auto"),
        *("--workers", "0", "--json"),
    )
    assert status == 0
    choice = json.loads(out)["size_choice"]
    assert len(Run.open("r").selected) == choice["n_features"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--features", "many"),
            "auto, percentile, fpr, fdr or fwe; got many",
        ),
        (
            ("--features", "0"),
            "auto, percentile, fpr, fdr or fwe; got 0",
        ),
        (("--cv", "3", "--test-size", "0.2"), "exclude one another"),
        (("--test-size", "1.5"), "--test-size: it must be less than 1; got 1.5"),
    ],
)
def test_bad_options_are_one_clear_line(bigfs, words, message):
    fails(bigfs("run", "nowhere", *words), message)


def test_corpora_that_do_not_suit_are_refused(bigfs, stores, tmp_path):
    fails(
        bigfs("select", stores["bare"], "--out", "r", "--method", "variance", "--features", "auto"),
        "has none to predict: give a number",
    )
    for choices in ({"folds": 3}, {"test_size": 0.2}):
        run = stages.select(stores["split"], tmp_path / "s", method="anova", features=4)
        with pytest.raises(ValueError, match="has test samples, and they score the run"):
            stages.evaluate(run, **choices)
    corpus = storage.open(stores["plain"])
    with pytest.raises(ValueError, match="leaves 2 of 120 samples for the test"):
        held_out_split(corpus.X, corpus.y, 0.01)


def test_scoring_keeps_its_choices():
    assert RunScoring(cv=3).choices() == {"folds": 3}
    assert RunScoring(test_size=0.2).choices() == {"test_size": 0.2}
    with pytest.raises(ValidationError, match="exclude one another"):
        RunScoring(cv=3, test_size=0.2)


def test_number_of_a_run_is_not_overruled_by_a_mode():
    with pytest.raises(ValueError, match="give it as the number, --features fdr"):
        selection.require_parameters("anova", 5, {"mode": "fdr"})
    selection.require_parameters("anova", 5, {"mode": "k_best"})
