"""The selected columns of a store in the files of other programs."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigfs import storage
from bigfs.flows.use.predict import predict
from bigfs.flows.use.transform import ROWS, transform
from bigfs.storage.runs.runs import Run
from tests.helpers import stages

pytestmark = pytest.mark.slow


def staged(folder, name, rows):
    (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    return storage.stage(folder / f"{name}.jsonl", folder / f"{name}.zarr")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Store and finished run of classes with a test half, of label sets and of real targets."""
    folder, rng = tmp_path_factory.mktemp("transform"), np.random.default_rng(2)
    X = rng.integers(0, 3, (60, 8))
    X[:, 0] += np.arange(60) % 3

    def rows(label, **more):
        for i, values in enumerate(X):
            features = {str(j): int(v) for j, v in enumerate(values) if v}
            yield {"features": features, "label": label(i)} | {
                k: about(i) for k, about in more.items()
            }

    names = ["red", "green", "blue"]
    stores = {
        "class": staged(
            folder,
            "class",
            rows(
                lambda i: names[i % 3] if i % 10 else None,
                split=lambda i: "test" if i % 4 == 0 else "train",
            ),
        ),
        "multilabel": staged(
            folder, "sets", rows(lambda i: [names[j] for j in range(3) if X[i, j] > 1])
        ),
        "real": staged(folder, "real", rows(lambda i: float(X[i, 0]) + 0.25)),
    }
    methods = {"class": "anova", "multilabel": "sparge-cca", "real": "f-regression"}
    done = {}
    for kind, store in stores.items():
        run = stages.select(store, folder / f"{kind}-run", method=methods[kind], features=3)
        stages.evaluate(run, folds=None if kind == "class" else 3)
        done[kind] = storage.open(store), str(stages.finish(run))
    return done


def expected_labels(corpus):
    names = np.array([*corpus.class_names, None], dtype=object)
    if corpus.spec["target"] == "class":
        return names[corpus.y].tolist()
    if corpus.spec["target"] == "real":
        return corpus.y.tolist()
    return [names[:-1][row > 0].tolist() for row in corpus.y.toarray()]


def columns(corpus, run):
    return corpus.X.columns(Run.open(run).selected).toarray()


@pytest.mark.parametrize("kind", ["class", "multilabel", "real"])
def test_npz_holds_names_targets_and_split(runs, kind, tmp_path):
    corpus, run = runs[kind]
    file = transform(run, corpus.uri, tmp_path / "z.npz")
    assert transform(run, corpus.uri, tmp_path / "z.npz") == file  # it replaces its own
    np.testing.assert_array_equal(sp.load_npz(file).toarray(), columns(corpus, run))
    with np.load(file, allow_pickle=False) as arrays:
        assert arrays["feature_names"].tolist() == list(
            corpus.feature_names[Run.open(run).selected]
        )
        assert arrays["sample_names"].tolist() == corpus.sample_names.tolist()
        y = corpus.y if corpus.y.ndim == 1 else corpus.y.toarray()
        np.testing.assert_array_equal(arrays["y"], y)
        assert arrays["class_names"].tolist() == corpus.class_names
        assert ("split" in arrays) is (kind == "class")
        if kind == "class":
            assert arrays["split"].tolist() == corpus.split.tolist()


@pytest.mark.parametrize("kind", ["class", "real"])
def test_h5ad_stages_to_the_same_columns(runs, kind, tmp_path):
    corpus, run = runs[kind]
    for _ in range(2):
        file = transform(run, corpus.uri, tmp_path / "z.h5ad")
    again = storage.open(storage.stage(f"{file}?label=label", tmp_path / "z.zarr"))
    np.testing.assert_array_equal(again.X.columns(np.arange(3)).toarray(), columns(corpus, run))
    assert list(again.feature_names[:]) == list(corpus.feature_names[Run.open(run).selected])
    assert again.sample_names.tolist() == corpus.sample_names.tolist()
    assert expected_labels(again) == expected_labels(corpus)
    if kind == "class":
        assert again.split.tolist() == corpus.split.tolist()


def test_h5ad_holds_label_sets_and_ranks(runs, tmp_path):
    h5py = pytest.importorskip("h5py")
    corpus, run = runs["multilabel"]
    with h5py.File(transform(run, corpus.uri, tmp_path / "z.h5ad")) as root:
        labels = root["obsm/labels"]
        parts = [labels[name][:] for name in ("data", "indices", "indptr")]
        np.testing.assert_array_equal(
            sp.csr_array(tuple(parts), shape=labels.attrs["shape"]).toarray(), corpus.y.toarray()
        )
        assert root["uns/label_names"].asstr()[:].tolist() == corpus.class_names
        assert root["var/bigfs_rank"][:].tolist() == [1, 2, 3]
        opened = Run.open(run)
        np.testing.assert_array_equal(root["var/bigfs_score"], opened.scores[opened.selected])


@pytest.mark.parametrize("kind", ["class", "multilabel", "real"])
def test_parquet_has_a_row_per_sample(runs, kind, tmp_path, change):
    change(ROWS, 7)
    corpus, run = runs[kind]
    for _ in range(2):
        file = transform(run, corpus.uri, tmp_path / "z.parquet")
    table = pq.read_table(file)
    names = list(corpus.feature_names[Run.open(run).selected])
    assert table.column_names == ["bigfs_sample", "bigfs_label", "bigfs_split", *names]
    np.testing.assert_array_equal(table.select(names).to_pandas().to_numpy(), columns(corpus, run))
    assert table["bigfs_sample"].to_pylist() == corpus.sample_names.tolist()
    assert table["bigfs_label"].to_pylist() == expected_labels(corpus)
    split = corpus.split.tolist() if kind == "class" else [None] * 60
    assert table["bigfs_split"].to_pylist() == split


@pytest.mark.parametrize("kind", ["class", "multilabel", "real"])
def test_predictions_as_parquet_are_those_of_the_csv(runs, kind, tmp_path):
    corpus, run = runs[kind]
    written = predict(run, corpus.uri, tmp_path / "p.csv")
    assert predict(run, corpus.uri, tmp_path / "p.parquet").scores == written.scores
    predict(run, corpus.uri, tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    lines = (tmp_path / "p.csv").read_text().splitlines()[1:]
    assert table.num_rows == len(lines) == 60
    if kind == "real":
        expected = Run.open(run).model().predict(corpus.X)
        np.testing.assert_array_equal(table["prediction"], expected)
    elif kind == "class":
        assert table["prediction"].to_pylist() == [line.split(",")[1] for line in lines]
    else:
        found = table["prediction"].to_pylist()
        assert [f'"{",".join(p)}"' if len(p) > 1 else ",".join(p) for p in found] == [
            line.split(",", 1)[1] for line in lines
        ]


@pytest.mark.parametrize("suffix", [".npz", ".h5ad", ".parquet"])
def test_a_file_of_another_program_is_not_replaced(runs, suffix, tmp_path):
    corpus, run = runs["class"]
    file = tmp_path / f"mine{suffix}"
    for write in (lambda: file.write_text("mine"), lambda: other(file)):
        write()
        before = file.read_bytes()
        with pytest.raises(ValueError, match="is in the way"):
            transform(run, corpus.uri, file)
        if suffix == ".parquet":
            with pytest.raises(ValueError, match="is in the way"):
                predict(run, corpus.uri, file)
        assert file.read_bytes() == before


def other(file):
    """A valid file of the format that bigfs did not write."""
    if file.suffix == ".parquet":
        pq.write_table(pa.table({"sample": ["a"], "prediction": ["b"]}), file)
    elif file.suffix == ".npz":
        np.savez(file, data=[1])
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(file, "w") as root:
            root["X"] = [1]


def test_names_that_collide_in_parquet_are_refused(runs, tmp_path, monkeypatch):
    corpus, run = runs["class"]
    names = np.array([f"f{j}" for j in range(8)], dtype=object)
    names[Run.open(run).selected[0]] = "bigfs_label"
    monkeypatch.setattr(
        "bigfs.storage.corpus.FeatureNames.__getitem__", lambda self, index: names[index]
    )
    rerun = stages.select(corpus.uri, tmp_path / "r", method="anova", features=3)
    path = stages.finish(rerun)
    with pytest.raises(ValueError, match="two columns would be named bigfs_label"):
        transform(path, corpus.uri, tmp_path / "z.parquet")
