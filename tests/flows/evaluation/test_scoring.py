"""The user's choice of metrics, sizes and rivals."""

import json

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.metrics import balanced_accuracy_score
from sklearn.svm import LinearSVC

from bigfs import engine, storage
from bigfs.flows import reuse, steps
from bigfs.flows.evaluation.plan import make_plan, require_choices
from bigfs.flows.evaluation.selection import get_method
from bigfs.flows.options import RunScoring
from bigfs.result import ALL
from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.commands import fails


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of three unbalanced classes with a test half."""
    folder, rng = tmp_path_factory.mktemp("scoring"), np.random.default_rng(5)
    y = rng.choice(3, 150, p=[0.7, 0.2, 0.1])
    counts = rng.poisson(np.where(np.arange(20) // 4 == y[:, None], 1.5, 0.4))
    records = (
        {
            "features": {str(j): int(v) for j, v in enumerate(row) if v},
            "label": int(c),
            "split": "test" if i % 3 == 0 else "train",
        }
        for i, (c, row) in enumerate(zip(y, counts, strict=True))
    )
    (folder / "c.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    return storage.stage(folder / "c.jsonl", folder / "c.zarr")


def scored(store, out, **choices):
    run = stages.select(store, out, method="anova", features=8)
    stages.evaluate(run, **choices)
    stages.finish(run)
    return run


def sizes_of(run):
    return [p["n_features"] for p in run.metadata["curves"] if p["method"] == "chi2"]


def test_metrics_sizes_and_rivals_are_those_asked_for(store, tmp_path):
    choices = RunScoring(
        metrics=["balanced_accuracy", "auc"], sizes=[3, 5], against=["chi2", "gini"]
    ).choices()
    run = scored(store, tmp_path / "r", **choices)
    points = {(p["method"], p["n_features"]): p for p in run.metadata["curves"]}
    assert set(points) == {
        *((method, m) for method in ("anova", "chi2", "gini") for m in (3, 5, 8)),
        (ALL, 20),
    }
    for point in points.values():
        assert set(point) == {"method", "n_features", "balanced_accuracy", "auc"}
        assert 0.4 < point["auc"] <= 1
    train, test = (storage.open(store).part(half) for half in ("train", "test"))
    columns = np.sort(run.selected[:5])
    svm = LinearSVC(random_state=0, max_iter=10_000).fit(train.X.columns(columns), train.y)
    expected = balanced_accuracy_score(test.y, svm.predict(test.X.columns(columns)))
    assert points["anova", 5]["balanced_accuracy"] == pytest.approx(expected, rel=1e-12)
    header = (tmp_path / "r" / "curves.csv").read_text().splitlines()[0]
    assert header == "method,n_features,balanced_accuracy,auc"
    assert "balanced accuracy / AUC" in (tmp_path / "r" / "report.html").read_text()


def test_other_choices_are_another_result(store, tmp_path):
    run = scored(store, tmp_path / "r")
    assert reuse.is_scored(run, {})
    assert not reuse.is_scored(run, {"sizes": [3]})
    assert [p["n_features"] for p in run.metadata["curves"] if p["method"] == "chi2"] == [
        1,
        2,
        4,
        8,
    ]
    steps.evaluate_again(str(tmp_path / "r"), {"sizes": [3]})
    again = Run.open(tmp_path / "r")
    assert reuse.is_scored(again, {"sizes": [3]})
    assert sizes_of(again) == [3, 8]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"metrics": ["rmse"]}, "unknown metric 'rmse'; the metrics are accuracy"),
        ({"metrics": []}, "must name one metric or more"),
        ({"sizes": ["10", "x"]}, "must be a valid integer"),
        ({"sizes": [0]}, "must be greater than or equal to 1"),
        ({"against": ["lasso"]}, "unknown method 'lasso'; the methods are"),
        ({"against": ["f-classif", "fisher"]}, "anova and fisher rank features alike"),
    ],
)
def test_bad_choices_are_refused_before_any_work(bigfs, words, text):
    with pytest.raises(ValidationError, match=text.split(";")[0].removeprefix("must be")):
        RunScoring(**words)
    [(name, value)] = words.items()
    for command in ("run", "evaluate"):
        answer = bigfs(command, "nowhere", f"--{name}", ",".join(map(str, value)))
        fails(answer, text)
        assert answer[0] == 2


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ({"sizes": [9]}, "--sizes must be at most 8"),
        ({"metrics": ["r2"]}, "r2 is no metric of one class per sample; these are accuracy"),
        ({"baselines": ["sparge-cca", "nothing"]}, "unknown method 'nothing'"),
    ],
)
def test_choices_that_do_not_suit_the_corpus_are_refused(store, tmp_path, choices, text):
    run = stages.select(store, tmp_path / "r", method="anova", features=8)
    with pytest.raises(ValueError, match=text):
        stages.evaluate(run, **choices)


def test_the_command_evaluates_again_with_other_choices(bigfs, store, tmp_path):
    scored(store, tmp_path / "r")
    status, out, _ = bigfs(
        *("evaluate", "r", "--metric", "macro_f1", "--sizes", "2", "--against", "chi2"),
        *("--workers", "0", "--json"),
    )
    curves = json.loads(out)["curves"]
    assert status == 0
    assert {(p["method"], p["n_features"]) for p in curves} == {
        *((method, m) for method in ("anova", "chi2") for m in (2, 8)),
        (ALL, 20),
    }
    assert all("macro_f1" in p and "accuracy" not in p for p in curves)


@pytest.fixture(scope="module")
def without_test_half(tmp_path_factory):
    """A store of 12 samples of one class and 5 of another, without a split."""
    folder, rng = tmp_path_factory.mktemp("folds"), np.random.default_rng(1)
    lines = [f"{i < 12:d} 1:{rng.normal():.3f} 2:{rng.normal():.3f}\n" for i in range(17)]
    (folder / "c.svm").write_text("".join(lines))
    return storage.stage(folder / "c.svm", folder / "c.zarr")


def test_more_folds_than_samples_are_refused(without_test_half):
    corpus = storage.open(without_test_half)
    with pytest.raises(ValueError, match=r"--cv must be at most 12, .* largest class; got 500"):
        require_choices(corpus, get_method("anova"), 1, {"folds": 500})
    assert make_plan(corpus, corpus, get_method("anova"), 1, {"folds": 12}).measured["folds"] == 12


@pytest.mark.parametrize(("classifier", "least"), [("svm", 8 * (12 * 13 + 9)), ("logistic", 552)])
def test_a_classifier_that_fits_in_no_way_is_refused_before_the_work(
    without_test_half, classifier, least
):
    """A machine of 13 training samples and a feature takes 12 and 9 numbers of each."""
    corpus = storage.open(without_test_half)
    with engine.limit_memory(2 * least):
        require_choices(corpus, get_method("anova"), 1, {"classifier": classifier})
    with engine.limit_memory(2 * least - 2), pytest.raises(engine.MemoryLimitError) as refused:
        require_choices(corpus, get_method("anova"), 1, {"classifier": classifier})
    assert "scoring 1 features by a model of 13 training samples needs" in str(refused.value)
    assert "raise --memory-limit" in str(refused.value)
    unlabeled = storage.stage(np.eye(3), f"{corpus.uri}-unlabeled.zarr")
    require_choices(storage.open(unlabeled), get_method("anova"), 1, {})
