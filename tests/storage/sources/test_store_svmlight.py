"""The svmlight reader against scikit-learn's, and against files that are not quite svmlight."""

import bz2
import gzip
import io
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from bigfs import storage
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.svmlight.source import HEAD, Svmlight
from tests.helpers.sources import told_of


@pytest.fixture
def lines(rng):
    """200 × 60 with real values of many digits, y in {−1, 1}, as svmlight bytes counting from 1."""
    X = sp.random(200, 60, 0.2, format="csr", random_state=0)
    X.data = np.exp(rng.normal(size=X.nnz) * 12) * rng.choice([-1, 1], X.nnz)
    out = io.BytesIO()
    dump_svmlight_file(X, rng.choice([-1, 1], 200), out, zero_based=False, comment="made here")
    return out.getvalue()


def read(path, size=1 << 30, **options):
    source = Svmlight(str(path), **options).prepare(path.parent)
    parts = [source.read(piece) for piece in source.pieces(size)]
    width = max(part.X.shape[1] for part in parts)
    X = sp.vstack(
        [
            sp.csr_array((p.X.data, p.X.indices, p.X.indptr), shape=(p.X.shape[0], width))
            for p in parts
        ],
        format="csr",
    )
    return X, parts


@pytest.mark.parametrize("size", [97, 1000, 1 << 30])
def test_every_cut_reads_what_scikit_learn_reads(lines, tmp_path, size):
    (tmp_path / "a.svm").write_bytes(lines)
    X, parts = read(tmp_path / "a.svm", size)
    expected, y = load_svmlight_file(io.BytesIO(lines), dtype=np.float32)
    assert (expected != X.astype(np.float32)).nnz == 0  # to the last bit
    np.testing.assert_array_equal(told_of(parts, "label"), y)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_known_by_content(lines, tmp_path, compress):
    (tmp_path / "a.dat").write_bytes(compress(lines))
    corpus = storage.open(storage.stage(tmp_path / "a.dat", tmp_path / "a.zarr"))
    expected, y = load_svmlight_file(io.BytesIO(lines), dtype=np.float32)
    np.testing.assert_array_equal(corpus.X.row_tiles[0].load().toarray(), expected.toarray())
    np.testing.assert_array_equal(corpus.X.column_tiles[0].load().toarray(), expected.toarray())
    assert corpus.class_names == ["-1", "1"]
    np.testing.assert_array_equal(corpus.y, y > 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 1:2\n-1 1:x\n", r"line 2: a value must be a finite number; got '1:x'"),
        ("1 1:2\n-1 1:1.5.2\n", r"line 2: a value must be a finite number"),
        ("1 1:2\n\n# c\nfoo 1:2\n", r"line 4: a label must be a number.*got 'foo'"),
        ("1 1:2\n-1 a:2\n", r"line 2: an entry must be index:value.*got 'a:2'"),
        ("1 1:2\n-1 3\n", r"line 2: an entry must be index:value"),
        ("1 1:2\n-1 99999999999:1\n", r"line 2: an entry must be index:value"),
        ("1 2:2\n-1 3:1 3:2\n", r"line 2: an index comes twice in a line; got '3:2'"),
        ("1 2:2\n\n# c\n-1 3:1 2:1 3:2\n", r"line 4: an index comes twice in a line; got 3 twice"),
        ("1 2:2\n-1 3:nan\n", r"line 2: a value must be a finite number"),
        ("1 2:2\n-1 3:inf\n", r"line 2: a value must be a finite number"),
        ("1 2:2\n-1 3:1e39\n", r"line 2: values must be finite"),
        ("1 2:2\n1, 3:1\n", r"line 2: a label must be a number"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    (tmp_path / "bad.svm").write_text(text)
    with pytest.raises(SourceError, match=message) as error:
        read(tmp_path / "bad.svm", 5)
    assert "\n" not in str(error.value)
    assert str(tmp_path / "bad.svm") in str(error.value)


def test_index_zero_after_a_head_without_one_is_an_error_not_a_guess(tmp_path, change):
    (tmp_path / "a.svm").write_text("1 1:2\n" * 20 + "1 0:1\n")
    change(HEAD, 50)
    with pytest.raises(SourceError, match="line 21: indices begin at 1: say zero_based=true"):
        read(tmp_path / "a.svm")
    X, _ = read(tmp_path / "a.svm", zero_based=True)
    assert X.shape == (21, 2)


def test_labels_decide_the_target(tmp_path):
    found = {}
    for name, text in {
        "class": "1 1:1\n2 1:1\n",
        "real": "1.5 1:1\n2 1:1\n",
        "multilabel": "1,3 qid:4 1:1\n2 1:1 # two\n 1:2\n",
        "qid": "2 qid:7 1:.5 # 0:1\n1\n",
    }.items():
        (tmp_path / name).write_text(text)
        found[name] = storage.open(
            storage.stage(tmp_path / name, tmp_path / f"{name}.zarr", format="svmlight")
        )
    assert [corpus.spec["target"] for corpus in found.values()] == [
        "class",
        "real",
        "multilabel",
        "class",
    ]
    np.testing.assert_array_equal(found["real"].y, [1.5, 2])
    np.testing.assert_array_equal(
        found["multilabel"].y.toarray(), [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
    )
    assert found["multilabel"].class_names == ["1", "2", "3"]
    np.testing.assert_array_equal(found["qid"].X.row_tiles[0].load().toarray(), [[0.5], [0]])


def test_the_label_that_means_none_is_named(tmp_path):
    (tmp_path / "a").write_text("1 1:1\n-1 1:1\n0 1:1\n0 2:1\n")
    (tmp_path / "sets").write_text("1,2 1:1\n-1 2:1\n2 2:1\n")
    corpus = storage.open(
        storage.stage(tmp_path / "a", tmp_path / "a.zarr", format="svmlight", unlabeled="0")
    )
    assert corpus.class_names == ["-1", "1"]
    np.testing.assert_array_equal(corpus.y, [1, 0, -1, -1])
    sets = storage.open(
        storage.stage(f"{tmp_path / 'sets'}?unlabeled=-1", tmp_path / "s.zarr", format="svmlight")
    )
    np.testing.assert_array_equal(sets.y.toarray(), [[1, 1], [0, 0], [0, 1]])
    with pytest.raises(SourceError, match="has numeric labels: unlabeled='none' must be a number"):
        storage.stage(tmp_path / "a", tmp_path / "b.zarr", format="svmlight", unlabeled="none")


FRAGMENTS = [
    "1",
    "-1",
    "2.5",
    "0",
    " ",
    "\t",
    "\n",
    "\r\n",
    ":",
    "1:1",
    " 3:0.5",
    " 7:-2e-3",
    "#",
    "qid:3",
    ",",
    "nan",
    "e",
    ".",
    "-",
    "1e999",
    "é",
    "\x00",
]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.lists(st.sampled_from(FRAGMENTS), max_size=25).map(
            lambda parts: "".join(parts).encode()
        ),
    )
)
@example(b"1 1:")
@example(b"1,")
@example(b"+")
@example(b"1 1:1e")
def test_any_bytes_give_rows_or_a_clear_error(tmp_path, raw):
    (tmp_path / "fuzz").write_bytes(raw)
    try:
        X, _ = read(tmp_path / "fuzz", 7, zero_based=True)
    except SourceError:
        return
    whole, _ = read(tmp_path / "fuzz", zero_based=True)
    assert (whole != X).nnz == 0
    assert np.isfinite(X.data).all()
    try:  # scikit-learn is laxer in places, but where both read, they read the same
        expected, _ = load_svmlight_file(
            io.BytesIO(raw), dtype=np.float32, zero_based=True, n_features=max(X.shape[1], 1)
        )
    except (ValueError, OverflowError):
        return
    if expected.shape[0] == X.shape[0]:
        np.testing.assert_array_equal(X.toarray(), expected.toarray()[:, : X.shape[1]])
