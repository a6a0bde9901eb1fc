"""Groups, times and weights of samples: wherever folds are made, and in the words of a run."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.model_selection import GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bigfs import ANOVA, Matrix, SelectorCV, SparGE, SparGECV, storage
from bigfs.evaluation import splits
from bigfs.flows.evaluation import selection
from bigfs.flows.evaluation.choosing import Chooser
from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails

DONORS, EACH, D = 24, 10, 30
SERIAL = ("--workers", 0)


def leaking():
    """Donors of one class each, whose columns know the donor and nothing else of the class.

    The first column is the number of the donor, so that a matrix tells whose rows it has.
    """
    rng = np.random.default_rng(3)
    donor = np.repeat(np.arange(DONORS), EACH)
    X = 3 * rng.normal(size=(DONORS, D))[donor] + rng.normal(size=(len(donor), D))
    order = rng.permutation(len(donor))
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)])
    table.insert(0, "number", donor + 1)
    table["type"], table["donor"] = np.where(donor % 2, "B", "T"), [f"d{i}" for i in donor]
    table["day"] = (donor * 7) % 5 + 2 * (np.arange(len(donor)) % EACH)
    table["w"] = rng.integers(0, 4, len(donor))
    return table.iloc[order].reset_index(drop=True)


@pytest.fixture
def path(tmp_path):
    leaking().to_csv(tmp_path / "cells.csv", index=False)
    return "cells.csv?columns=number,x*&label=type"


@pytest.fixture
def made(monkeypatch):
    """Every split that is made: the donors of its training and of its test rows."""
    kept = []

    def noted(*given, split_at=splits.split_at):
        split = split_at(*given)
        kept.append([donors_of(part) for part in (split.X_train, split.X_test)])
        return split

    monkeypatch.setattr(splits, "split_at", noted)
    return kept


def donors_of(X):
    return set(X.columns(np.array([0])).toarray().ravel().tolist())


def run_of(answer):
    status, out, err = answer
    assert status == 0, err
    [report] = [line for line in out.splitlines() if line.startswith("report: ")]
    return Run.open(report.removeprefix("report: ").removesuffix("/report.html"))


RUN = ("--method", "anova", "--features", 8, *SERIAL)
AUTO = ("--method", "anova", *SERIAL)
METHODS = ("--methods", "anova,variance", "--sizes", "4", *SERIAL)


@pytest.mark.parametrize(
    ("words", "n_splits"),
    [
        (("run", "SOURCE", *RUN), 5),
        (("run", "SOURCE", *RUN, "--cv", 3), 3),
        (("run", "SOURCE", *RUN, "--test-size", 0.25), 1),
        (("run", "SOURCE", "--features", "auto", *AUTO, "--cv", 2), 5 + 2 + 2 * 5),
        (("compare", "SOURCE", "--out", "out", *METHODS, "--cv", 3), 3),
    ],
)
def test_no_group_is_in_both_parts_by_any_command(bigfs, path, made, words, n_splits):
    status, _, err = bigfs(*(f"{path}&group=donor" if word == "SOURCE" else word for word in words))
    assert status == 0, err
    assert len(made) == n_splits
    for train, test in made:
        assert train
        assert test
        assert not train & test
        assert len(train | test) <= DONORS


@pytest.mark.parametrize("fit", [SelectorCV.fit, SelectorCV.cross_val_score])
def test_no_group_is_in_both_parts_of_selector_cv(made, fit):
    table = leaking()
    X, y = table.filter(regex="number|x").to_numpy(), table["type"].to_numpy()
    fit(SelectorCV(ANOVA(), sizes=[2, 4], cv=3), X, y, groups=table["donor"])
    assert len(made) == (3 if fit is SelectorCV.fit else 5 + 5 * 3)
    assert all(train and test and not train & test for train, test in made)


@pytest.mark.parametrize("unlabeled", [False, True])
def test_no_group_is_in_both_parts_of_sparge_cv(monkeypatch, unlabeled):
    table = leaking()
    X, y = table.filter(regex="number|x").to_numpy(), (table["donor"].str[1:].astype(int) % 2)
    y = y.to_numpy() + 1
    if unlabeled:
        X, y[:40] = Matrix.from_array(X), -1
    donor = table["donor"].to_numpy()[y > 0]
    folds = []

    def noted(self, *given, make=SparGECV._folds):
        folds.extend(make(self, *given))
        return folds

    monkeypatch.setattr(SparGECV, "_folds", noted)
    selector = SparGECV(n_features_to_select=4, gammas=[0.3, 1.0], cv=3)
    selector.fit(X, y, groups=table["donor"])
    assert len(folds) == 3
    for train, test in folds:
        assert not set(donor[train]) & set(donor[test])
        assert len(train) + len(test) == len(donor)
    # what follows the folds is as before
    expected = SparGE(n_features_to_select=4, gamma=selector.gamma_).fit(X, y)
    np.testing.assert_array_equal(selector.selected_, expected.selected_)
    folds.clear()
    selector.fit(X, y)  # it does not remember groups
    assert any(set(donor[train]) & set(donor[test]) for train, test in folds)


@pytest.mark.parametrize(
    "selector",
    [
        SelectorCV(ANOVA(), sizes=[2, 4], cv=2),
        SparGECV(n_features_to_select=4, gammas=[0.3, 1.0], cv=GroupKFold(3)),
    ],
)
def test_groups_reach_a_selector_by_the_metadata_of_scikit_learn(selector):
    table, given = leaking(), []
    X, y, groups = table.filter(regex="x").to_numpy(), table["type"], table["donor"].to_numpy()

    class Noted(type(selector)):
        def fit(self, X, y=None, groups=None):
            given.append(groups)
            return super().fit(X, y, groups)

    noted = Noted(**selector.get_params(deep=False))
    with config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(noted.set_fit_request(groups=True), LinearSVC())
        cross_validate(
            pipeline, X, y, cv=GroupKFold(3), params={"groups": groups}, error_score="raise"
        )
    assert [len(part) for part in given] == [160] * 3
    assert all(len(set(part)) == DONORS * 2 // 3 for part in given)


@pytest.mark.parametrize("selector", [SelectorCV(ANOVA(), sizes=[2]), SparGECV(gammas=[1.0])])
def test_groups_must_be_there_for_each_sample(selector):
    table = leaking()
    X, y, groups = table.filter(regex="x").to_numpy(), table["type"], table["donor"].to_numpy()
    with pytest.raises(ValueError, match="a group for each of 240 samples; got \\(239,\\)"):
        selector.fit(X, y, groups=groups[1:])
    with pytest.raises(ValueError, match="got a missing one"):
        selector.fit(X, y, groups=[None, *groups[1:]])
    with pytest.raises(ValueError, match=r"need as many groups|two groups each"):
        selector.fit(X, y, groups=np.where(groups == "d0", "a", "b"))


def test_folds_by_row_are_fooled_by_a_group_that_knows_the_class(bigfs, path):
    table, scores = leaking(), {}
    for group in ("", "&group=donor"):
        words = "--method", "anova", "--features", D, *SERIAL
        rows = run_of(bigfs("run", f"{path}{group}", *words)).metadata["curves"]
        (scores[group],) = (
            row["accuracy"] for row in rows if (row["method"], row["n_features"]) == ("anova", D)
        )
    assert scores[""] > 0.85
    assert scores["&group=donor"] < 0.65
    assert (table["type"] == "B").mean() == 0.5


def test_a_run_says_how_groups_times_and_weights_were_used(bigfs, path):
    run = run_of(bigfs("run", f"{path}&group=donor", *RUN))
    told = run.metadata["evaluation"]
    assert "Linear SVM, 5 folds in which no donor is in both parts." in told
    assert told in (run.path / "report.html").read_text()
    assert run.metadata["measured"]["roles"] == {"group": "donor"}
    run = run_of(bigfs("run", f"{path}&group=donor", "--features", "auto", *AUTO))
    told = run.metadata["evaluation"]
    assert "by 5 folds of the training samples in which no donor is in both parts" in told
    run = run_of(bigfs("run", f"{path}&time=day", *RUN))
    assert "folds in which the training samples are earlier by day" in run.metadata["evaluation"]
    run = run_of(bigfs("run", f"{path}&time=day", *RUN, "--test-size", 0.25))
    assert ", the latest), where the training samples are" in run.metadata["evaluation"]
    fails(
        bigfs("run", f"{path}&group=donor", *RUN, "--cv", 30),
        "--cv must be at most 24",
        "values of donor",
    )


def test_groups_in_both_given_halves_are_told(bigfs, path, tmp_path):
    table = leaking()
    for number, split in enumerate(
        (np.arange(len(table)) % 3, table["donor"].str[1:].astype(int) // 2 % 4)
    ):
        halves = table.assign(split=np.where(split, "train", "test"))
        halves.to_csv(tmp_path / "cells.csv", index=False)
        run = run_of(bigfs("run", f"{path}&group=donor", *RUN, "--out", f"run{number}"))
        told, measured = run.metadata["evaluation"], run.metadata["measured"]
        assert measured["how"] == "test half"
        if number == 0:
            both = halves.groupby("donor")["split"].nunique().eq(2).sum()
            assert measured["groups_in_both"] == both > 20
            assert f"Of the values of donor, {both} are in both parts" in told
            assert "no donor is in both parts" not in told
        else:
            assert ", where no donor is in both parts." in told


# --- weights --------------------------------------------------------------------------------------


def test_weights_reach_a_method_that_takes_them(bigfs, path):
    run = run_of(bigfs("run", f"{path}&sample_weight=w", *RUN))
    table = leaking()
    X = table.filter(regex="number|x").to_numpy(np.float32).astype(np.float64)
    repeated = np.repeat(np.arange(len(table)), table["w"])
    expected = ANOVA(n_features_to_select=8).fit(X[repeated], table["type"].to_numpy()[repeated])
    np.testing.assert_allclose(run.scores, expected.scores_, rtol=1e-9)
    assert run.metadata["hints"] == []
    assert "The scores weigh all samples alike, whatever their w." in run.metadata["evaluation"]


def test_folds_and_compare_hand_weights_over(bigfs, path, monkeypatch):
    given = []

    def noted(selector, X, y, samples, make=selection.fit_options):
        options = make(selector, X, y, samples)
        given.append((X.shape[0], options))
        assert len(options["sample_weight"]) == X.shape[0]
        return options

    monkeypatch.setattr(selection, "fit_options", noted)
    source = f"{path}&sample_weight=w"
    assert bigfs("run", source, *RUN, "--cv", 3)[0] == 0
    assert len(given) >= 4  # all samples, and three folds
    given.clear()
    assert bigfs("compare", source, "--out", "out", *METHODS, "--cv", 3)[0] == 0
    assert len(given) == 2 * 4


@pytest.mark.filterwarnings("default:.*does not use sample_weight")
def test_a_method_without_weights_says_so(bigfs, path):
    run = run_of(
        bigfs("run", f"{path}&sample_weight=w", "--method", "sparge-lda", "--features", 4, *SERIAL)
    )
    assert any("does not use sample_weight=w" in hint for hint in run.metadata["hints"])
    assert "does not use sample_weight=w" in (run.path / "report.html").read_text()


def test_info_and_run_agree_on_the_roles(bigfs, path):
    assert bigfs("stage", f"{path}&group=donor", "cells.zarr", *SERIAL)[0] == 0
    assert json.loads(bigfs("info", "cells.zarr", "--json")[1])["roles"] == {"group": "donor"}
    run = run_of(bigfs("run", "cells.zarr", *RUN))
    assert run.metadata["measured"]["roles"] == storage.open("cells.zarr").roles


# --- folds that cannot be scored ------------------------------------------------------------------

NO_AUC = "its test samples have one class, and no AUC"
OF_FIVE = ("t.csv?columns=x*&label=type&group=donor", "--out", "out", *SERIAL)


def write_five(folder, has_b):
    """Write the samples of five donors, of which some have both classes, and the others A alone."""
    donor = np.repeat(np.arange(5), 12)
    y = np.where(np.array(has_b)[donor] & np.arange(60) % 2, "B", "A")
    X = np.random.default_rng(0).poisson(1.0, (60, 8)) + 2.0 * (y == "B")[:, None]
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    table.assign(type=y, donor=[f"d{i}" for i in donor]).to_csv(folder / "t.csv", index=False)


@pytest.mark.parametrize(
    ("has_b", "metrics", "left_out", "said"),
    [
        ([1, 1, 1, 0, 1], "accuracy", [], "5 folds in which no donor is in both parts"),
        ([1, 1, 1, 0, 1], "accuracy,auc", [NO_AUC], f"1 of 5 folds was left out: {NO_AUC}."),
        ([1, 0, 0, 1, 0], "auc", [NO_AUC] * 3, f"3 of 5 folds were left out: {NO_AUC}."),
    ],
)
def test_a_fold_without_an_auc_is_left_out_and_told(
    bigfs, tmp_path, has_b, metrics, left_out, said
):
    write_five(tmp_path, has_b)
    words = ("--method", "anova", "--features", 3, "--metrics", metrics)
    run = run_of(bigfs("run", *OF_FIVE, *words))
    measured = run.metadata["measured"]
    assert (measured["folds"], measured.get("left_out", [])) == (5 - len(left_out), left_out)
    assert said in run.metadata["evaluation"]
    assert said in (run.path / "report.html").read_text()


def test_a_comparison_leaves_the_same_fold_out(bigfs, tmp_path):
    write_five(tmp_path, [1, 1, 1, 0, 1])
    words = ("--methods", "anova,variance", "--sizes", 2, "--metrics", "auc")
    status, _, err = bigfs("compare", *OF_FIVE, *words)
    assert status == 0, err
    about = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert about["measured"]["folds"] == 4
    assert f"1 of 5 folds was left out: {NO_AUC}." in about["evaluation"]


def test_no_fold_with_an_auc_is_an_error(bigfs, tmp_path):
    write_five(tmp_path, [1, 1, 1, 1, 1])
    table = pd.read_csv(tmp_path / "t.csv")
    table.assign(type=np.where(table["donor"] < "d2", "A", "B")).to_csv("t.csv", index=False)
    words = ("--method", "anova", "--features", 3, "--metrics", "auc")
    fails(bigfs("run", *OF_FIVE, *words), "no fold could be scored", "choose another metric")


def test_a_fold_in_which_no_choice_can_be_made_is_left_out_and_told(bigfs, tmp_path, monkeypatch):
    write_five(tmp_path, [1, 1, 1, 1, 1])
    folds = []

    def choose(self, checkpoint, best=Chooser.best):
        folds.append(self.X.shape[0])
        if len(folds) in bad:
            raise ValueError("the batch t3 has one sample")
        return best(self, checkpoint)

    monkeypatch.setattr(Chooser, "best", choose)
    words = ("--method", "anova", "--features", 3, "--fresh")
    bad = {3}
    run = run_of(bigfs("run", *OF_FIVE, *words))
    measured = run.metadata["measured"]
    assert (measured["folds"], measured["left_out"]) == (4, ["the batch t3 has one sample"])
    assert "1 of 5 folds was left out: the batch t3 has one sample." in run.metadata["evaluation"]
    bad = set(range(1000))
    fails(bigfs("run", *OF_FIVE, *words), "the batch t3 has one sample")


def test_a_method_of_a_comparison_says_in_which_fold_it_cannot_choose(bigfs, tmp_path, monkeypatch):
    write_five(tmp_path, [1, 1, 1, 1, 1])
    calls = []

    def choose(self, *given, sets=Chooser.sets):
        calls.append(self.method)
        if calls[-1] == "anova" and len(calls) == 4:  # once on all samples, then in each fold
            raise ValueError("the batch t3 has one sample")
        return sets(self, *given)

    monkeypatch.setattr(Chooser, "sets", choose)
    assert bigfs("compare", *OF_FIVE, "--methods", "anova,variance", "--sizes", 2)[0] == 0
    rows = json.loads((tmp_path / "out" / "compare.json").read_text())["rows"]
    errors = {row["method"]: row["error"] for row in rows}
    assert errors["anova"] == "in fold 3 of 5: the batch t3 has one sample"
    assert not errors["variance"]
