"""Matrices in: what is written comes back, in any pieces; what is broken is one clear line."""

import tracemalloc

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from tests.helpers.sources import MATRICES, SIZES, refused, rows_of, save_matrix


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", MATRICES)
def test_matrices_come_back(tmp_path, matrix, kind, size):
    name, format = MATRICES[kind]
    save_matrix(kind, tmp_path / name, matrix)
    source = sources.find(tmp_path / name)
    assert source.format == format
    X, y, *_ = rows_of(source, tmp_path / "scratch", size)
    np.testing.assert_array_equal(X, matrix.toarray())
    if kind in ("dense.npz", "mat", "dense.mat"):
        np.testing.assert_array_equal(y, np.arange(23) % 3)
    if size == 1:
        assert len(source.prepare(tmp_path / "scratch").pieces(size)) == 23


def test_what_has_no_labels_takes_a_file_of_them(tmp_path, matrix):
    sp.save_npz(tmp_path / "X.npz", matrix)
    (tmp_path / "y.txt").write_text("spam\n\nham\n" + "spam\n" * 20)
    y = rows_of(sources.find(tmp_path / "X.npz", labels=str(tmp_path / "y.txt")), tmp_path, 200)[1]
    assert y.tolist() == ["spam", "", "ham", *["spam"] * 20]
    np.save(tmp_path / "y.npy", np.arange(23))
    y = rows_of(sources.find(tmp_path / "X.npz", labels=str(tmp_path / "y.npy")), tmp_path, 200)[1]
    assert y.tolist() == list(range(23))
    (tmp_path / "few.txt").write_text("1\n2\n")
    with pytest.raises(SourceError, match=r"few\.txt has 2 labels for 23 rows"):
        sources.find(tmp_path / "X.npz", labels=str(tmp_path / "few.txt")).prepare(tmp_path)
    (tmp_path / "many.txt").write_bytes(b"1\n" * 8_000_000)
    tracemalloc.start()
    with pytest.raises(SourceError, match=r"many\.txt has more than 23 labels for 23 rows"):
        sources.find(tmp_path / "X.npz", labels=str(tmp_path / "many.txt")).prepare(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20  # it is not read whole


def test_a_stack_of_images_is_flattened_columns_first(tmp_path, rng):
    stack = rng.integers(0, 255, (9, 4, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", stack)
    source = sources.find(tmp_path / "images.npy").prepare(tmp_path)
    assert source.sample_shape == (4, 3)
    X, *_ = rows_of(source.__class__(str(tmp_path / "images.npy")), tmp_path, 30)
    for image, row in zip(stack, X, strict=True):
        np.testing.assert_array_equal(row, image.T.ravel())
        np.testing.assert_array_equal(row.reshape(4, 3, order="F"), image)
    np.savez(tmp_path / "images.npz", X=stack, y=np.array(list("abcabcabc")))
    X2, y, *_ = rows_of(sources.find(tmp_path / "images.npz"), tmp_path)
    np.testing.assert_array_equal(X2, X)
    assert "".join(y) == "abcabcabc"


@pytest.mark.slow
def test_real_matlab_files(real_data, tmp_path):
    X, y, *_ = rows_of(sources.find(real_data / "colon.mat"), tmp_path, 10**5)
    assert X.shape == (62, 2000)
    assert set(y.tolist()) == {-1, 1}  # two classes: −1 is one of them
    source = sources.find(real_data / "COIL20.mat", sample_shape="32x32").prepare(tmp_path)
    assert (source.n_features, source.sample_shape) == (1024, (32, 32))
    assert len(np.unique(rows_of(sources.find(real_data / "PCMAC.mat"), tmp_path)[1])) == 2


MTX = "%%MatrixMarket matrix coordinate real general\n% made by hand\n3 4 2\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MTX + "1 1 1.5\n", "announces 2 entries and holds fewer"),
        (MTX + "1 1 1.5\n4 1 2\n", "a row index lies outside 0 … 2"),
        (MTX + "1 1 1.5\n1 0 2\n", "a column index lies outside 0 … 3"),
        (MTX + "1 1 nan\n2 2 1\n", r"row 0, column 0 \(from 0\) is nan"),
        (MTX + "1 1 x\n2 2 1\n", "after line 3"),
        (MTX + "1 1\n2 2\n", "is nan"),
        (MTX + "1 1 1\n2 2 1\n3 3 1\n", "announces 2 entries and holds more"),
        (MTX + "1 1 1 5\n2 2 1 5\n", "after line 3"),
        (MTX, "announces 2 entries and holds fewer"),
        ("%%MatrixMarket matrix coordinate complex general\n3 4 2\n", "complex general matrix"),
        ("%%MatrixMarket matrix coordinate real symmetric\n3 3 0\n", "real symmetric matrix"),
        ("%%MatrixMarket vector\n3\n", "line 1: expected a header"),
        (
            "%%MatrixMarket matrix coordinate real general\n3 4\n",
            "line 2: rows, columns and entries",
        ),
        ("%%MatrixMarket matrix coordinate real general\n0 4 0\n", "0 × 4"),
    ],
)
def test_bad_matrix_market(tmp_path, content, message):
    path = tmp_path / "bad.mtx"
    path.write_text(content)
    refused(path, message, tmp_path)


def test_bad_arrays(tmp_path, matrix):
    path = tmp_path / "bad.npy"
    np.save(path, np.array([[1.0, np.inf], [0, 1]]))
    refused(path, r"row 0, column 1 \(from 0\) is inf", tmp_path)
    np.save(path, np.array([[1, "a"]], dtype=object))
    refused(path, "cannot be read as npy: .*Python objects", tmp_path)
    np.save(path, np.zeros((2, 2), complex))
    refused(path, "holds complex128", tmp_path)
    np.save(path, np.zeros(5))
    refused(path, "has 1 dimensions", tmp_path)
    np.save(path, np.zeros((0, 5)))
    refused(path, "0 × 5", tmp_path)
    np.save(path, np.ones((20, 20)))
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "cannot be read as npy", tmp_path)
    np.save(path, np.ones((4, 10)))
    refused(path, "10 features per row, which is not an image", tmp_path, sample_shape="3x3")
    with pytest.raises(SourceError, match="sample_shape must be M x N"):
        sources.find(path, sample_shape="3by3")


def test_bad_npz(tmp_path, matrix):
    path = tmp_path / "bad.npz"
    np.savez(
        path,
        data=matrix.data,
        indices=matrix.indices + 17,
        indptr=matrix.indptr,
        format="csr",
        shape=matrix.shape,
    )
    refused(path, "column index lies outside 0 … 16", tmp_path)
    np.savez(
        path,
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr[::-1],
        format="csr",
        shape=matrix.shape,
    )
    refused(path, "indptr does not match", tmp_path)
    np.savez(
        path,
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr[:-1],
        format="csr",
        shape=matrix.shape,
    )
    refused(path, "indptr has 23 entries of int32, not 24", tmp_path)
    sp.save_npz(path, sp.eye_array(4).asformat("dia"))
    refused(path, "holds a dia matrix: save X.tocsr", tmp_path)
    np.savez(path, X=matrix.toarray(), y=np.arange(5))
    refused(path, "5 labels for 23 rows", tmp_path)
    np.savez(path, A=matrix.toarray())
    refused(path, "holds 'A.npy'", tmp_path, format="npz")
    np.savez(path, X=np.array([{"a": 1}], dtype=object))
    refused(path, "Python objects", tmp_path)


@pytest.mark.slow
def test_bad_mat(tmp_path, matrix):
    path = tmp_path / "bad.mat"
    scipy.io.savemat(path, {"A": matrix, "b": 1})
    refused(path, "has the variables A, b: name the matrix with x=", tmp_path)
    scipy.io.savemat(path, {"X": matrix, "Y": np.ones((17, 1))})
    refused(path, "17 labels for 23 rows", tmp_path)
    scipy.io.savemat(path, {"X": matrix.toarray()}, do_compression=True)
    whole = path.read_bytes()
    for length in (130, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(path, "cannot be read as mat|has the variables none", tmp_path)
