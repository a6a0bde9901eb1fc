"""MATLAB files are read in a process of its own, which may crash or run out of memory."""

import sys
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from bigfs import storage
from bigfs.engine import MemoryLimitError
from bigfs.storage import sources
from bigfs.storage.sources import matlab
from tests.helpers.sources import refused, rows_of


def test_mat_that_crashes_scipy_is_refused(tmp_path):
    path = tmp_path / "X.mat"
    scipy.io.savemat(path, {"X": sp.csc_array(np.arange(12.0).reshape(4, 3))})
    raw = bytearray(path.read_bytes())
    raw[176] = 255  # the type of the variable's name
    path.write_bytes(raw)
    refused(path, r"X\.mat cannot be read as mat: ", tmp_path / "scratch")


def test_mat_names_a_reader_that_dies(tmp_path, change):
    scipy.io.savemat(tmp_path / "X.mat", {"X": np.eye(3)})
    dies = [sys.executable, "-c", "import os; os.abort()"]
    change(matlab.READER, dies)
    message = r"X\.mat cannot be read as mat: the file is damaged \(the reader crashed\)$"
    refused(tmp_path / "X.mat", message, tmp_path / "scratch")


@pytest.mark.slow
def test_mat_that_expands_without_end_is_refused_by_memory(tmp_path, allow_memory):
    """A variable whose name is 400 MB of one letter, which is 400 KB on disk."""
    allow_memory(100 << 20)
    size = 400 << 20
    scipy.io.savemat(tmp_path / "X.mat", {"X": np.eye(3)})
    header = (tmp_path / "X.mat").read_bytes()[:128]

    def tag(kind, length):
        return kind.to_bytes(4, "little") + length.to_bytes(4, "little")

    flags = tag(6, 8) + (6).to_bytes(8, "little") + tag(5, 8) + (1).to_bytes(4, "little") * 2
    packer = zlib.compressobj()
    start = packer.compress(tag(14, len(flags) + 8 + size) + flags + tag(1, size))
    packed = start + b"".join(packer.compress(b"X" * (1 << 20)) for _ in range(400))
    packed += packer.flush()
    (tmp_path / "X.mat").write_bytes(header + tag(15, len(packed)) + packed)
    with pytest.raises(MemoryLimitError, match=r"X\.mat.* needs more than the 100\.00 MiB"):
        rows_of(sources.find(tmp_path / "X.mat"), tmp_path / "scratch")


def test_mat_of_texts_as_labels_comes_back(tmp_path):
    """A cell array, whose objects do not leave the process, and MATLAB's matrix of letters."""
    words = np.array(["spam", "ham", "naïve"], dtype=object)
    scipy.io.savemat(tmp_path / "X.mat", {"fea": np.eye(3), "gnd": words[:, None]})
    X, y, *_ = rows_of(sources.find(tmp_path / "X.mat"), tmp_path / "scratch")
    np.testing.assert_array_equal(X, np.eye(3))
    assert y.tolist() == words.tolist()


@pytest.mark.parametrize("version", ["4", "5"])
def test_mat_of_both_versions_comes_back(tmp_path, version):
    scipy.io.savemat(tmp_path / "X.mat", {"X": np.eye(3), "y": np.arange(3.0)}, format=version)
    source = sources.find(tmp_path / "X.mat", format="mat")
    X, y, *_ = rows_of(source, tmp_path / "scratch")
    np.testing.assert_array_equal(X, np.eye(3))
    assert y.tolist() == [0, 1, 2]


def test_mat_on_a_full_disk_blames_the_disk(tmp_path):
    scipy.io.savemat(tmp_path / "X.mat", {"X": np.eye(3)})
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "X.npy").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        sources.find(tmp_path / "X.mat").write_matrix(tmp_path / "scratch")


# --- names ----------------------------------------------------------------------------------------


def cell_array(texts):
    cells = np.empty((len(texts), 1), dtype=object)
    cells[:, 0] = texts
    return cells


def write_old(path, X, y, names, classes):
    scipy.io.savemat(
        path,
        {"X": X, "Y": y, "feature_names": cell_array(names), "class_names": cell_array(classes)},
    )


@pytest.mark.parametrize("first", [0, 1])
def test_names_in_the_file_are_those_of_features_and_classes(tmp_path, first):
    X, y = np.arange(12.0).reshape(4, 3), np.array([0.0, 1, 1, 0]) + first
    write_old(tmp_path / "X.mat", X, y, ["TP53", "größe", "BRCA1"], ["healthy", "ill"])
    corpus = storage.open(storage.stage(tmp_path / "X.mat", tmp_path / "X.zarr"))
    assert list(corpus.feature_names) == ["TP53", "größe", "BRCA1"]
    assert list(corpus.class_names) == ["healthy", "ill"]
    assert corpus.y.tolist() == [0, 1, 1, 0]


def test_names_that_do_not_fit_are_refused_and_others_ignored(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    write_old(tmp_path / "a.mat", X, np.array([1, 2, 3, 1]), list("abc"), ["one", "two"])
    refused(tmp_path / "a.mat", "has 2 class_names, but its labels are not whole", tmp_path / "a")
    write_old(tmp_path / "b.mat", X, np.array([1, 2, 2, 1]), list("ab"), ["one", "two"])
    refused(tmp_path / "b.mat", "has 2 feature_names for 3 columns", tmp_path / "b")
    scipy.io.savemat(tmp_path / "c.mat", {"X": X, "feature_names": np.eye(2)})
    assert sources.find(tmp_path / "c.mat").prepare(tmp_path / "c").feature_names is None
