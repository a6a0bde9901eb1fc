"""What no store can hold is refused where it is read, in every format: by file and place, before
memory is taken for it.
"""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
import zarr

from bigfs import storage
from bigfs.engine import MemoryLimitError
from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from bigfs.storage.sources import checks
from bigfs.storage.sources.base import Rows
from bigfs.storage.staging import build, transpose
from bigfs.storage.staging import scratch as scratch_files
from bigfs.storage.staging.transpose import MAX_COLUMNS_HELD
from tests.helpers.daily import daily
from tests.helpers.listing import names_in
from tests.helpers.sources import refused, rows_of

h5py = pytest.importorskip("h5py", reason="h5py is an optional extra")


def with_value(kind, folder, value):
    """A matrix of 2 × 2 with `value` in its second row and column, in a file of some format."""
    X = np.array([[1.0, 0.0], [0.0, value]])
    path = folder / f"X.{kind.split('-')[-1]}"
    if kind == "svm":
        path.write_text(f"1 1:1\n2 2:{value!r}\n")
    elif kind == "jsonl":
        path.write_text(f'{{"features": {{"0": 1}}}}\n{{"features": {{"1": {value!r}}}}}\n')
    elif kind == "npy":
        np.save(path, X)
    elif kind in ("csr-npz", "csc-npz", "coo-npz"):
        sp.save_npz(path, sp.coo_array(X).asformat(kind[:3]))
    elif kind == "dense-npz":
        np.savez(path, X=X)
    elif kind == "mat":
        scipy.io.savemat(path, {"X": sp.csc_array(X)})
    elif kind == "dense-mat":
        scipy.io.savemat(path, {"X": X})
    elif kind == "mtx":
        path.write_text(
            f"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 {value!r}\n"
        )
    elif kind == "array-mtx":
        path.write_text(f"%%MatrixMarket matrix array real general\n2 2\n1\n0\n0\n{value!r}\n")
    else:
        path = write_anndata(
            folder,
            kind,
            sp.csr_array(X)
            if kind.startswith("csr")
            else sp.csc_array(X)
            if kind.startswith("csc")
            else X,
        )
    return path


def write_anndata(folder, kind, X, **parts):
    """X of an AnnData file; `parts` replaces data, indices or indptr, or the shape."""
    path = folder / f"X.{kind.split('-')[-1]}"
    root = h5py.File(path, "w") if path.suffix == ".h5ad" else zarr.open_group(path, mode="w")
    root.attrs["encoding-type"] = "anndata"
    if sp.issparse(X):
        group = root.create_group("X")
        for name in ("data", "indices", "indptr"):
            group[name] = np.asarray(parts.get(name, getattr(X, name)))
        group.attrs.update(
            {"encoding-type": f"{X.format}_matrix", "shape": list(parts.get("shape", X.shape))}
        )
    else:
        root["X"] = X
    if path.suffix == ".h5ad":
        root.close()
    return path


FORMATS = [
    "svm",
    "jsonl",
    "npy",
    "csr-npz",
    "csc-npz",
    "coo-npz",
    "dense-npz",
    "mat",
    "dense-mat",
    "mtx",
    "array-mtx",
]
FORMATS += ["csr-h5ad", "csc-h5ad", "dense-h5ad", "csr-zarr", "dense-zarr"]


@pytest.mark.slow
@pytest.mark.parametrize("value", daily([1e300, -1e300, 1e-300, -1e-60], -1e300, 1e-300))
@pytest.mark.parametrize("kind", FORMATS)
def test_value_beyond_float32_is_refused_by_place(tmp_path, kind, value):
    place = {"svm": "line 2", "jsonl": r"line 2, column 1 \(from 0\)"}.get(
        kind, r"row 1, column 1 \(from 0\)"
    )
    refused(
        with_value(kind, tmp_path, value),
        f"{place}.*values must be finite and fit in float32",
        tmp_path / "scratch",
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_value_that_float32_holds_is_read(tmp_path, kind):
    for value in (3.4e38, -1e-44, 0.1):
        X, *_ = rows_of(sources.find(with_value(kind, tmp_path, value)), tmp_path / "scratch")
        np.testing.assert_array_equal(
            X[:, 1].astype(np.float32), np.array([0, value]).astype(np.float32)
        )


def test_value_gate_holds_for_sources_of_others_and_in_place(tmp_path):
    class Own(sources.Synthetic):
        def read(self, piece):
            X = super().read(piece).X.astype(np.float64)
            X.data[3] = 1e200
            return Rows(X)

    with pytest.raises(
        SourceError,
        match=r"synthetic:newswire\?rows=5&seed=0: row 0 of the part " r"\(0, 5\), .* is 1e\+200",
    ):
        storage.stage(Own("synthetic:newswire?rows=5"), tmp_path / "X.zarr")
    corpus = storage.open(with_value("csr-zarr", tmp_path, 1e300))
    with pytest.raises(SourceError, match=r"X\.zarr: row 1, column 1 \(from 0\) is 1e\+300"):
        corpus.X.row_tiles[0].load()


def test_values_whose_sum_passes_float32_are_refused(tmp_path):
    path = tmp_path / "X.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n1 2 2\n1 1 3e38\n1 1 3e38\n")
    refused(path, "row 0, column 0", tmp_path / "scratch")


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (
            "jsonl",
            '{"features": {"0": 1}}\n{"features": {"4294967297": 7}}\n',
            "line 2: column 4294967297",
        ),
        ("jsonl", '{"features": {"3000000000": 1, "5": 2}}\n', "line 1: column 3000000000"),
        (
            "jsonl",
            '{"features": {"2147483647": 1}}\n',
            r"line 1: column 2147483647 \(from 0\): a store " r"holds up to 2147483647",
        ),
        ("svm", "1 1:1\n1 2147483648:1\n", "line 2: an entry must be index:value"),
        ("svm", "1 1:1\n1 18446744073709551617:1\n", "line 2: an entry must be index:value"),
        (
            "mtx",
            "%%MatrixMarket matrix coordinate real general\n1 3000000001 1\n1 3000000001 1\n",
            "has 3000000001 features",
        ),
        (
            "mtx",
            "%%MatrixMarket matrix coordinate real general\n3000000001 1 1\n1 1 1\n",
            "has 3000000001 samples",
        ),
        (
            "mtx",
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 4294967298 1\n",
            r"column index lies outside 0 … 1",
        ),
    ],
)
def test_index_beyond_int32_is_refused(tmp_path, kind, content, message):
    path = tmp_path / f"X.{kind}"
    path.write_text(content)
    refused(path, message, tmp_path / "scratch")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_npz_refuses_more_columns_than_int32_counts(tmp_path, kind):
    parts = {"row": [0], "col": [5]} if kind == "coo" else {"indices": [5], "indptr": [0, 1]}
    np.savez(tmp_path / "X.npz", data=[1.0], format=kind, shape=(1, 3_000_000_001), **parts)
    refused(
        tmp_path / "X.npz",
        "has 3000000001 features: a store holds up to 2147483647",
        tmp_path / "scratch",
    )


@pytest.mark.parametrize(
    ("indptr", "message"),
    [
        ([4, 4, 4], "it runs from 4 to 4"),
        ([0, 1, 1], "it runs from 0 to 1"),
        ([0, 2, 1], "it runs from 0 to 1"),
        ([0, 3, 2], "does not match"),
        ([0, 1, 3], "it runs from 0 to 3"),
        ([0, 2], "has 2 entries|the lengths"),
        ([0.0, 1.0, 2.0], "float64, not 3 integers"),
    ],
)
@pytest.mark.parametrize("kind", ["csr-npz", "csc-npz", "csr-h5ad", "csc-h5ad", "csr-zarr"])
def test_indptr_that_leaves_entries_out_is_refused(tmp_path, kind, indptr, message):
    X = sp.eye_array(2, format=kind[:3])
    if kind.endswith("npz"):
        np.savez(
            tmp_path / "X.npz",
            data=X.data,
            indices=X.indices,
            indptr=np.array(indptr),
            format=kind[:3],
            shape=X.shape,
        )
        path = tmp_path / "X.npz"
    else:
        path = write_anndata(tmp_path, kind, X, indptr=indptr)
    refused(path, message, tmp_path / "scratch")


@pytest.mark.parametrize(
    "kind", ["csr-npz", "csc-npz", "coo-npz", "mat", "mtx", "csr-h5ad", "csc-h5ad", "csr-zarr"]
)
def test_repeated_entries_are_summed_as_scipy_does(tmp_path, kind):
    X = sp.coo_array(([1.0, 2.0, 4.0, 8.0], ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2))
    path = tmp_path / f"X.{kind.split('-')[-1]}"
    if kind == "mtx":
        scipy.io.mmwrite(path, X)
    elif kind == "coo-npz":
        sp.save_npz(path, X)
    else:
        parts = {"data": X.data, "indices": np.array([1, 1, 0, 0]), "indptr": np.array([0, 2, 4])}
        form = "csc" if kind in ("csc-npz", "csc-h5ad", "mat") else "csr"
        Z = (sp.csc_array if form == "csc" else sp.csr_array)(
            (parts["data"], parts["indices"], parts["indptr"]), shape=(2, 2)
        )
        if kind == "mat":
            scipy.io.savemat(path, {"X": Z})
        elif kind.endswith("npz"):
            np.savez(path, format=form, shape=(2, 2), **parts)
        else:
            write_anndata(tmp_path, kind, Z)
    read, *_ = rows_of(sources.find(path), tmp_path / "scratch")
    assert sorted(read.ravel().tolist()) == [0, 0, 3, 12]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"features": {"1": 1, "1": 2}}',
            "line 2 is not JSON: the name '1' comes twice in one object",
        ),
        ('{"features": {"1": 1, "01": 2}}', "line 2: two names mean the same column"),
    ],
)
def test_jsonl_refuses_a_column_that_comes_twice(tmp_path, line, message):
    path = tmp_path / "X.jsonl"
    path.write_text('{"features": {"1": 1}}\n' + line + "\n")
    refused(path, message, tmp_path)


@pytest.mark.parametrize("dtype", ["float16", "S3", "complex64", "longdouble", "uint8", "bool"])
def test_npy_reads_real_types_and_refuses_others_by_name(tmp_path, dtype):
    for name, X in (("X.npy", np.ones((2, 3))), ("X.npz", np.ones((2, 3, 4)))):
        path = tmp_path / name
        (np.save(path, X.astype(dtype)) if name == "X.npy" else np.savez(path, X=X.astype(dtype)))
        if dtype in ("S3", "complex64"):
            refused(
                path,
                r"holds (\|S3|complex64), but values must be real numbers",
                tmp_path / "scratch",
            )
        else:
            assert rows_of(sources.find(path), tmp_path / "scratch")[0].sum() == X.size


# --- memory follows the entries -------------------------------------------------------------------


@pytest.mark.slow
def test_svmlight_with_a_lone_large_index_takes_memory_by_its_entries(
    tmp_path, monkeypatch, change
):
    """No array of d numbers is made while the store is; a limit too small for one of them refuses
    the file by both sizes.
    """
    change(MAX_COLUMNS_HELD, 1 << 18)
    (tmp_path / "a.svm").write_text("1 1:2 7:1\n-1 3000000:1\n1 2:3\n")
    largest = []
    for module, name in (
        (transpose, "_running_counts"),
        (transpose, "_occupied_columns"),
        (scratch_files, "sort_by_column"),
    ):
        monkeypatch.setattr(module, name, watched(getattr(module, name), largest))
    corpus = storage.open(storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr"))
    assert len(largest) >= 3 + 3_000_000 // (1 << 18)
    assert max(largest) <= 1 << 18
    assert corpus.X.shape == (3, 3_000_000)
    np.testing.assert_array_equal(
        corpus.X.columns([0, 1, 6, 2_999_999]).toarray(), [[2, 0, 1, 0], [0, 0, 0, 1], [0, 3, 0, 0]]
    )
    assert storage.check(corpus.uri).problems == []
    limit = build.MATRIX_BASE + (70 << 20)
    (tmp_path / "b.svm").write_text("1 100000000:1\n")
    with pytest.raises(
        MemoryLimitError,
        match=r"b\.svm with 100000000 features.* needs 0\.96 GiB .* " r"and 289\.35 MiB is allowed",
    ):
        storage.stage(tmp_path / "b.svm", tmp_path / "b.zarr", memory_limit=limit)
    assert names_in(tmp_path) == ["a.svm", "a.zarr", "b.svm"]


def watched(function, largest):
    """The function, noting the lengths of the arrays it gives."""

    def call(*args, **kwargs):
        arrays = function(*args, **kwargs)
        if isinstance(arrays, tuple):
            largest.extend(len(array) for array in arrays)
            return arrays
        return noted(arrays)

    def noted(arrays):
        for array in arrays:
            largest.append(len(array))
            yield array

    return call


def test_stage_holds_a_source_s_shape_to_its_memory_limit(tmp_path):
    np.savez(tmp_path / "X.npz", data=[1.0], row=[0], col=[0], format="coo", shape=(30_000_000, 1))
    with pytest.raises(
        MemoryLimitError,
        match=r"X\.npz, whose shape says so, needs 915\.53 MiB in one "
        r"process and 268\.94 MiB is allowed",
    ):
        storage.stage(tmp_path / "X.npz", tmp_path / "X.zarr", memory_limit="512MB")
    assert names_in(tmp_path) == ["X.npz"]


def test_matrix_market_refuses_rows_that_memory_does_not_hold(tmp_path, allow_memory):
    allow_memory(10**9)
    (tmp_path / "X.mtx").write_text(
        "%%MatrixMarket matrix coordinate real general\n2000000000 1 1\n1 1 1\n"
    )
    with pytest.raises(
        MemoryLimitError,
        match=r"X\.mtx.* needs 59\.60 GiB in one process .*and 0\.93 GiB is allowed",
    ):
        rows_of(sources.find(tmp_path / "X.mtx"), tmp_path / "scratch")
    (tmp_path / "X.mtx").write_text(
        "%%MatrixMarket matrix array real general\n2000000000 2000000000\n1\n"
    )
    refused(
        tmp_path / "X.mtx",
        "announces 4000000000000000000 entries and holds fewer",
        tmp_path / "scratch",
    )


def test_stated_width_that_the_entries_pass_is_refused(tmp_path):
    class Narrow(sources.Svmlight):
        def prepare(self, scratch):
            ready = super().prepare(scratch)
            ready.read, ready.n_features = ready.read, 3  # the reader does not know
            return ready

    (tmp_path / "a.svm").write_text("1 5:1\n2 1:1\n")
    with pytest.raises(
        SourceError,
        match=r"a\.svm has an index 5, but n_features=3|has 5 features, but should have 3",
    ):
        storage.stage(Narrow(str(tmp_path / "a.svm")), tmp_path / "a.zarr")


# --- labels ---------------------------------------------------------------------------------------

BIG = [2**53, 2**53 + 1, 2**53 + 2]


def labeled(kind, folder, labels, **options):
    """A file of one feature with these labels."""
    n, path = len(labels), folder / f"X.{kind.split('-')[-1]}"
    X = np.ones((n, 1))
    if kind == "svm":
        path.write_text("".join(f"{label} 1:1\n" for label in labels))
    elif kind == "jsonl":
        path.write_text(
            "".join(json.dumps({"features": {"0": 1}, "label": label}) + "\n" for label in labels)
        )
    elif kind == "text-jsonl":
        path.write_text(
            "".join(json.dumps({"text": "some words", "label": label}) + "\n" for label in labels)
        )
    elif kind == "npz":
        np.savez(path, X=X, y=np.array(labels))
    elif kind == "mat":
        scipy.io.savemat(path, {"X": X, "Y": np.array(labels)[:, None]})
    elif kind == "npy":
        np.save(path, X)
        (folder / "y.txt").write_text("\n".join(map(str, labels)))
        options["labels"] = str(folder / "y.txt")
    elif kind == "parquet":
        pq.write_table(pa.table({"text": ["some words"] * n, "label": pa.array(labels)}), path)
    else:
        write_anndata(folder, kind, X)
        with h5py.File(path, "a") as file:
            obs = file.create_group("obs")
            obs["_index"], obs["label"] = np.arange(n).astype("S"), np.array(labels)
    return sources.find(path, **options)


@pytest.mark.parametrize(
    "kind",
    daily(
        ["svm", "jsonl", "text-jsonl", "npz", "mat", "npy", "parquet", "h5ad"],
        "svm",
        "parquet",
        "h5ad",
    ),
)
def test_whole_labels_above_two_to_the_53_stay_apart(tmp_path, kind):
    y = [BIG[0], BIG[1], BIG[2], BIG[1]]
    corpus = storage.open(storage.stage(labeled(kind, tmp_path, y), tmp_path / "store.zarr"))
    assert corpus.class_names == [str(label) for label in BIG]
    assert corpus.y.tolist() == [0, 1, 2, 1]
    corpus = storage.open(
        storage.stage(labeled(kind, tmp_path, y, unlabeled=str(BIG[1])), tmp_path / "some.zarr")
    )
    assert corpus.class_names == [str(BIG[0]), str(BIG[2])]
    assert corpus.y.tolist() == [0, -1, 1, -1]


@pytest.mark.parametrize("kind", ["svm", "jsonl", "text-jsonl", "npy"])
def test_labels_of_any_size_stay_apart(tmp_path, kind):
    labels = [10**30, 10**30 + 1, -(2**63) - 1, 3]
    corpus = storage.open(storage.stage(labeled(kind, tmp_path, labels), tmp_path / "store.zarr"))
    assert sorted(corpus.class_names, key=int) == [str(label) for label in sorted(labels)]
    assert [corpus.class_names[code] for code in corpus.y] == [str(label) for label in labels]


@pytest.mark.parametrize("kind", ["npz", "mat", "h5ad", "parquet"])
def test_unsigned_labels_are_exact(tmp_path, kind):
    corpus = storage.open(
        storage.stage(
            labeled(kind, tmp_path, np.array([2**63, 2**64 - 1, 1], np.uint64)),
            tmp_path / "store.zarr",
        )
    )
    assert corpus.class_names == ["1", str(2**63), str(2**64 - 1)]
    assert corpus.y.tolist() == [1, 2, 0]


def test_large_float_labels_keep_their_value(tmp_path):
    corpus = storage.open(
        storage.stage(labeled("npz", tmp_path, [1e20, 2.0, np.nan]), tmp_path / "store.zarr")
    )
    assert (corpus.class_names, corpus.y.tolist()) == (["2", "100000000000000000000"], [1, 0, -1])


@pytest.mark.parametrize("kind", ["svm", "jsonl", "npz", "npy", "h5ad"])
def test_real_targets_come_back_to_the_last_bit(tmp_path, kind, rng):
    y = [*(rng.normal(size=40) * 10.0 ** rng.integers(-300, 300, 40)).tolist(), 3.0, 0.1, 5e-324]
    corpus = storage.open(storage.stage(labeled(kind, tmp_path, y), tmp_path / "store.zarr"))
    assert corpus.spec["target"] == "real"
    assert corpus.y.tolist() == y


def test_whole_numbers_in_one_piece_are_real_targets_with_fractions_in_another(
    tmp_path, monkeypatch
):
    source = labeled("jsonl", tmp_path, [1, 2**60, 0.5, None])
    whole = type(source).pieces
    monkeypatch.setattr(type(source), "pieces", lambda self, size: whole(self, 20))
    corpus = storage.open(storage.stage(source, tmp_path / "store.zarr"))
    np.testing.assert_array_equal(corpus.y, [1, 2**60, 0.5, np.nan])


@pytest.mark.parametrize("label", ["c0\0", "\ud800", ["a", "b\0c"]])
@pytest.mark.parametrize("field", ["features", "text"])
def test_jsonl_refuses_labels_that_no_store_gives_back(tmp_path, label, field):
    path = tmp_path / "X.jsonl"
    lines = [
        {field: {"0": 1} if field == "features" else "x", "label": c}
        for c in (["c0"] if isinstance(label, list) else "c0", label)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    refused(
        path,
        r"line 2: the label '.*' holds (the character " r"NUL|half of a surrogate pair)",
        tmp_path,
    )


def test_lone_surrogates_in_text_and_names_do_not_block_a_corpus(tmp_path):
    path = tmp_path / "X.jsonl"
    path.write_text(
        "".join(
            json.dumps({"text": "x \ud800 words", "id": f"\udfff{i}", "extra": "\ud800"}) + "\n"
            for i in range(3)
        )
    )
    corpus = storage.open(storage.stage(path, tmp_path / "store.zarr"))
    assert corpus.sample_names.tolist() == ["?0", "?1", "?2"]
    assert list(corpus.feature_names) == ["words"]
    path.write_text('{"features": {"0": 1}, "id": "\\ud800"}\n')
    assert storage.open(storage.stage(path, tmp_path / "features.zarr")).sample_names.tolist() == [
        "?"
    ]


@pytest.mark.parametrize("kind", ["jsonl", "text-jsonl", "parquet"])
def test_lists_of_labels_stage_and_open(tmp_path, kind):
    labels = [["grain", "wheat"], [], ["wheat", "wheat"], None, ["crude"]]
    corpus = storage.open(storage.stage(labeled(kind, tmp_path, labels), tmp_path / "store.zarr"))
    assert corpus.spec["target"] == "multilabel"
    assert corpus.class_names == ["crude", "grain", "wheat"]
    np.testing.assert_array_equal(
        corpus.y.toarray(), [[0, 1, 1], [0, 0, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    )


def test_append_keeps_large_labels_apart(tmp_path):
    uri = storage.stage(labeled("svm", tmp_path, BIG[:2]), tmp_path / "store.zarr")
    storage.append(labeled("jsonl", tmp_path, [BIG[2], BIG[1]]), uri)
    corpus = storage.open(uri)
    assert corpus.class_names == [str(label) for label in BIG]
    assert corpus.y.tolist() == [0, 1, 2, 1]


def test_label_that_the_source_does_not_name_is_refused(tmp_path):
    class Named(sources.Svmlight):
        class_names = ("no", "yes")

    (tmp_path / "a.svm").write_text("0 1:1\n2 1:1\n")
    with pytest.raises(SourceError, match="the label 2 is not among the 2 classes"):
        storage.stage(Named(str(tmp_path / "a.svm")), tmp_path / "a.zarr")


# --- HDF5 that points elsewhere -------------------------------------------------------------------


def test_hdf5_with_values_in_other_files_is_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"12345678" * 4)
    X = sp.csr_array(np.eye(2))
    path = write_anndata(tmp_path, "csr-h5ad", X)
    with h5py.File(path, "a") as file:
        var = file.create_group("var")
        var.create_dataset("_index", (2,), "S8", external=[(str(secret), 0, 16)])
    refused(path, r"var/_index has its values in other files", tmp_path / "scratch")
    path = write_anndata(tmp_path, "csr-h5ad", X)
    with h5py.File(path, "a") as file:
        file["obs"] = h5py.ExternalLink("secret.h5", "/obs")
    refused(path, "obs is a link to secret.h5", tmp_path / "scratch")
    path = write_anndata(tmp_path, "csr-h5ad", X)
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout(shape=(2,), dtype="f8")
        layout[:] = h5py.VirtualSource(str(secret), "x", shape=(2,))
        file.create_group("var").create_virtual_dataset("_index", layout)
    refused(path, "var/_index has its values in other files", tmp_path / "scratch")


def test_gate_knows_what_float32_holds():
    values = np.array([0.0, -0.0, 1e-46, 1.5e-45, 3.4028235e38, 3.5e38, np.nan, np.inf])
    assert checks.fits_float32(values).tolist() == [
        True,
        True,
        False,
        True,
        True,
        False,
        False,
        False,
    ]
    assert checks.fits_float32(np.array([2**63], dtype=np.uint64)).all()
