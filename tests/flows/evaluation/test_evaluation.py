"""Runs are measured on samples that did not choose the features: folds, a held-out share, label
sets, real values.
"""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

import bigfs.evaluation.scoring
from bigfs import ANOVA, Matrix, SparGE, engine, storage
from bigfs.evaluation import large_model, linear_model, splits
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation import selection
from bigfs.selectors.registry import METHODS
from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.daily import daily
from tests.helpers.processes import write_corpus
from tests.helpers.stores import write_mat

pytestmark = pytest.mark.slow

TOPICS = {
    "sport": ["goal", "team", "match", "player"],
    "money": ["bank", "rate", "share", "profit"],
    "law": ["court", "judge", "trial", "appeal"],
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noise(path, seed, n=120, d=1500):
    """Two random classes of values that know nothing of them."""
    rng = np.random.default_rng(seed)
    return write_mat(path, np.abs(rng.normal(size=(n, d))), rng.permutation(np.arange(n) % 2))


def label_sets(rng, n):
    """Texts with the words of their topics: none, one or several; one topic has one sample."""
    sets = [[name for name in TOPICS if rng.random() < 0.4] for _ in range(n)]
    sets[0] = ["law", "rare"]
    common = [f"word{k}" for k in range(40)]
    words = [
        [word for name in labels for word in rng.choice(TOPICS.get(name, common), 2)]
        for labels in sets
    ]
    texts = [" ".join([*rng.choice(common, 6), *own]) for own in words]
    return texts, sets


def write_label_sets(path, splits=None):
    texts, sets = label_sets(np.random.default_rng(5), 150)
    rows = [{"text": text, "topics": labels} for text, labels in zip(texts, sets, strict=True)]
    for i, row in enumerate(rows):
        row |= {"split": splits[i % len(splits)]} if splits else {}
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"{path}"


def finished(source, method, features, *, out="r", settings=None, **more):
    store = stages.stage(source, None, settings)["store"]
    run = stages.select(store, out, method=method, features=features, **more)
    stages.evaluate(run)
    return Run.open(stages.finish(run))


@pytest.mark.parametrize(
    "scoring", [{"test_size": 0.25}, pytest.param({"folds": 2}, marks=pytest.mark.nightly)]
)
def test_a_set_of_features_is_scored_once_per_store(home, monkeypatch, scoring):
    source = noise("noise.mat", seed=4, d=60)
    store = stages.stage(source, None)["store"]
    scored = []
    monkeypatch.setattr(
        "bigfs.evaluation.scoring._score_set",
        lambda index, *rest, score=bigfs.evaluation.scoring._score_set: (
            scored.append(len(index)),
            score(index, *rest),
        )[1],
    )

    def evaluate(method, out, **more):
        scored.clear()
        run = stages.select(store, out, method=method, features=20)
        points = stages.evaluate(run, baselines=["anova"], sizes=[5], **scoring, **more)
        return {(p.method, p.n_features): p.scores["accuracy"] for p in points}, sorted(scored)

    n_splits = scoring.get("folds", 1)
    alone, sizes = evaluate("sparge-lda", "alone")
    assert sizes == sorted([5, 5, 20, 20, 60] * n_splits)
    assert evaluate("sparge-lda", "again") == (alone, [])
    beside, sizes = evaluate("l2-svm", "beside")
    assert sizes == sorted([5, 20] * n_splits)  # anova's sets and all features are known
    for point in (("anova", 5), ("anova", 20), ("all features", 60)):
        assert beside[point] == alone[point]
    _, sizes = evaluate("sparge-lda", "auc", metrics=["accuracy", "auc"])
    assert sizes == sorted([5, 5, 20, 20, 60] * n_splits)  # other counts
    shutil.rmtree(f"{store.removesuffix('.zarr')}.counts")
    assert evaluate("l2-svm", "anew")[0] == beside


def test_the_model_of_a_run_is_fitted_once(home, monkeypatch):
    """With a test half the evaluation scores the very model that the run keeps."""
    store = stages.stage(write_corpus(home / "d.jsonl", seed=2))["store"]
    run = stages.select(store, "r", method="anova", features=20)
    widths = []
    monkeypatch.setattr(
        linear_model,
        "fit",
        lambda Z, y, fit=linear_model.fit, **more: widths.append(Z.shape[1]) or fit(Z, y, **more),
    )
    points = stages.evaluate(run, baselines=[], sizes=[5])
    assert sorted(widths) == [5, 20, 60]
    test = storage.open(store).part("test")
    model = run.model()
    right = model.linear.predict(test.X.columns(model.columns).tocsr()) == test.y
    (point,) = [p for p in points if (p.method, p.n_features) == ("anova", 20)]
    assert point.scores["accuracy"] == right.mean()


def scores(run):
    return {(p["method"], p["n_features"]): p for p in run.metadata["curves"]}


# --- classes --------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_noise_scores_as_chance(home):
    """Features chosen on all rows, as a leaky evaluation has them, would score far above it."""
    leaky: list[float] = []
    reached = {name: [] for name in ("anova", "chi2", "sparge-lda")}
    for seed in range(3):
        store = stages.stage(noise(home / f"noise{seed}.mat", seed))["store"]
        run = stages.select(store, f"r{seed}", method="sparge-lda", features=20)
        for point in stages.evaluate(run):
            if point.n_features == 20:
                reached[point.method].append(point.scores["accuracy"])
        corpus = storage.open(store)
        chosen = corpus.X.columns(np.sort(run.selected)).tocsr()
        leaky.append(cross_val_score(LinearSVC(), chosen, corpus.y).mean())
    assert np.mean(leaky) > 0.75
    for name, values in reached.items():
        # four standard deviations of 360 answers are 0.105
        assert abs(np.mean(values) - 0.5) < 0.1, (name, values)


def test_all_features_beyond_the_memory_are_scored_tile_by_tile(home):
    """Their SVM is the one in memory, trained otherwise."""
    store = stages.stage("synthetic:newswire?rows=1000")["store"]
    found = {}
    for name, limit in (("r1", 10**9), ("r2", 4_000_000)):
        run = stages.select(store, name, method="anova", features=5)
        with engine.limit_memory(limit):
            stages.evaluate(run, baselines=[])
        found[name] = Run.open(stages.finish(run))
    sentence = "All features do not fit in memory, so their SVM was trained tile by tile."
    assert "all_features" not in found["r1"].metadata["measured"]
    assert found["r2"].metadata["measured"]["all_features"] == "svm"
    assert sentence not in found["r1"].metadata["evaluation"]
    assert sentence in found["r2"].metadata["evaluation"]
    inside, tiled = (scores(run)["all features", 20_000]["accuracy"] for run in found.values())
    assert tiled == pytest.approx(inside, abs=0.01)


def test_all_features_of_a_real_target_beyond_the_memory_in_words(home, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3000))
    store = stages.stage(write_mat(home / "real.mat", X, X[:, 3] + 0.5))["store"]
    run = stages.select(store, "r", method="f-regression", features=2)
    with engine.limit_memory(600_000):
        points = stages.evaluate(run)
    assert {point.method for point in points} == {"f-regression", "all features"}
    words = "so their ridge regression was solved tile by tile"
    assert words in run.metadata["evaluation"]
    monkeypatch.setattr(large_model, "choose_strategy", lambda *_, **__: None)
    points = stages.evaluate(run)
    assert {point.method for point in points} == {"f-regression"}
    assert "All features were left out, because" in run.metadata["evaluation"]


def test_a_part_of_many_samples_trains_the_models_and_the_run_says_so(home, change):
    store = stages.stage("synthetic:newswire?rows=1000")["store"]
    found = {}
    for most in (10**7, 2000):
        change(splits.MOST_TRAINING, most)
        run = stages.select(store, f"r{most}", method="anova", features=50)
        stages.evaluate(run, baselines=[])
        found[most] = Run.open(stages.finish(run))
    few = found[2000].metadata
    assert "trained_on" not in found[10**7].metadata["measured"]
    part = few["measured"]["trained_on"]
    assert part == pytest.approx(2000 / len(storage.open(store).class_names), rel=0.2)
    assert f"The models were trained on {part:,} of the training samples" in few["evaluation"]
    assert "SVM, features chosen on 600" in few["evaluation"]
    whole, sample = (scores(run)["anova", 50]["accuracy"] for run in found.values())
    assert sample != whole
    assert sample == pytest.approx(whole, abs=0.15)


def test_a_run_says_how_it_was_measured_everywhere(home):
    run = finished(noise(home / "noise.mat", 0, n=60, d=200), "anova", 10)
    assert run.metadata["measured"]["how"] == "nested folds"
    assert run.metadata["measured"]["folds"] == 5
    assert "The features were selected again in each fold" in run.metadata["evaluation"]
    assert run.metadata["evaluation"] in (run.path / "report.html").read_text()
    assert {"anova", "chi2"} <= {method for method, _ in scores(run)}
    train = storage.open(run.metadata["parameters"]["store"])
    np.testing.assert_array_equal(
        run.selected, ANOVA(n_features_to_select=10).fit(train.X, train.y).selected_
    )


def test_every_selection_sees_its_folds_training_rows_only(home, monkeypatch):
    """Also the graph of a method on one, and never the graph of all rows."""
    source = noise(home / "noise.mat", 0, n=60, d=80)
    store = stages.stage(source)["store"]
    graph = stages.build_graph(store, "sparge-lpp")
    run = stages.select(store, "r", method="sparge-lpp", features=10, earlier=[graph])
    seen = []

    def noted(selector, method, X, y, usable=selection.usable):
        seen.append((method, X.shape[0], selector.get_params().get("graph")))
        return usable(selector, method, X, y)

    monkeypatch.setattr(selection, "usable", noted)
    stages.evaluate(run)
    assert {rows for _, rows, _ in seen} == {48}
    assert {given for *_, given in seen} == {None}
    assert sum(method == "sparge-lpp" for method, *_ in seen) == 5


@pytest.mark.parametrize(
    "method",
    daily(["sparge-sda", "srlsr", "jhlsr", "laplacian", "lsdf"], "sparge-sda"),
)
def test_methods_on_graphs_are_measured_in_folds(home, method):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = np.abs(rng.normal(size=(60, 36)))
    X[:, :3] += 5 * np.eye(3)[y]
    store = stages.stage(write_mat(home / "X.mat", X, y))["store"]
    run = stages.select(store, "r", method=method, features=6)
    point = next(p for p in stages.evaluate(run) if (p.method, p.n_features) == (method, 6))
    assert run.metadata["measured"]["how"] == "nested folds"
    assert 0 < point.scores["accuracy"] <= 1
    if "class" in METHODS[method].targets:
        assert point.scores["accuracy"] > 0.9


def test_too_much_work_holds_out_a_fifth(home, change):
    change(evaluation.MAX_WORK, 1e6)
    run = finished(noise(home / "noise.mat", 0, n=100, d=200), "anova", 10)
    assert run.metadata["measured"] == {
        "metrics": ["accuracy"],
        "model": "Linear SVM",
        "folds": 5,
        "untested": 0,
        "how": "held-out share",
        "train": 80,
        "test": 20,
        "share": 0.2,
        "not_converged": 0,
    }
    assert "tested on 20 held-out samples" in run.metadata["evaluation"]
    corpus = storage.open(run.metadata["parameters"]["store"])
    # of all rows
    assert (
        run.selected.tolist()
        == ANOVA(n_features_to_select=10).fit(corpus.X, corpus.y).selected_.tolist()
    )


@pytest.mark.parametrize("method", METHODS)
def test_whether_folds_are_too_much_is_counted(method):
    class Counted:
        shape, nnz = (20_000, 100_000), 2_500_000

    heavy = evaluation.selection_work(Counted, METHODS[method]) * 5 > evaluation.MAX_WORK.value
    assert heavy is bool(METHODS[method].pairs)


def test_a_killed_evaluation_goes_on_after_the_last_fold(home, monkeypatch):
    source = noise(home / "noise.mat", 0, n=60, d=100)
    whole = finished(source, "sparge-lda", 10, out="whole")
    store, fits, done = whole.metadata["parameters"]["store"], [], []

    def dies(selector, method, X, y, usable=selection.usable):
        fits.append(method)
        if fits.count("sparge-lda") == 4:
            raise KeyboardInterrupt
        return usable(selector, method, X, y)

    run = stages.select(store, "killed", method="sparge-lda", features=10)
    with monkeypatch.context() as patched:
        patched.setattr(selection, "usable", dies)
        with pytest.raises(KeyboardInterrupt):
            stages.evaluate(run)
    again = Run.open_unfinished("killed")
    monkeypatch.setattr(
        selection,
        "usable",
        lambda s, method, X, y, usable=selection.usable: (
            done.append(method) or usable(s, method, X, y)
        ),
    )
    stages.evaluate(again)
    assert done.count("sparge-lda") == 2  # of five folds, three were done
    assert again.metadata["curves"] == whole.metadata["curves"]
    assert not (stages.finish(again) / "checkpoints").exists()


def test_classes_of_one_sample_and_unlabelled_samples_are_trained_on_and_not_tested(home):
    """Unlabelled training rows stay for semi-supervised methods; the SVM never takes them for a
    class.
    """
    rng = np.random.default_rng(0)
    rows = []
    for i in range(61):
        label = 0 if i == 60 else (i % 2) + 1
        words = ["only"] if i == 60 else TOPICS["sport" if i % 2 else "money"]
        rows.append(
            {
                "text": " ".join([*words, *rng.choice(["a1", "b2", "c3"], 2)]),
                "label": label if i % 4 or i == 60 else None,
            }
        )
    (home / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = finished("d.jsonl", "srlsr", 4)
    assert run.metadata["measured"]["untested"] == 1
    assert "1 sample is the only one of its class" in run.metadata["evaluation"]
    assert scores(run)["srlsr", 4]["accuracy"] == 1.0
    assert "fisher" not in {method for method, _ in scores(run)}


def test_what_has_nothing_to_test_on_is_said_and_not_an_error(home):
    rows = [
        {"text": f"{word} common", "label": i}
        for i, word in enumerate(["one", "two", "three", "four"])
    ]
    (home / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = finished("d.jsonl", "sparge-pca", 2, settings={"min_df": 1})
    assert run.metadata["curves"] == []
    assert (
        run.metadata["evaluation"]
        == "Not evaluated: there are no test samples, and fewer than two "
        "classes have two samples."
    )
    assert run.metadata["evaluation"] in (run.path / "report.html").read_text()


def test_a_test_half_without_labels_is_no_test_half(home):
    rows = [
        {
            "text": f"{TOPICS['sport' if i % 2 else 'money'][i % 4]} common",
            "label": i % 2,
            "split": "train",
        }
        for i in range(40)
    ]
    rows += [{"text": "goal common", "label": None, "split": "test"} for _ in range(5)]
    (home / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = finished("d.jsonl", "anova", 4)
    assert run.metadata["measured"]["how"] == "nested folds"
    assert run.metadata["measured"]["folds"] == 5


@pytest.mark.parametrize(
    ("method", "expected"),
    [("anova", ("chi2",)), ("chi2", ("anova",)), ("fisher", ("chi2",)), ("smr", ("anova", "chi2"))],
)
def test_anova_and_fisher_are_never_both_rivals(text, method, expected):
    class Train:
        X, y = Matrix.from_array(text[0]), text[1]

    assert evaluation.default_baselines(Train, method) == expected
    Train.X = Matrix.from_array(-text[0])
    assert evaluation.default_baselines(Train, method) == tuple(
        name for name in expected if name != "chi2"
    )


# --- label sets and real values -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "method"),
    [("d.jsonl", "sparge-cca"), ("d.parquet", "sparge-hsl"), ("d.jsonl", "anova")],
)
def test_label_sets_are_selected_evaluated_and_reported(home, name, method):
    run = finished(
        write_label_sets(home / name), method, 12, settings={"label": "topics", "min_df": 1}
    )
    assert {row["name"] for row in run.read_table("selected.csv")} >= {"goal", "bank", "court"}
    assert run.metadata["measured"]["metrics"] == ["micro_f1", "macro_f1"]
    point = scores(run)[method, 12]
    assert point["micro_f1"] > 0.9
    # the topic with one sample counts as missed
    assert point["macro_f1"] == pytest.approx(0.75 * point["micro_f1"], abs=0.1)
    page = (run.path / "report.html").read_text()
    assert "micro F1 / macro F1" in page
    assert "accuracy" not in page.lower()
    assert run.read_table("curves.csv")[0].keys() == {
        "method",
        "n_features",
        "micro_f1",
        "macro_f1",
    }


def test_micro_and_macro_f1_are_those_of_scikit_learn(home):
    source = write_label_sets(home / "d.jsonl", splits=["train", "train", "test"])
    run = finished(source, "sparge-cca", 12, settings={"label": "topics"})
    assert run.metadata["measured"]["how"] == "test half"
    corpus = storage.open(run.metadata["parameters"]["store"])
    train, test = corpus.part("train"), corpus.part("test")
    Z, Z_test = (part.X.columns(np.sort(run.selected)).tocsr() for part in (train, test))
    truth, answers = test.y.toarray() > 0, []
    for y in (train.y.toarray() > 0).T:
        answers.append(
            LinearSVC(random_state=0).fit(Z, y).predict(Z_test)
            if y.any()
            else np.zeros(len(truth), dtype=bool)
        )
    answers, there = np.column_stack(answers), truth.any(axis=0)
    found = scores(run)["sparge-cca", 12]
    assert found["micro_f1"] == pytest.approx(f1_score(truth, answers, average="micro"))
    assert found["macro_f1"] == pytest.approx(
        f1_score(truth[:, there], answers[:, there], average="macro", zero_division=0)
    )


@pytest.mark.parametrize(
    "method",
    daily(
        [
            name
            for name, method in METHODS.items()
            if method.targets and "multilabel" not in method.targets
        ],
        "sparge-lda",
        "mrmr",
        "l2-svm",
    ),
)
def test_a_single_label_method_refuses_label_sets_before_any_work(home, method):
    store = stages.stage(write_label_sets(home / "d.jsonl"), None, {"label": "topics"})["store"]
    wanted = (
        f"{method} cannot learn from .*several labels per sample: use --method sparge-cca or "
        f"anova or multitask-lasso$"
    )
    with pytest.raises(ValueError, match=wanted):
        stages.select(store, "r", method=method, features=3)
    if METHODS[method].graph:
        with pytest.raises(ValueError, match=wanted):
            stages.build_graph(store, method)
    assert not [p.name for p in home.iterdir() if p.name.startswith("r")]


def test_unsupervised_methods_take_any_target(home):
    store = stages.stage(write_label_sets(home / "d.jsonl"), None, {"label": "topics"})["store"]
    run = stages.select(store, "r", method="sparge-lpp", features=5)
    assert {p.method for p in stages.evaluate(run)} == {"sparge-lpp", "anova", "all features"}
    stages.finish(run)


def test_real_targets_are_evaluated_by_the_r2_of_a_ridge(home):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 30))
    y = X[:, 3] - 2 * X[:, 7] + 0.1 * rng.normal(size=100)
    run = finished(write_mat(home / "real.mat", X, y), "sparge-cca", 2)
    assert set(run.selected.tolist()) == {3, 7}
    assert run.metadata["measured"]["metrics"] == ["r2"]
    assert scores(run)["sparge-cca", 2]["r2"] > 0.98
    assert "R²" in (run.path / "report.html").read_text()
    with pytest.raises(
        ValueError,
        match=r"anova cannot learn from .*real-valued targets: use --method sparge-cca or ",
    ):
        stages.select(run.metadata["parameters"]["store"], "q", method="anova", features=2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Prefect, when it is imported
def test_the_terminal_and_prefect_name_the_metric_and_how_it_was_measured(
    home, monkeypatch, capsys
):
    from bigfs.flows.cli.output import print_run
    from bigfs.flows.report import artifacts

    run, shown = (
        finished(write_label_sets(home / "d.jsonl"), "sparge-hsl", 6, settings={"label": "topics"}),
        {},
    )
    print_run(str(run.path), as_json=False)
    said = capsys.readouterr().out
    for kind in ("table", "markdown", "image"):
        monkeypatch.setattr(
            artifacts,
            f"create_{kind}_artifact",
            lambda content, key, **more: shown.update({key: (content, more)}),
        )
    artifacts.show_curves(run)
    artifacts.show_summary(run)
    assert {"micro-f1", "micro-f1-curve", "summary"} <= set(shown)
    assert {"micro F1", "macro F1"} <= set(shown["micro-f1"][0][0])
    for text in (
        said,
        shown["micro-f1"][1]["description"],
        shown["micro-f1-curve"][1]["description"],
        shown["summary"][0],
    ):
        assert run.metadata["evaluation"] in text
        assert "accuracy" not in text
    assert "micro F1 / macro F1" in shown["summary"][0]


@pytest.mark.parametrize("embedding", ["cca", "hsl"])
def test_label_sets_as_a_sparse_indicator_select_what_dense_ones_do(text, embedding):
    X, y = text
    labels = np.eye(4)[y]
    labels[::5, 0] = 1  # several labels
    labels[3] = 0  # none
    chosen = [
        SparGE(embedding=embedding, n_features_to_select=8).fit(data, target).selected_
        for data in (Matrix.from_array(X, tile_columns=17), X)
        for target in (labels, sp.csr_array(labels))
    ]
    for other in chosen[1:]:
        np.testing.assert_array_equal(other, chosen[0])
