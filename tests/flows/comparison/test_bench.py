"""The bench of a comparison and its standings, without Prefect: what is chosen, scored and kept."""

import json
from types import MappingProxyType

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student_t
from sklearn.svm import LinearSVC

from bigfs import ANOVA, L1SVM, SparGE, engine, stability, storage
from bigfs.evaluation import linear_model
from bigfs.evaluation.significance import choice_stability
from bigfs.flows.comparison import bench, standings
from bigfs.flows.comparison.bench import Bench
from bigfs.flows.comparison.outcomes import write_outcome
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.evaluation import selection
from bigfs.result import ALL, Status
from bigfs.selectors.registry import METHODS
from tests.helpers import stages
from tests.helpers.processes import write_corpus
from tests.helpers.stores import write_svmlight

SIZES = (3, 6, 12)


def bench_of(store, folder, methods, sizes, metrics=(), scoring=MappingProxyType({}), **more):
    given = {"methods": methods, "sizes": list(sizes)}
    given["scoring"] = {"metrics": list(metrics) or None, **scoring}
    return Bench(Comparison(source=store, store=store, out=str(folder), **given, **more))


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A corpus of three classes with a test half of twenty documents."""
    monkeypatch.chdir(tmp_path)
    return stages.stage(write_corpus(tmp_path / "corpus.jsonl", seed=3, rows=600), "c.zarr")[
        "store"
    ]


@pytest.fixture
def own(store, tmp_path):
    return bench_of(store, tmp_path / "out", ["anova"], SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["anova", "l1-svm", "sparge-lda"])
def test_each_size_is_the_methods_own_choice(own, method):
    """By a ranking, by a fit for each size, and by one path."""
    outcome = own.run(method)
    make = {"anova": ANOVA, "l1-svm": L1SVM, "sparge-lda": SparGE}[method]
    for m, index in outcome.sets.items():
        fitted = make(n_features_to_select=m).fit(own.train.X, own.train.y)
        assert sorted(index) == sorted(fitted.selected_)
    assert outcome.figures["fits"] == {"anova": 1, "l1-svm": 3, "sparge-lda": 1}[method]
    # scores at hand count no pass
    assert (outcome.figures["passes"] > 0) == (method != "anova")


def test_a_result_that_lacked_memory_is_made_again(own):
    outcome = own.run("anova")
    for status, is_kept in ((Status.MAX_ITER, True), (Status.MEMORY, False)):
        figures = outcome.figures | {"not_converged": [str(status)]}
        write_outcome(own.file("anova"), outcome._replace(figures=figures), own.key("anova"))
        assert (own.find("anova") is not None) == is_kept


def test_scores_and_losses_are_those_of_a_linear_svm(own):
    outcome = own.run("anova")
    test = own.corpus.part("test")
    for point, losses in zip(outcome.points, outcome.losses, strict=True):
        index = np.sort(outcome.sets[point["n_features"]])
        model = LinearSVC(random_state=0).fit(own.train.X.columns(index).tocsr(), own.train.y)
        predicted = model.predict(test.X.columns(index).tocsr())
        np.testing.assert_array_equal(losses, predicted != test.y)
        assert point["accuracy"] == np.mean(predicted == test.y)
        Z = own.train.X.columns(index).toarray()
        correlations = np.abs(np.corrcoef(Z, rowvar=False))[np.triu_indices(len(index), 1)]
        assert point["redundancy"] == pytest.approx(correlations.mean(), rel=1e-5)


def test_redundancy_is_missing_where_its_correlations_do_not_fit(own, monkeypatch):
    def allow(projected, what, limit=None):
        if "correlations" in what and projected > 4 * 8 * 6 * 6:
            raise engine.MemoryLimitError(what)

    monkeypatch.setattr(engine, "require_memory", allow)
    found = own._redundancies({m: np.arange(m) for m in (6, 7)})
    assert found[6] > 0
    assert found[7] is None


def test_a_result_is_kept_until_something_changes(own, store, tmp_path):
    assert own.find("anova") is None
    outcome = own.run("anova")
    found = own.find("anova")
    assert found.points == outcome.points
    assert found.figures == outcome.figures
    np.testing.assert_array_equal(found.losses, outcome.losses)
    assert {m: index.tolist() for m, index in found.sets.items()} == {
        m: index.tolist() for m, index in outcome.sets.items()
    }
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"results"}
    for sizes, metrics in (((3, 6), ()), (SIZES, ("macro_f1",))):
        assert bench_of(store, tmp_path / "out", ["anova"], sizes, metrics).find("anova") is None
    file = own.file("anova")
    file.write_bytes(file.read_bytes()[:-40])
    assert own.find("anova") is None  # it is made again


def test_without_a_test_half_each_fold_chooses_again_and_graphs_are_shared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = stages.stage(str(write_svmlight(tmp_path / "c.svm", 60)))["store"]
    made, seen = [], []

    def counted(X, k, **more):
        made.append((X.shape[0], k))
        return bench_knn(X, k, **more)

    def noted(selector, method, X, y, usable=selection.usable):
        seen.append((method, X.shape[0]))
        return usable(selector, method, X, y)

    bench_knn = bench.knn
    monkeypatch.setattr(bench, "knn", counted)
    monkeypatch.setattr(selection, "usable", noted)
    methods = ["laplacian", "lsdf"]
    own = bench_of(store, tmp_path / "out", methods, [4])
    assert own.measured["how"] == "nested folds"
    outcomes = [own.run(method) for method in methods]
    assert made == [(48, 5)] * 5
    assert seen == [(method, n) for method in methods for n in (60, 48, 48, 48, 48, 48)]
    assert [outcome.losses.shape for outcome in outcomes] == [(1, 60)] * 2
    for outcome in outcomes:
        assert outcome.points[0]["accuracy"] == pytest.approx(1 - outcome.losses[0].mean())
        # folds of twelve samples each
        np.testing.assert_allclose(
            outcome.split_scores[:, 0].mean(), outcome.points[0]["accuracy"], rtol=1e-12
        )
    table = standings.make_standings(own, outcomes, {})
    assert table["test"] == "corrected t"
    by_name = {outcome.method: outcome for outcome in outcomes}
    first, second = (by_name[row["method"]] for row in table["rows"])
    differences = (second.split_scores - first.split_scores)[:, 0]
    discordant = np.count_nonzero(first.losses[0] != second.losses[0])
    variance = max(differences.var(ddof=1), 5 * discordant / 60**2)
    statistic = differences.mean() / np.sqrt((1 / 5 + 1 / 4) * variance)
    point = table["rows"][1]["points"][0]
    assert point["p_value"] == pytest.approx(2 * student_t.sf(abs(statistic), 4))
    for row in table["rows"]:
        sets = [choice[4] for choice in by_name[row["method"]].again]
        assert len(sets) == 5
        assert row["points"][0]["repeat_overlap"] == choice_stability(sets, 40).overlap
    assert "over the choices from the 5 folds" in " ".join(standings.explanation(table))


@pytest.mark.parametrize(
    ("given", "how", "tested"),
    [({"cv": 3}, "nested folds", [20, 20, 20]), ({"test_size": 0.25}, "held-out share", [15])],
)
def test_folds_and_shares_are_those_asked_for(tmp_path, monkeypatch, given, how, tested):
    monkeypatch.chdir(tmp_path)
    store = stages.stage(str(write_svmlight(tmp_path / "c.svm", 60)))["store"]
    own = bench_of(store, tmp_path / "out", ["anova"], [4], scoring=given)
    assert own.measured["how"] == how
    assert [split.X_test.shape[0] for split in own.splits] == tested
    outcome = own.run("anova")
    assert outcome.split_scores.shape == (len(tested), 1)
    assert len(outcome.again) == len(tested)
    assert bench_of(store, tmp_path / "out", ["anova"], [4]).find("anova") is None


def test_subsamples_measure_the_stability_where_there_are_no_folds(store, own, tmp_path):
    assert standings.cost_rows(standings.make_standings(own, [own.run("anova")], {}))[1][7] == "–"
    asked = bench_of(store, tmp_path / "out", ["anova"], SIZES, subsamples=3)
    assert asked.find("anova") is None
    outcome = asked.run("anova")
    table = standings.make_standings(asked, [outcome], {})
    for point in table["rows"][0]["points"]:
        m = point["n_features"]
        found = stability(
            ANOVA(n_features_to_select=m), asked.train.X, asked.train.y, n_subsamples=3
        )
        assert point["stability"] == pytest.approx(found.index)
    kept = asked.find("anova")
    assert [sorted(part) for part in kept.again] == [sorted(SIZES)] * 3
    for part, other in zip(kept.again, outcome.again, strict=True):
        np.testing.assert_array_equal(part[3], other[3])
    assert "3 random halves" in " ".join(standings.explanation(table))


@pytest.mark.parametrize("given", [{"cv": 3}, {"test_size": 0.2}])
def test_a_corpus_with_test_samples_is_not_split_again(store, tmp_path, given):
    with pytest.raises(ValueError, match="has test samples"):
        bench_of(store, tmp_path / "out", ["anova"], SIZES, scoring=given)


def test_a_killed_method_goes_on(own, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bench, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            own.run("sparge-lda")
    (saved,) = (own.folder / ".work").rglob("*.npz")
    assert saved.name.startswith("sparge-path-")
    loaded = []
    load = bench.Checkpoint.load
    monkeypatch.setattr(
        bench.Checkpoint, "load", lambda *a: loaded.append(load(*a) is not None) or load(*a)
    )
    outcome = own.run("sparge-lda")
    assert loaded == [True]
    table = standings.make_standings(own, [own.run("anova"), outcome], {})
    assert standings.failure_lines(table) == [f"sparge-lda: {standings.RESUMED}"]
    assert not (own.folder / ".work").exists()


@pytest.mark.parametrize(
    ("target", "method", "metric"),
    [("labels", "sparge-cca", "micro_f1"), ("score", "f-regression", "r2")],
)
def test_label_sets_and_real_targets_are_tested_sample_by_sample(
    tmp_path, monkeypatch, target, method, metric
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    X = rng.random((90, 20))
    values = {
        "labels": [[name for j, name in enumerate("abc") if row[j] > 0.5] for row in X],
        "score": (X[:, 3] + 0.1 * rng.random(90)).tolist(),
    }[target]
    rows = [
        {"features": {f"{j}": float(v) for j, v in enumerate(x)}, "label": value}
        | {"split": "test" if i % 3 == 0 else "train"}
        for i, (x, value) in enumerate(zip(X, values, strict=True))
    ]
    source = tmp_path / "c.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = bench_of(stages.stage(str(source))["store"], tmp_path / "out", [method], [4])
    outcome = own.run(method)
    assert own.metrics[0] == metric
    model = linear_model.fit(own.train.X.columns(np.sort(outcome.sets[4])).tocsr(), own.train.y)
    test = own.corpus.part("test")
    predicted = model.predict(test.X.columns(np.sort(outcome.sets[4])).tocsr())
    if target == "labels":
        expected = (predicted.toarray() != test.y.toarray()).sum(axis=1)
    else:
        expected = (predicted - test.y) ** 2
    np.testing.assert_allclose(outcome.losses[0], expected, rtol=1e-6)
    best = outcome._replace(method="other", losses=np.zeros_like(outcome.losses))
    table = standings.make_standings(own, [best, outcome], {})
    assert table["rows"][1]["points"][0]["defeats"] == np.count_nonzero(expected)


@pytest.mark.parametrize(
    ("sizes", "metrics", "said"),
    [((3, 61), (), "sizes must be at most 60"), ((3,), ("r2",), "r2 is no metric of one class")],
)
def test_what_does_not_suit_the_corpus_is_refused(store, tmp_path, sizes, metrics, said):
    with pytest.raises(ValueError, match=said):
        bench_of(store, tmp_path / "out", ["anova"], sizes, metrics)


@pytest.mark.parametrize("method", ["anova", "sparge-lda"])
def test_every_choice_holds_what_is_kept_and_nothing_that_is_forbidden(store, own, method):
    best = own.run("anova").sets[3]
    worst = int(np.setdiff1d(np.arange(60), own.run("anova").sets[12])[0])
    constraints = {"keep": [worst], "forbid": best[:2].tolist()}
    bound = bench_of(store, own.folder, [method], (3, 6), constraints=constraints, subsamples=2)
    assert bound.find(method) is None  # what was chosen without constraints
    outcome = bound.run(method)
    for sets in (outcome.sets, *outcome.again):
        for m, index in sets.items():
            assert worst in index
            assert len(set(index)) == m
            assert not set(best[:2]) & set(index)
    assert bound.find(method) is not None
    assert bound.describe_constraints() == (
        " Every choice must hold 1 given features and must not hold any of 2."
    )
    with pytest.raises(ValueError, match="it takes no features to forbid or to keep"):
        bound.run("jgsc")
    with pytest.raises(ValueError, match="keep"):
        bench_of(store, own.folder, [method], (1, 6), constraints={"keep": [1, 2]})


def test_a_corpus_without_labels_cannot_be_compared_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((30, 5)))
    store = storage.stage(tmp_path / "x.npy", "x.zarr")
    with pytest.raises(ValueError, match=r"nothing can be compared on .*: there are no labels"):
        bench_of(store, tmp_path / "out", ["variance"], [3])


# --- standings ------------------------------------------------------------------------------------


@pytest.fixture
def compared(own):
    names = ["variance", "anova", "chi2"]
    outcomes = [own.run(name) for name in [*names, ALL]]
    return outcomes, standings.make_standings(own, outcomes, {"f-regression": "it cannot"})


def test_the_best_mean_is_first_and_a_failure_last(compared):
    outcomes, table = compared
    means = {o.method: np.mean([p["accuracy"] for p in o.points]) for o in outcomes[:3]}
    names = [row["method"] for row in table["rows"]]
    assert names[-1] == "f-regression"
    assert table["best"] == names[0]
    assert [means[name] for name in names[:3]] == sorted(means.values(), reverse=True)
    assert [row["rank"] for row in table["rows"]] == [1, 2, 3, None]
    assert table[ALL]["n_features"] == 60


def test_tests_and_overlaps_are_against_the_best(compared):
    outcomes, table = compared
    by_name = {o.method: o for o in outcomes}
    best = by_name[table["best"]]
    p_values = []
    for row in table["rows"][1:3]:
        own = by_name[row["method"]]
        for i, point in enumerate(row["points"]):
            wins = np.count_nonzero(own.losses[i] < best.losses[i])
            defeats = np.count_nonzero(own.losses[i] > best.losses[i])
            assert (point["wins"], point["defeats"]) == (wins, defeats)
            expected = binomtest(wins, wins + defeats).pvalue if wins + defeats else 1.0
            assert point["p_value"] == expected
            p_values.append((point["p_value"], point["p_holm"]))
            m = point["n_features"]
            common = len(set(own.sets[m]) & set(best.sets[m]))
            assert point["overlap"] == common / (2 * m - common)
    assert len(p_values) == 6
    smallest = min(p_values)  # of the pairs of three methods, at three sizes
    assert smallest[1] == pytest.approx(min(1.0, 9 * smallest[0]))
    assert all(point["overlap"] == 1 for point in table["rows"][0]["points"])
    assert not any("p_value" in point for point in table["rows"][0]["points"])


def test_tables_hold_every_method_and_size(compared):
    outcomes, table = compared
    header, cells = standings.csv_rows(table)
    assert header[:3] == ["rank", "method", "n_features"]
    assert len(cells) == 3 * len(SIZES) + 1
    for outcome in outcomes[:3]:
        own = [cell for cell in cells if cell["method"] == outcome.method]
        assert [cell["n_features"] for cell in own] == list(SIZES)
        assert [cell["accuracy"] for cell in own] == [p["accuracy"] for p in outcome.points]
        assert {cell["seconds"] for cell in own} == {outcome.figures["seconds"]}
    assert cells[-1]["error"] == "it cannot"
    assert "n_features" not in cells[-1]
    about = table | {"corpus": {"name": "a title"}, "evaluation": "How."}
    text = standings.markdown(about)
    assert text.startswith(
        "# Feature selection on a title\n\nHow.\n\n"
        "| accuracy with | 3 | 6 | 12 | mean |\n| --- | --: |"
    )
    assert "- f-regression: it cannot\n" in text
    assert "the p-values are descriptive" in text


def test_p_values_are_told_apart_as_far_as_they_matter():
    assert [standings.p_text(p) for p in (1.0, 0.0123, 3.2e-5, 0.0)] == [
        "1.000",
        "0.012",
        "3e-05",
        "< 1e-16",
    ]


# --- one fit for all sizes ------------------------------------------------------------------------

NOT_NESTED = {"l1-svm", "multitask-lasso", "mcfs", "mrsf", "dlsr", "spfs", "hvg"}
NOT_NESTED |= {"trace-ratio", "trace-ratio-laplacian"}
LONG = {"smr", "rjgsc", "jgsc", "jhlsr", "srlsr", "rlsr", "rfs", "trcfs"}


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.nightly] if name in LONG else []) for name in METHODS],
)
def test_the_choices_of_a_method_are_nested_unless_it_says_otherwise(method, rng):
    """Those that are not either choose along a path, or are named here."""
    X = rng.random((40, 16))
    X[:, 5] += np.arange(40) % 2
    y = (np.arange(40) % 2).astype(np.int64)
    parameters = {"sample_shape": (4, 4)} if method == "smr" else {}
    if "jgsc" in method:
        parameters["dictionary"] = X[::5]
    targets = y + 0.5 * X[:, 3] if method == "f-regression" else y
    fits = {}
    for m in (3, 6):
        fits[m] = selection.make_selector(method, m, parameters)
        if not fits[m]._nested:
            assert hasattr(fits[m], "fit_path") or method in NOT_NESTED
            return
        fits[m].fit(X, targets)
    np.testing.assert_array_equal(
        selection.ranking(fits[6], method, 3), selection.ranking(fits[3], method, 3)
    )
