"""Weights and scales of a matrix, against scikit-learn's transformers of the training rows."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from bigfs import storage
from bigfs.flows.use.predict import predict
from bigfs.storage import integrity
from bigfs.storage.errors import SourceError
from bigfs.storage.runs.runs import Run
from bigfs.storage.staging import build, scale_blocks
from tests.helpers import stages

ORACLES = {
    "tfidf": ({"weight": "tfidf"}, TfidfTransformer(sublinear_tf=True)),
    "counts": ({"weight": "tfidf", "sublinear_tf": False}, TfidfTransformer()),
    "standard": ({"scale": "standard"}, StandardScaler(with_mean=False)),
    "max": ({"scale": "max"}, MaxAbsScaler()),
}


def lognorm(X, target_sum):
    """Dense, by the definition of scanpy's `normalize_total` and `log1p`."""
    totals = X.sum(axis=1, keepdims=True)
    return np.log1p(X / np.where(totals > 0, totals, 1) * target_sum)


@pytest.fixture
def counts(rng):
    """Counts of 60 samples in 9 columns, of which the last two are empty and constant."""
    X = rng.poisson(0.7, (60, 9)).astype(np.float64)
    X[:, 7], X[:, 8] = 0, 3
    X[4] = 0
    return X, np.arange(60) % 2


def write(path, X, y):
    dump_svmlight_file(X, y, str(path), zero_based=False)
    return path


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("piece", [300, 10**9])
def test_store_holds_what_scikit_learn_gives(name, piece, counts, tmp_path, change):
    X, y = counts
    change(build.MATRIX_PIECE, piece)
    change(scale_blocks.GROUP, 2)
    settings, oracle = ORACLES[name]
    source = write(tmp_path / "X.svm", X, y)
    corpus = storage.open(storage.stage(source, tmp_path / "X.zarr", n_features=9, **settings))
    expected = oracle.fit_transform(sp.csr_array(X))
    np.testing.assert_allclose(corpus.X.rows(np.arange(60)).toarray(), expected.toarray(), 1e-6)
    np.testing.assert_allclose(corpus.X.columns(np.arange(9)).toarray(), expected.toarray(), 1e-6)
    np.testing.assert_allclose(
        corpus.store.read("var/idf" if "weight" in settings else "var/scale"),
        oracle.idf_ if "weight" in settings else oracle.scale_,
        rtol=1e-12,
    )
    plain = storage.open(storage.stage(source, tmp_path / "plain.zarr", n_features=9))
    np.testing.assert_array_equal(plain.X.rows(np.arange(60)).toarray(), X)


def test_training_rows_decide_and_appended_rows_follow(counts, tmp_path):
    X, y = counts
    split = np.where(np.arange(60) < 40, "train", "test")
    lines = [
        {"features": {str(j): v for j, v in enumerate(row) if v}, "label": int(c), "split": part}
        for row, c, part in zip(X, y, split, strict=True)
    ]
    (tmp_path / "X.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "more.jsonl").write_text("\n".join(json.dumps(line) for line in lines[:5]))
    uri = storage.stage(tmp_path / "X.jsonl", tmp_path / "X.zarr", scale="standard", n_features=9)
    oracle = StandardScaler(with_mean=False).fit(X[:40])
    test = storage.open(uri).part("test").X
    np.testing.assert_allclose(
        test.rows(np.arange(20)).toarray(), oracle.transform(X[40:]), rtol=1e-6
    )
    storage.append(tmp_path / "more.jsonl", uri, split="train")
    grown = storage.open(uri).part("train").X
    np.testing.assert_allclose(
        grown.rows(np.arange(40, 45)).toarray(), oracle.transform(X[:5]), rtol=1e-6
    )


@pytest.mark.parametrize("target_sum", [None, 1e4])
def test_lognorm_takes_its_sum_from_the_training_rows(target_sum, counts, tmp_path):
    X, y = counts
    X[40:] *= 5
    lines = [
        {"features": {str(j): v for j, v in enumerate(row) if v}, "label": int(c), "split": part}
        for row, c, part in zip(X, y, ["train"] * 40 + ["test"] * 20, strict=True)
    ]
    (tmp_path / "X.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "more.jsonl").write_text("\n".join(map(json.dumps, lines[:5])))
    settings = {"weight": "lognorm", "target_sum": target_sum, "n_features": 9}
    uri = storage.stage(tmp_path / "X.jsonl", tmp_path / "X.zarr", **settings)
    totals = X[:40].sum(axis=1)
    expected = lognorm(X, target_sum or np.median(totals[totals > 0]))
    rows = storage.open(uri).X.rows(np.arange(60)).toarray()
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert not rows[4].any()
    storage.append(tmp_path / "more.jsonl", uri, split="train")
    grown = storage.open(uri).part("train").X
    np.testing.assert_allclose(grown.rows(np.arange(40, 45)).toarray(), expected[:5], rtol=1e-6)


@pytest.mark.parametrize("name", ["tfidf", "lognorm", "standard", "max"])
def test_model_of_a_run_takes_the_rows_of_the_source(name, counts, tmp_path):
    """From the source in pieces, from arrays, and as an exported pipeline: those of the store."""
    X, y = counts
    X[:, 3] += 4 * y
    settings = {"weight": name} if name == "lognorm" else ORACLES[name][0]
    source = str(write(tmp_path / "X.svm", X, y))
    store = storage.stage(source, tmp_path / "X.zarr", n_features=9, **settings)
    run = stages.select(store, tmp_path / "run", method="anova", features=3)
    stages.evaluate(run, baselines=[])
    path = stages.finish(run)
    corpus, model = storage.open(store), Run.open(path).model()
    expected = model.predict(corpus.X)
    assert set(expected) == {"0", "1"}
    np.testing.assert_array_equal(model.predict(X), expected)
    np.testing.assert_array_equal(model.to_sklearn().predict(sp.csr_matrix(X)), expected)
    file, rows, *_ = predict(path, source, tmp_path / "out.csv", format="svmlight")
    lines = [line.split(",")[1].strip() for line in file.read_text().splitlines()[1:]]
    assert (rows, lines) == (60, expected.tolist())
    plain = storage.stage(source, tmp_path / "plain.zarr", n_features=9)
    with pytest.raises(ValueError, match="does not have the weight or the scale of"):
        predict(path, plain, tmp_path / "out.csv")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight": "idf"}, "weight must be tfidf or lognorm; got 'idf'"),
        ({"scale": "minmax"}, "scale must be auto, standard, max or none; got 'minmax'"),
        ({"weight": "tfidf", "scale": "max"}, "weight and scale exclude one another"),
        ({"target_sum": 1e4}, "target_sum is for weight=lognorm"),
        ({"weight": "lognorm", "target_sum": 0.0}, r"target_sum must be a number above 0; got 0.0"),
        ({"weight": "lognorm", "sublinear_tf": False}, "sublinear_tf is for text"),
    ],
)
def test_wrong_settings_are_one_line(settings, message, counts, tmp_path):
    source = write(tmp_path / "X.svm", *counts)
    with pytest.raises(SourceError, match=message):
        storage.stage(source, tmp_path / "X.zarr", **settings)
    assert not (tmp_path / "X.zarr").exists()


def test_negative_values_are_no_counts_and_text_is_not_scaled(counts, tmp_path):
    X, y = counts
    source = write(tmp_path / "X.svm", -X, y)
    with pytest.raises(SourceError, match=r"holds the value -.*weight='tfidf' is for counts"):
        storage.stage(source, tmp_path / "X.zarr", weight="tfidf")
    with pytest.raises(SourceError, match=r"holds the value -.*weight='lognorm' is for counts"):
        storage.stage(source, tmp_path / "X.zarr", weight="lognorm", target_sum=1.0)
    (tmp_path / "docs.jsonl").write_text('{"text": "one two"}\n{"text": "one two"}\n')
    with pytest.raises(SourceError, match="is text, whose tf-idf rows have unit length"):
        storage.stage(tmp_path / "docs.jsonl", tmp_path / "X.zarr", scale="max")
    with pytest.raises(SourceError, match=r"is text, .*: leave out weight=lognorm"):
        storage.stage(tmp_path / "docs.jsonl", tmp_path / "X.zarr", weight="lognorm")
    (tmp_path / "none.svm").write_text("1 1:0\n0 2:0\n")
    with pytest.raises(SourceError, match="holds no counts"):
        storage.stage(tmp_path / "none.svm", tmp_path / "X.zarr", weight="lognorm")


@pytest.fixture
def units(rng):
    """A table in several units: two rates, an income, a rare gain, a flag, two columns more."""
    X = rng.normal(size=(80, 7)) * [1, 2, 5000, 1, 1, 1, 0.5] + 3
    X[:, 3] = np.where(rng.random(80) < 0.1, 9e4, 0)
    X[:, 4] = rng.random(80) < 0.5
    return X, np.arange(80) % 2


def test_a_table_in_several_units_is_standardized_and_its_flags_stay(units, tmp_path):
    X, y = units
    source, more = (
        write(tmp_path / "X.svm", X[:60], y[:60]),
        write(tmp_path / "m.svm", X[60:], y[60:]),
    )
    uri = storage.stage(source, tmp_path / "X.zarr", n_features=7)
    oracle = StandardScaler(with_mean=False).fit(X[:60])
    factors = np.where(np.arange(7) == 4, 1, oracle.scale_)
    storage.append(more, uri, n_features=7)
    grown = storage.open(uri)
    np.testing.assert_allclose(grown.X.rows(np.arange(80)).toarray(), X / factors, rtol=1e-6)
    np.testing.assert_allclose(grown.store.read("var/scale"), factors, rtol=1e-6)
    assert (
        grown.manifest.source["decided"]["scale"] == grown.manifest.settings["scale"] == "standard"
    )
    assert "columns standardized, because their units differ" in integrity.summarize(uri)
    assert storage.find_store(source, tmp_path / "X.zarr", n_features=7) == uri  # the same question


@pytest.mark.parametrize("case", ["none", "one unit", "sparse", "images", "weight"])
def test_other_sources_keep_their_values(case, units, tmp_path):
    X, y = units
    settings = {"n_features": X.shape[1]}
    if case == "none":
        settings["scale"] = "none"
    if case == "one unit":
        X[:, [2, 3]] = X[:, [0, 1]]
    if case == "sparse":
        X[np.random.default_rng(1).random(X.shape) < 0.7] = 0
    if case == "images":
        X = X[:, :6]
    if case == "weight":
        X, settings["weight"] = np.abs(X), "lognorm"
    source = write(tmp_path / "X.svm", X, y)
    if case == "images":
        np.savez(tmp_path / "X.npz", X=X, y=y)
        source, settings = tmp_path / "X.npz", {"sample_shape": "2x3"}
    corpus = storage.open(storage.stage(source, tmp_path / "X.zarr", **settings))
    assert "scale" not in corpus.manifest.settings
    if case != "weight":
        found = corpus.X.rows(np.arange(80)).toarray()
        np.testing.assert_array_equal(found, X.astype(np.float32))


@pytest.mark.parametrize(
    ("case", "piece", "reads"), [("table", 1 << 25, 3), ("words", 1 << 25, 1), ("words", 900, 1)]
)
def test_reads_of_the_entries_of_blocks(
    case, piece, reads, units, rng, tmp_path, monkeypatch, change
):
    """A table takes two passes for its units, and one to rewrite. One dense column makes none,
    which one block shows."""
    change(build.MATRIX_PIECE, piece)
    X, y = units
    if case == "words":
        X = np.hstack([X[:, :1], rng.random((80, 6)) * (rng.random((80, 6)) < 0.2)])
    read, calls = scale_blocks.read_entries, []
    monkeypatch.setattr(scale_blocks, "read_entries", lambda *a: calls.append(a) or read(*a))
    whole, new = scale_blocks.read_block, []
    monkeypatch.setattr(scale_blocks, "read_block", lambda *a: new.append(a) or whole(*a))
    storage.stage(write(tmp_path / "X.svm", X, y), tmp_path / "X.zarr", n_features=7)
    assert len(calls) + len(new) == reads
