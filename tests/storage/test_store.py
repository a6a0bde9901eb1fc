"""The corpus store: what is staged is what the source holds, whole or absent, never a wrong
number.
"""

import io
import lzma
import os
import tarfile
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.feature_extraction.text import TfidfVectorizer

from bigfs import engine, storage
from bigfs.storage.sources.scratch_matrix import bounds
from bigfs.storage.staging.build import TEXT_PIECE
from tests.helpers.listing import names_in
from tests.helpers.stores import dense_tiles


@pytest.fixture(scope="session")
def documents():
    """Name → text: two classes, two halves, terms that occur once, one empty document, Latin-1
    letters.
    """
    rng = np.random.default_rng(3)
    words = np.array([f"w{i:03d}" for i in range(300)])
    rate = 1.0 / np.arange(1, 301)
    found = {}
    for half, count in (("train", 40), ("test", 15)):
        for label in ("birds", "cats"):
            for i in range(count):
                bag = rng.choice(words, size=rng.integers(3, 60), p=rate / rate.sum())
                found[f"animals-{half}/{label}/{i:03d}"] = (
                    " ".join(bag) + f" {label} Être only{half}{label}{i}"
                ).encode("latin-1")
    found["animals-train/cats/900"] = b""
    return dict(sorted(found.items()))


@pytest.fixture(scope="session")
def folder(documents, tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "animals"
    for name, raw in documents.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(raw)
    return path


def by_sklearn(documents, **options):
    """TfidfVectorizer fitted on the training half: train rows, then test rows, in order of name."""
    halves = [
        [raw for name, raw in documents.items() if f"-{half}/" in name]
        for half in ("train", "test")
    ]
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, encoding="latin-1", **options).fit(
        halves[0]
    )
    return vectorizer, [vectorizer.transform(half) for half in halves]


@pytest.mark.parametrize("tile_rows", [None, 7])
def test_text_is_what_tfidfvectorizer_makes(documents, folder, tmp_path, tile_rows):
    corpus = storage.open(storage.stage(folder, tmp_path / "a.zarr", tile_rows=tile_rows))
    vectorizer, (train, test) = by_sklearn(documents)
    expected = sp.vstack([train, test]).toarray().astype(np.float32)
    assert list(corpus.feature_names[:]) == list(vectorizer.get_feature_names_out())
    for tiles, axis in ((corpus.X.row_tiles, 0), (corpus.X.column_tiles, 1)):
        np.testing.assert_allclose(
            dense_tiles(tiles, axis), expected, rtol=2e-7
        )  # one float32 rounding
    part = corpus.part("test")
    np.testing.assert_allclose(dense_tiles(part.X.column_tiles, 1), test.toarray(), rtol=2e-7)
    np.testing.assert_allclose(part.X.stats.sums, test.sum(axis=0).A1, rtol=1e-6)
    np.testing.assert_array_equal(part.X.stats.nnz, (test != 0).sum(axis=0).A1)
    assert part.X.passes == 0
    assert corpus.class_names == ["birds", "cats"]
    names = [name for half in ("train", "test") for name in documents if f"-{half}/" in name]
    assert list(corpus.sample_names) == names
    assert [corpus.class_names[c] for c in corpus.y] == [name.split("/")[1] for name in names]
    assert list(part.split) == ["test"] * 30


def archive(documents, kind, path):
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as out:
            for name, raw in documents.items():
                out.writestr(name, raw)
        return
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as out:
        for name, content in documents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    path.write_bytes(lzma.compress(raw.getvalue()) if kind == "xz" else raw.getvalue())


@pytest.mark.parametrize("kind", ["tar", "xz", "zip"])
def test_an_archive_holds_the_same_corpus(documents, folder, tmp_path, kind):
    archive(documents, kind, tmp_path / f"animals.{kind}")
    a = storage.open(storage.stage(folder, tmp_path / "a.zarr"))
    b = storage.open(storage.stage(tmp_path / f"animals.{kind}", tmp_path / "b.zarr"))
    assert a.spec["content"] == b.spec["content"]
    # and nothing beside them
    assert names_in(tmp_path) == ["a.zarr", f"animals.{kind}", "b.zarr"]


def test_gathered_columns_and_names(folder, tmp_path, rng):
    corpus = storage.open(storage.stage(folder, tmp_path / "a.zarr", tile_rows=9))
    X, index = dense_tiles(corpus.X.row_tiles, 0), rng.permutation(corpus.X.shape[1])[:17]
    assert len(corpus.X.column_tiles) > 3
    np.testing.assert_array_equal(corpus.X.columns(index).toarray(), X[:, index])
    np.testing.assert_array_equal(
        corpus.part("test").X.columns(index).toarray(), X[corpus.split == "test"][:, index]
    )
    names = corpus.feature_names
    assert list(names[index]) == [names[int(i)] for i in index]


def test_a_store_is_made_once(folder, tmp_path):
    uri = storage.stage(folder, tmp_path / "a.zarr")
    before = os.stat(uri).st_mtime_ns
    assert storage.find_store(folder, uri) == uri
    assert storage.stage(folder, uri) == uri
    assert os.stat(uri).st_mtime_ns == before
    assert storage.find_store(folder, tmp_path / "b.zarr") is None
    with pytest.raises(storage.StoreError, match="other settings"):
        storage.stage(folder, uri, min_df=3)


def test_vocabularies_are_merged_in_a_tree(folder, tmp_path, change):
    whole = storage.open(storage.stage(folder, tmp_path / "a.zarr"))
    change(TEXT_PIECE, 999)
    labels = set()
    with engine.progress(lambda label, done, total: labels.add((label, total))):
        pieces = storage.open(storage.stage(folder, tmp_path / "b.zarr"))
    assert sum(label == "merge terms" for label, _ in labels) > 1
    assert pieces.spec["content"] == whole.spec["content"]


def test_hashing_needs_no_vocabulary(documents, folder, tmp_path):
    corpus = storage.open(storage.stage(folder, tmp_path / "a.zarr", hashing=1 << 10))
    X = dense_tiles(corpus.X.row_tiles, 0)
    assert X.shape[1] == 1024
    norms = np.linalg.norm(X, axis=1)
    np.testing.assert_allclose(norms[norms > 0], 1, rtol=1e-6)
    assert (norms == 0).sum() == 1  # the empty document


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "nowhere", "does not exist"),
        (lambda p: (p / "empty").mkdir() or p / "empty", "holds no file that is seen"),
        (
            lambda p: (
                (p / "a.tar.xz").write_bytes(lzma.compress(os.urandom(9999))[:500])
                and p / "a.tar.xz"
            ),
            "is broken",
        ),
    ],
)
def test_bad_sources_end_in_one_line_and_leave_nothing(tmp_path, make, message):
    source = make(tmp_path)
    before = names_in(tmp_path)
    with pytest.raises(storage.SourceError, match=message) as error:
        storage.stage(source, tmp_path / "a.zarr", format="text" if source.exists() else None)
    assert "\n" not in str(error.value)
    assert names_in(tmp_path) == before


def test_a_store_in_an_object_store(documents, folder, tmp_path):
    """Nothing can be renamed there: the manifest comes last."""
    local = storage.open(storage.stage(folder, tmp_path / "a.zarr"))
    uri = storage.stage(folder, "memory://bucket/animals.zarr", scratch=tmp_path / "scratch")
    remote = storage.open(uri)
    assert remote.spec["content"] == local.spec["content"]
    np.testing.assert_array_equal(
        dense_tiles(remote.X.column_tiles, 1), dense_tiles(local.X.column_tiles, 1)
    )
    assert storage.check(uri).problems == []
    assert storage.find_store(folder, uri) == uri
    assert names_in(tmp_path / "scratch") == []
    with pytest.raises(storage.StoreError, match="does not exist: stage a source there first"):
        storage.open("memory://bucket/other.zarr")
    with pytest.raises(storage.StoreError, match="cannot be used: Protocol not known"):
        storage.open("nowhere://bucket/other.zarr")


ANNDATA = {
    "": "anndata 0.1.0",
    "X": "csr_matrix 0.1.0",
    "X/data": "array 0.2.0",
    "obs": "dataframe 0.2.0",
    "obs/_index": "string-array 0.2.0",
    "obs/label": "categorical 0.2.0",
    "obs/split": "categorical 0.2.0",
    "var": "dataframe 0.2.0",
    "var/idf": "array 0.2.0",
    "uns": "dict 0.1.0",
    "uns/columns/0": "csc_matrix 0.1.0",
    "uns/statistics/1": "dict 0.1.0",
}


def test_the_layout_is_anndatas(folder, tmp_path):
    """By its published attributes; anndata itself opens it in an environment of its own
    (docs/guide/store.md).
    """
    root = zarr.open_group(storage.stage(folder, tmp_path / "a.zarr"), mode="r")
    for path, encoding in ANNDATA.items():
        attributes = (root[path] if path else root).attrs
        assert f"{attributes['encoding-type']} {attributes['encoding-version']}" == encoding, path
    assert root["X"].attrs["shape"] == [111, root["var/idf"].shape[0]]
    assert root["obs"].attrs["column-order"] == ["label", "split"]
    assert root["obs"].attrs["_index"] == "_index"
    # Zarr warns of anything else, which is an error here
    assert sorted(root.keys()) == ["X", "obs", "uns", "var"]
    X = sp.csr_array(
        tuple(root[f"X/{part}"][:] for part in ("data", "indices", "indptr")),
        shape=root["X"].attrs["shape"],
    )
    assert X.has_canonical_format


def test_bounds_cut_counts_in_tiles():
    counts = np.array([3, 0, 9, 1, 1, 1, 0])
    cuts = bounds([counts[:3], counts[3:]], 4)
    assert cuts[0] == 0
    assert cuts[-1] == 7
    # the last one fills it
    assert all(counts[a : b - 1].sum() < 4 for a, b in zip(cuts, cuts[1:], strict=False))


def test_bounds_cut_many_columns_that_are_nearly_empty():
    counts = [np.eye(1, 5, 1, dtype=int)[0]] * 3
    assert bounds(counts, 2) == (0, 7, 15)
    assert bounds(counts, 2, most=4) == (0, 4, 7, 8, 12, 15)
