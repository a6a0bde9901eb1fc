"""The model of a run: kept, used on stores and sources, exported."""

import csv
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_wine
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from bigfs import storage
from bigfs.flows.use import predict as predictions
from bigfs.flows.use.export import export
from bigfs.flows.use.files import is_table
from bigfs.flows.use.predict import HEADER, predict
from bigfs.storage import atomic
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.runs.models import read_model
from bigfs.storage.runs.runs import Run, RunError, write_csv
from tests.helpers import stages
from tests.helpers.commands import fails

WORDS = {"cats": "cat meow purr fur", "dogs": "dog bark fur fetch", "fish": "fin swim gill dog"}


def documents(rng, n):
    """Texts of three classes that share words, with a test half of a third."""
    for i in range(n):
        label = list(WORDS)[i % 3]
        own = rng.choice(WORDS[label].split(), 2)
        noise = rng.choice(" ".join(WORDS.values()).split(), 3)
        yield {
            "text": " ".join([*own, *noise, f"w{rng.integers(9)}"]),
            "label": label,
            "split": "test" if i % 3 == i // 3 % 3 else "train",
        }


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Records of documents, their store, and a finished run on it."""
    folder = tmp_path_factory.mktemp("predict")
    records = list(documents(np.random.default_rng(3), 120))
    (folder / "t.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    store = storage.stage(folder / "t.jsonl", folder / "t.zarr", tile_rows=17)
    run = stages.select(store, folder / "r", method="anova", features=6)
    stages.evaluate(run)
    return records, store, str(stages.finish(run)), folder


def read(file):
    with open(file, newline="", encoding="utf-8") as opened:
        return [row["prediction"] for row in csv.DictReader(opened)]


def oracle(records, run):
    """What scikit-learn predicts for all records, from the selected terms of the training half."""
    train = [r for r in records if r["split"] == "train"]
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True).fit([r["text"] for r in train])
    names = sorted(row["name"] for row in Run.open(run).read_table("selected.csv"))
    columns = [vectorizer.vocabulary_[name] for name in names]

    def rows(some):
        return vectorizer.transform([r["text"] for r in some])[:, columns].astype(np.float32)

    svm = LinearSVC(random_state=0, max_iter=10_000).fit(rows(train), [r["label"] for r in train])
    return svm.predict(rows(records))


def test_the_held_out_half_scores_what_the_report_says(texts, tmp_path):
    records, store, run, _ = texts
    written = predict(run, store, tmp_path / "p.csv", part="test")
    curves = Run.open(run).metadata["curves"]
    [reported] = [p["accuracy"] for p in curves if (p["method"], p["n_features"]) == ("anova", 6)]
    assert written.scores["accuracy"] == reported
    assert 0.5 < reported < 1
    labels = [r["label"] for r in records if r["split"] == "test"]
    found = read(tmp_path / "p.csv")
    assert written.rows == len(found) == len(labels)
    assert np.mean([a == b for a, b in zip(found, labels, strict=True)]) == reported


def test_raw_text_is_predicted_as_its_store_and_as_scikit_learn(texts, tmp_path):
    records, store, run, folder = texts
    predict(run, store, tmp_path / "store.csv")
    written = predict(run, str(folder / "t.jsonl"), tmp_path / "source.csv")
    assert written.rows == 120
    assert written.scores == {}
    expected = oracle(records, run)
    assert read(tmp_path / "source.csv") == expected.tolist()
    halves = [
        e
        for half in ("train", "test")
        for e, r in zip(expected, records, strict=True)
        if r["split"] == half
    ]
    assert read(tmp_path / "store.csv") == halves
    model = Run.open(run).model()
    np.testing.assert_array_equal(model.predict([r["text"] for r in records]), expected)
    np.testing.assert_array_equal(
        model.to_sklearn().predict([r["text"] for r in records]), expected
    )
    part = storage.open(store).part("test")
    tested = [e for e, r in zip(expected, records, strict=True) if r["split"] == "test"]
    np.testing.assert_array_equal(model.predict(part.X), tested)


@pytest.mark.parametrize(
    "options", [{"ngram_range": (1, 2), "stop_words": ["fur", "dog"]}, {"hashing": 32}]
)
def test_other_units_of_text_are_kept(texts, tmp_path, options):
    records, _, _, folder = texts
    store = storage.stage(folder / "t.jsonl", tmp_path / "t.zarr", **options)
    run = stages.select(store, tmp_path / "r", method="anova", features=9)
    stages.evaluate(run)
    path = stages.finish(run)
    predict(path, store, tmp_path / "store.csv")
    predict(path, str(folder / "t.jsonl"), tmp_path / "source.csv")
    is_test = np.array([r["split"] == "test" for r in records])
    found = np.array(read(tmp_path / "source.csv"))
    assert read(tmp_path / "store.csv") == [*found[~is_test], *found[is_test]]
    model = Run.open(path).model()
    if "hashing" in options:
        with pytest.raises(ValueError, match="hashed columns have no vocabulary"):
            model.to_sklearn()
        return
    assert any(" " in term for term in model.names)
    np.testing.assert_array_equal(model.predict([r["text"] for r in records]), found)


def test_the_model_needs_no_pickle_and_names_its_columns(texts):
    _, _, run, _ = texts
    with np.load(Path(run) / "model.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
        assert {"coef", "idf", "terms", "columns", "header"} <= set(arrays.files)
    model = Run.open(run).model()
    selected = Run.open(run)
    assert sorted(model.names) == sorted(r["name"] for r in selected.read_table("selected.csv"))
    assert list(model.columns) == sorted(selected.selected)
    assert model.class_names == sorted(WORDS)


@pytest.mark.slow
def test_the_exported_pipeline_runs_without_bigfs(texts, tmp_path):
    pytest.importorskip("skops", reason="skops is an extra: pip install 'bigfs[export]'")
    records, _, run, _ = texts
    file = export(run, tmp_path / "model")
    assert export(run, file) == file  # its own file may be replaced
    (tmp_path / "texts.json").write_text(json.dumps([r["text"] for r in records]))
    code = """
import builtins, json, sys
real = builtins.__import__
def guarded(name, *rest, **options):
    if name.split('.')[0] in {'bigfs', 'prefect', 'dask', 'zarr'}:
        raise ImportError(name)
    return real(name, *rest, **options)
builtins.__import__ = guarded
from skops.io import get_untrusted_types, load
assert get_untrusted_types(file='model.skops') == []
print(json.dumps(load('model.skops').predict(json.load(open('texts.json'))).tolist()))
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == oracle(records, run).tolist()


def test_the_commands_predict_and_export(bigfs, texts, tmp_path):
    _, store, run, _ = texts
    words = ("predict", run, store, "p.csv", "--part", "test", "--workers", "0")
    status, out, _ = bigfs(*words, "--json")
    answer = json.loads(out)
    assert (status, answer["rows"], answer["predictions"]) == (0, 40, "p.csv")
    status, out, _ = bigfs(*words)
    accuracy = answer["scores"]["accuracy"]
    assert out.startswith(f"p.csv: 40 samples, accuracy {accuracy:.4f}, balanced accuracy 0.")
    fails(bigfs("predict", "nowhere", store, "p.csv", "--workers", "0"), "not a run directory")
    fails(bigfs("predict", run, "nowhere", "p.csv", "--workers", "0"), "nowhere does not exist")
    (tmp_path / "mine.skops").write_text("mine")
    if find_spec("skops") is None:
        fails(bigfs("export", run, "model"), "[export]'")
    else:
        fails(bigfs("export", run, "mine"), "is in the way")
        assert bigfs("export", run, "model")[:2] == (0, "model.skops\n")


# --- matrices -------------------------------------------------------------------------------------


@pytest.fixture(
    scope="module",
    params=[
        "class",
        pytest.param("multilabel", marks=pytest.mark.slow),
        pytest.param("real", marks=pytest.mark.slow),
    ],
)
def rows(request, tmp_path_factory):
    """An svmlight file with a kind of target, and a finished run on its store."""
    folder, rng = tmp_path_factory.mktemp(request.param), np.random.default_rng(4)
    signal = rng.random((60, 5))
    lines = []
    for x in signal:
        label = {
            "class": int(x[1] > 0.5),
            "multilabel": ",".join(str(j) for j in range(3) if x[j] > 0.6) or "3",
            "real": f"{x[1] - 2 * x[3] + 0.01 * rng.random():.6f}",
        }[request.param]
        lines.append(f"{label} " + " ".join(f"{j + 1}:{v:.5f}" for j, v in enumerate(x)))
    (folder / "x.svm").write_text("\n".join(lines) + "\n")
    store = storage.stage(folder / "x.svm", folder / "x.zarr", tile_rows=9)
    method = {"class": "anova", "multilabel": "sparge-hsl", "real": "sparge-cca"}[request.param]
    run = stages.select(store, folder / "r", method=method, features=3)
    stages.evaluate(run)
    return request.param, store, str(stages.finish(run)), folder


def test_a_matrix_is_predicted_from_its_file_as_from_its_store(rows, tmp_path):
    kind, store, run, folder = rows
    from_store = predict(run, store, tmp_path / "a.csv")
    predict(run, str(folder / "x.svm"), tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    corpus, model = storage.open(store), Run.open(run).model()
    X = corpus.X.rows(slice(None))
    plain = model.predict(X)
    again = model.to_sklearn().predict(sp.csr_matrix(X, dtype=np.float64))
    if kind == "multilabel":
        np.testing.assert_array_equal(plain.toarray(), again.toarray())
        assert from_store.scores["micro_f1"] > 0.7
        expected = [
            ",".join(corpus.class_names[j] for j in np.flatnonzero(row)) for row in plain.toarray()
        ]
    elif kind == "real":
        np.testing.assert_allclose(plain, again, rtol=1e-12)
        assert from_store.scores["r2"] == pytest.approx(
            1 - np.sum((corpus.y - plain) ** 2) / np.sum((corpus.y - corpus.y.mean()) ** 2)
        )
        expected = [str(value) for value in plain]
    else:
        np.testing.assert_array_equal(plain, again)
        expected = plain.tolist()
    assert read(tmp_path / "a.csv") == expected
    with pytest.raises(ValueError, match="can't take texts"):
        model.predict(["a text"])


def test_what_does_not_fit_is_refused(texts, rows, tmp_path):
    _, store, run, folder = rows
    _, text_store, text_run, text_folder = texts
    with pytest.raises(SourceError, match="is text, but the model was made of a matrix"):
        predict(run, str(text_folder / "t.jsonl"), tmp_path / "p.csv")
    with pytest.raises(SourceError, match="is a matrix, but the model was made of text"):
        predict(text_run, str(folder / "x.svm"), tmp_path / "p.csv")
    with pytest.raises(ValueError, match="does not have the vocabulary"):
        predict(text_run, store, tmp_path / "p.csv")
    with pytest.raises(ValueError, match="lacks 3 of the 3 features"):
        predict(run, text_store, tmp_path / "p.csv")
    with pytest.raises(ValueError, match="--part names a part of a store"):
        predict(run, str(folder / "x.svm"), tmp_path / "p.csv", part="test")
    (tmp_path / "p.csv").write_text("mine\n")
    with pytest.raises(StoreError, match="is in the way"):
        predict(run, store, tmp_path / "p.csv")
    with pytest.raises(ValueError, match="X has 4 features, but the model is expecting 5"):
        Run.open(run).model().predict(np.ones((2, 4)))
    assert (tmp_path / "p.csv").read_text() == "mine\n"


def test_a_run_without_a_model_says_so_and_a_damaged_one_is_named(rows, tmp_path):
    _, store, run, _ = rows
    select_only = stages.select(store, tmp_path / "s", method="laplacian", features=2)
    with pytest.raises(RunError, match=r"has no model, .* `bigfs evaluate"):
        Run.open(stages.finish(select_only)).model()
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("run.json", "model.npz"):
        (copy / name).write_bytes((Path(run) / name).read_bytes())
    whole = (copy / "model.npz").read_bytes()
    (copy / "model.npz").write_bytes(whole[:-40])
    with pytest.raises(RunError, match=r"model\.npz is damaged .*: repeat the run"):
        Run.open(copy).model()
    with np.load(Path(run) / "model.npz") as arrays:
        parts = dict(arrays)
    header = json.loads(parts["header"].tobytes()) | {"version": 99}
    parts["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(copy / "model.npz", **parts)
    with pytest.raises(RunError, match="newer bigfs"):
        read_model(copy / "model.npz")


def test_an_ending_that_says_nothing_is_refused(bigfs, texts, tmp_path):
    _, store, run, _ = texts
    for words in (
        ("predict", run, store, "out.xlsx", "--workers", "0"),
        ("transform", run, store, "out.xlsx"),
        ("export", run, "out.xlsx"),
        ("stability", store, "out.xlsx", "--method", "anova", "--workers", "0"),
    ):
        fails(bigfs(*words), "out.xlsx must end in .", "which says what is written; got .xlsx")
    fails(
        bigfs("predict", run, store, "p.csv", "--format", "jsonl", "--workers", "0"),
        "--format is for a source",
    )
    assert list(tmp_path.iterdir()) == []


def test_scratch_lies_beside_the_table_and_a_killed_ones_is_deleted(texts, tmp_path, monkeypatch):
    records, _, run, _ = texts
    (tmp_path / "new.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    (tmp_path / "out").mkdir()
    seen, weigh_by = [], predictions.weigh_by

    def weighed(*given):
        seen.append([path.name for path in (tmp_path / "out").iterdir()])
        assert given[-1].is_relative_to(tmp_path / "out")
        return weigh_by(*given)

    monkeypatch.setattr(predictions, "weigh_by", weighed)
    killed = tmp_path / "out" / ".p.csv.0123456789abcdef.staging"
    atomic.write_marker(killed)
    (killed / "remains").write_text("of a killed command")
    predict(run, str(tmp_path / "new.jsonl"), tmp_path / "out" / "p.csv")
    [names] = seen
    [scratch] = [name for name in names if name.endswith(atomic.WORK)]  # beside its lock
    assert scratch.startswith(".p.csv.")
    assert scratch != killed.name
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["p.csv"]


# --- what a run remembers, and scores -------------------------------------------------------------


@pytest.fixture
def wine(tmp_path):
    """A table of numbers with its label, a run on it, and the rows of a later table."""
    data = load_wine(as_frame=True)
    kinds = [f"k{code}" for code in data.target]
    frame = data.data.assign(kind=kinds)
    frame[["proline", "magnesium"]] /= [100, 10]
    frame.to_csv(tmp_path / "wine.csv", index=False)
    return frame


def test_a_source_of_the_same_kind_is_read_as_that_of_the_run(bigfs, wine, tmp_path):
    words = ("--features", 4, "--method", "anova", "--scale", "standard", "--workers", 0)
    assert bigfs("run", "wine.csv?columns=*&label=kind", "--out", "r", *words)[0] == 0
    wine.drop(columns="kind").assign(extra=1.0).to_csv("later.csv", index=False)
    wine.to_csv("labeled.csv", index=False)
    tables = []
    for name in ("later.csv", "labeled.csv", "labeled.csv?columns=*,!kind"):
        assert bigfs("predict", "r", name, "p.csv", "--workers", 0)[0] == 0
        tables.append(pd.read_csv("p.csv")["prediction"].tolist())
    assert tables[0] == tables[1] == tables[2]
    assert np.mean(np.array(tables[0]) == wine["kind"]) > 0.9
    # another kind of file is read by its own rules
    wine.to_json("later.jsonl", orient="records", lines=True)
    fails(bigfs("predict", "r", "later.jsonl", "p.csv", "--workers", 0), "later.jsonl")


@pytest.mark.parametrize("classes", [3, 2])
def test_scores_are_the_decision_values_of_the_classes(bigfs, wine, classes):
    few = wine[wine["kind"].isin(["k0", "k1", "k2"][:classes])]
    few.to_csv("wine.csv", index=False)
    words = ("--features", 4, "--method", "anova", "--workers", 0)
    assert bigfs("run", "wine.csv?columns=*&label=kind", "--out", "r", *words)[0] == 0
    model = Run.open("r").model()
    Z = few[model.names].to_numpy(dtype=np.float32)
    expected = (Z @ model.linear.coef.T + model.linear.intercept).reshape(len(Z), -1)
    for data in ("wine.csv", Run.open("r").metadata["parameters"]["store"]):
        for out, read in (("p.csv", pd.read_csv), ("p.parquet", pd.read_parquet)):
            assert bigfs("predict", "r", data, out, "--scores", "--workers", 0)[0] == 0
            table = read(out)
            names = [f"score k{c}" for c in ([0, 1, 2] if classes == 3 else [1])]
            assert list(table) == ["sample", "prediction", *names]
            np.testing.assert_allclose(table[names], expected, rtol=1e-4, atol=1e-4)
            best = expected.argmax(axis=1) if classes == 3 else (expected.ravel() > 0).astype(int)
            assert table["prediction"].tolist() == [f"k{c}" for c in best]
    assert bigfs("predict", "r", "wine.csv", "p.csv", "--workers", 0)[0] == 0  # ours, replaced


def test_real_values_have_no_scores(bigfs, wine):
    words = ("--features", 4, "--method", "f-regression", "--workers", 0)
    source = "wine.csv?columns=*,!kind&label=proline&target=real"
    assert bigfs("run", source, "--out", "r", *words)[0] == 0
    asked = ("predict", "r", "wine.csv", "p.csv", "--scores", "--workers", 0)
    fails(bigfs(*asked), "r predicts real values")
    assert bigfs("predict", "r", "wine.csv", "p.csv", "--workers", 0)[0] == 0


def test_the_base_of_svmlight_that_was_guessed_holds_for_new_rows(bigfs, tmp_path):
    rows = "".join(f"{i % 2} 0:{1 + i % 2} 1:{i % 3} 2:5\n" for i in range(40))
    Path("a.svm").write_text(rows)
    later = "".join(f"0 1:{i % 3} 2:5\n" for i in range(8))  # says nothing of its base
    Path("b.svm").write_text(later)
    Path("c.svm").write_text("0 0:0\n" + later)
    words = ("--features", 2, "--method", "anova", "--workers", 0)
    assert bigfs("run", "a.svm", "--out", "r", *words)[0] == 0
    answers = []
    for name in ("b.svm", "c.svm"):
        assert bigfs("predict", "r", name, "p.csv", "--scores", "--workers", 0)[0] == 0
        answers.append(pd.read_csv("p.csv").drop(columns="sample").to_numpy().tolist())
    assert answers[0] == answers[1][1:]
    assert Run.open("r").metadata["decided"] == {"zero_based": True}


def test_a_table_whose_names_are_quoted_is_replaced(tmp_path):
    """Names with a comma or a quote, of several real targets and of scores."""
    for header in (["sample", 'prediction "size", mm'], ["sample", "prediction", "score a, b"]):
        write_csv(tmp_path / "p.csv", header, [])
        assert is_table(tmp_path / "p.csv", HEADER, more=True)
        assert not is_table(tmp_path / "p.csv", HEADER)
    for text in ("sample\n", "sample,predictions\n", "sample,prediction,mine\n", "", "\x00\n"):
        (tmp_path / "p.csv").write_text(text)
        assert not is_table(tmp_path / "p.csv", HEADER, more=True)
