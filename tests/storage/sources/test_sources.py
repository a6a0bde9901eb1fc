"""Sources by name and option, and their labels."""

import json
import pickle
import re

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import samples
from bigfs.storage.sources.joined import join
from tests.helpers.sources import documents_of, refused, rows_of

FRAME = pd.DataFrame({"text": ["one two", "two three"], "label": ["a", "b"]})
SMALL = sp.csr_matrix(np.array([[0.0, 1.0], [2.0, 0.0]]))


def write_h5ad(path):
    with h5py.File(path, "w") as file:
        file["X"] = SMALL.toarray()


def write_folder(path):
    for label in FRAME["label"]:
        (path / label).mkdir(parents=True)
        (path / label / "1.txt").write_text("one two")


WRITERS = {
    "rows.svm": lambda path: path.write_text("1 1:1\n2 2:2\n"),
    "docs.jsonl": lambda path: path.write_text(FRAME.to_json(orient="records", lines=True)),
    "docs.csv": lambda path: path.write_text(FRAME.to_csv(index=False)),
    "docs.parquet": FRAME.to_parquet,
    "X.npy": lambda path: np.save(path, SMALL.toarray()),
    "X.npz": lambda path: sp.save_npz(path, SMALL),
    "X.mtx": lambda path: scipy.io.mmwrite(path, SMALL),
    "X.mat": lambda path: scipy.io.savemat(path, {"X": SMALL, "Y": [[1], [2]]}),
    "X.h5ad": write_h5ad,
    "folder": write_folder,
}


@pytest.mark.parametrize("name", WRITERS)
def test_relative_path_is_read_from_another_folder(name, tmp_path, monkeypatch):
    """A user's cluster may have another current folder than the notebook."""
    home, scratch, elsewhere = (tmp_path / folder for folder in ("home", "scratch", "elsewhere"))
    for folder in (home, scratch, elsewhere):
        folder.mkdir()
    monkeypatch.chdir(home)
    WRITERS[name](home / name)
    source = sources.find(name).prepare(scratch)
    shipped = pickle.dumps((source, source.pieces(10**9)))
    monkeypatch.chdir(elsewhere)
    source, pieces = pickle.loads(shipped)  # noqa: S301, as a worker gets it
    rows = [source.read(piece) for piece in pieces]
    counts = [
        part.X.shape[0] if hasattr(part, "X") else sum(len(list(some.texts)) for some in part)
        for part in rows
    ]
    assert sum(counts) == 2


def test_absolute_path_of_a_source_that_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    WRITERS["rows.svm"](tmp_path / "rows.svm")
    rows = sources.FORMATS["svmlight"]("rows.svm")
    assert rows.absolute().path == str(tmp_path / "rows.svm")
    joined = join("two", [(rows, "train"), (rows, "test")]).absolute()
    assert joined.path == "two"
    assert {part.path for part, _ in joined.parts} == {str(tmp_path / "rows.svm")}
    generated = sources.find("synthetic:newswire")
    assert generated.absolute().path == generated.path
    corpus = storage.open(storage.stage(rows, "rows.zarr"))
    assert corpus.manifest.source["uri"] == str(tmp_path / "rows.svm")


def test_options_may_follow_the_path(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"body": "x", "y": "?"}\n')
    (found,) = documents_of(sources.find(f"{path}?text=body&label=y&unlabeled=%3F"), tmp_path)
    assert (found.text, found.label) == ("x", None)
    path = tmp_path / "X.svm"
    path.write_text("1 1:2\n")
    assert sources.find(f"{path}?zero_based=true&n_features=9").prepare(tmp_path).zero_based is True
    assert rows_of(sources.find(f"{path}?zero_based=true&n_features=9"), tmp_path)[0].tolist() == [
        [0, 2, *[0] * 7]
    ]
    for query, message in (
        ("zero_based=maybe", "zero_based must be true or false"),
        ("n_features=x", "n_features must be a whole number"),
        ("plain=x", "has no option plain"),
    ):
        with pytest.raises(SourceError, match=message):
            sources.find(f"{path}?{query}")


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        (np.array([-1, 1, -1], dtype=np.int16), {}, [-1, 1, -1]),
        (np.array([-1, 1, -1], dtype=np.int16), {"unlabeled": "-1"}, [None, 1, None]),
        ([1.0, np.nan, 2.0], {}, [1, None, 2]),
        (["x", "?", ""], {"unlabeled": "?"}, ["x", None, None]),
        ([None, None], {}, [None, None]),
        ([True, None, False], {}, ["true", None, "false"]),
        ([1, "a", 2.0], {}, ["1", "a", "2"]),
        ([2**70, None, 3.0], {}, [2**70, None, 3]),
        ([[1, None], [], None], {"unlabeled": "1"}, [[], [], []]),
        (["a b", " b", None], {"separator": " "}, [["a", "b"], ["b"], []]),
        (["1.5", "", "2"], {"target": "real"}, [1.5, None, 2.0]),
    ],
)
def test_what_a_label_is(values, options, expected):
    column = samples.read("label", values, str, samples.LabelRules(**options))
    assert column.to_pylist() == expected


def test_a_piece_without_words_does_not_make_a_class_nan(tmp_path, monkeypatch):
    path = tmp_path / "X.jsonl"
    lines = [{"features": {"0": 1}, "label": label} for label in ("spam", None, 7, "spam")]
    path.write_text("\n".join(map(json.dumps, lines)))
    source = sources.find(path)
    whole = type(source).pieces
    monkeypatch.setattr(type(source), "pieces", lambda self, size: whole(self, 1))
    corpus = storage.open(storage.stage(source, tmp_path / "X.zarr"))
    assert corpus.class_names == ["7", "spam"]
    assert corpus.y.tolist() == [1, -1, 0, 1]


def test_unknown_content_and_options(tmp_path):
    path = tmp_path / "noise.bin"
    path.write_bytes(bytes(range(256)))
    refused(path, "name it with format=", tmp_path)
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "x"}\n')
    with pytest.raises(SourceError, match="jsonl has no option labl: did you mean label"):
        sources.find(path, labl="y")
    with pytest.raises(SourceError, match=r"unknown format 'word'; the formats are") as caught:
        sources.find(path, format="word")
    assert "csv, text, svmlight" in str(caught.value)  # and none that options choose
    assert not re.search("lists|maps|features", str(caught.value))
    with pytest.raises(SourceError, match="does not exist"):
        sources.find(tmp_path / "nothing.csv")


@pytest.mark.parametrize("name", ["rows.svm", "docs.jsonl", "docs.parquet"])
def test_a_worker_that_does_not_see_the_source_says_so(name, tmp_path, monkeypatch):
    path = tmp_path / name
    if name == "docs.parquet":
        pd.DataFrame({"text": ["one two"] * 3}).to_parquet(path)
    else:
        path.write_text({"rows.svm": "1 1:1\n"}.get(name, '{"text": "a"}\n'))
    kind = type(sources.find(path))
    pieces = kind.pieces

    def elsewhere(self, size):
        found = pieces(self, size)
        path.unlink()
        return found

    monkeypatch.setattr(kind, "pieces", elsewhere)
    with pytest.raises(
        SourceError, match=f"{name} is gone, or a worker cannot see it: .*BIGFS_DATA"
    ):
        storage.stage(path, tmp_path / "a.zarr", **({} if name == "rows.svm" else {"min_df": 1}))
