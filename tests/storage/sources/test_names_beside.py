"""Names of columns and samples in files beside a matrix, or in lists."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.staging.build import MATRIX_PIECE

X = np.array([[1.0, 0, 2], [0, 3, 0], [4, 0, 0], [0, 0, 5.0]])
GENES, CELLS = ["gene 1", "géne 2", "gene 3"], ["a", "b", "", "d"]


def svmlight(path):
    dump_svmlight_file(X, [1, 2, 1, 2], str(path), zero_based=False)
    path.write_text("# a comment\n\n" + path.read_text())


WRITE = {
    "t.npy": lambda path: np.save(path, X),
    "t.npz": lambda path: sp.save_npz(path, sp.csr_array(X)),
    "t.mtx": lambda path: scipy.io.mmwrite(path, sp.coo_array(X)),
    "t.mat": lambda path: scipy.io.savemat(path, {"X": X}),
    "t.svm": svmlight,
}


@pytest.fixture(params=[*WRITE, "array"])
def source(request, tmp_path):
    if request.param == "array":
        return X
    WRITE[request.param](tmp_path / request.param)
    return tmp_path / request.param


def put(path, names, end="\n"):
    path.write_bytes(b"\xef\xbb\xbf" + (end.join(names) + end).encode())
    return str(path)


@pytest.mark.parametrize("kind", ["files", "lists"])
def test_names_are_those_of_the_store(source, kind, tmp_path):
    lists = {"names": GENES, "sample_names": CELLS}
    files = {k: put(tmp_path / f"{k}.txt", v, "\tmore\r\n") for k, v in lists.items()}
    uri = storage.stage(source, tmp_path / "a.zarr", **(files if kind == "files" else lists))
    corpus = storage.open(uri)
    assert list(corpus.feature_names) == GENES
    assert list(corpus.sample_names) == ["a", "b", "2", "d"]
    assert corpus.X.rows(range(4)).toarray().tolist() == X.tolist()
    assert "gene 1" not in str(corpus.manifest.source)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (GENES[:2], "names for 3 columns|index 3, but names=gives 2|3 columns, and 2 names"),
        ([*GENES, "gene 4"], "first one too many is 'gene 4'|3 columns, and 4 names"),
        (["x", "y", "x"], "names.txt, line 3: 'x' comes again, after 1"),
        (["x", "", "y"], "names.txt, line 2: there is no name"),
    ],
)
def test_names_that_are_not_those_of_the_columns_are_refused(source, names, message, tmp_path):
    if str(source).endswith(".svm") and len(names) > 3:
        return  # its last columns may be empty
    with pytest.raises(SourceError, match=message):
        storage.stage(source, tmp_path / "a.zarr", names=put(tmp_path / "names.txt", names))


def test_sample_names_are_as_many_as_the_samples(source, tmp_path):
    names = put(tmp_path / "cells.txt", ["a", "b", "c", "d", "e"])
    with pytest.raises(
        SourceError, match=r"cells\.txt has 5 names for 4 (rows|samples)|4 rows and 5"
    ):
        storage.stage(source, tmp_path / "a.zarr", sample_names=names)
    with pytest.raises(SourceError, match=r"nowhere\.txt does not exist: names= must name a text"):
        storage.stage(source, tmp_path / "a.zarr", names="nowhere.txt")


def test_sample_names_of_svmlight_do_not_depend_on_the_pieces(tmp_path, change):
    change(MATRIX_PIECE, 64)
    names = [f"s{i}" for i in range(40)]
    (tmp_path / "a.svm").write_text("".join(f"{i % 2} 1:{i + 1} # c\n\n" for i in range(40)))
    uri = storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", sample_names=names)
    corpus = storage.open(uri)
    assert list(corpus.sample_names) == names
    assert corpus.X.rows(range(40)).toarray().ravel().tolist() == [*range(1, 41)]


def test_names_rule_the_columns_of_the_test_file(tmp_path):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, X)
    names = put(tmp_path / "names.txt", GENES)
    uri = storage.stage(
        tmp_path / "a.npy", tmp_path / "a.zarr", test=tmp_path / "b.npy", names=names
    )
    corpus = storage.open(uri)
    assert list(corpus.feature_names) == GENES
    assert corpus.X.shape == (8, 3)


def test_feature_names_in_an_npz_are_those_of_the_store(tmp_path):
    np.savez(tmp_path / "a.npz", X=X, feature_names=np.array(GENES))
    assert list(storage.open(storage.stage(tmp_path / "a.npz")).feature_names) == GENES
    np.savez(tmp_path / "b.npz", X=X, feature_names=np.array(GENES[:2]))
    with pytest.raises(SourceError, match="has 2 feature_names for 3 columns"):
        storage.stage(tmp_path / "b.npz")


def test_a_missing_file_of_labels_is_named(tmp_path):
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(SourceError, match=r"nowhere\.txt") as caught:
        storage.stage(tmp_path / "a.npy", labels=str(tmp_path / "nowhere.txt"))
    assert "\n" not in str(caught.value)
