"""Files that anndata writes by its defaults: those of 0.13.4, and of the anndata that is here."""

import contextlib
import errno
import shutil
import warnings

import numpy as np
import pytest
import zarr

from bigfs import ANOVA, storage
from bigfs.storage import atomic, sources
from bigfs.storage.runs.runs import Run
from tests.helpers import cells
from tests.helpers.daily import daily
from tests.helpers.sources import SIZES, refused, rows_of

# anndata 0.13 asks pandas for an option that pandas 4 will not have
pytestmark = pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the files of `cells.FILES`, as AnnData writes them today."""
    pytest.importorskip("anndata", reason="anndata is no dependency: `make newest` has it")
    folder = tmp_path_factory.mktemp("written")
    cells.write_cells(folder)
    return folder


@pytest.fixture(params=["kept", "today"])
def folder(request, tmp_path):
    """A folder with the files of `cells.FILES`."""
    if request.param == "kept":
        cells.unpack_cells(tmp_path)
    else:
        shutil.copytree(request.getfixturevalue("written"), tmp_path, dirs_exist_ok=True)
    return tmp_path


@contextlib.contextmanager
def edited(path):
    """The group of a folder, whose metadata are gathered again after the block."""
    yield zarr.open_group(path, use_consolidated=False)
    with warnings.catch_warnings(action="ignore"):  # format 3 has no specification of it yet
        zarr.consolidate_metadata(path)


def labels_of(y):
    """Labels as lists, None where there is none."""
    y = y.tolist() if isinstance(y, np.ndarray) else y
    return [None if v is None or v == "" or v != v else v for v in y]


@pytest.mark.parametrize("file", daily(cells.FILES, *cells.FILES[:2]))
def test_what_anndata_writes_is_read_as_it_was(folder, file):
    pytest.importorskip("h5py", reason="h5py is an optional extra")
    path = folder / file
    for size in SIZES:
        X, y, split, names = rows_of(sources.find(path, label="cell_type"), folder / "s", size)
        np.testing.assert_array_equal(X, cells.X)
        assert labels_of(y) == cells.OBS["cell_type"]
        assert split.tolist() == cells.OBS["split"]
        assert names.tolist() == cells.CELLS
    assert sources.find(path).prepare(folder / "s").feature_names == cells.GENES
    for layer, factor in (("csc", 2), ("dense", 3)):
        X, *_ = rows_of(sources.find(path, layer=layer), folder / layer, 200)
        np.testing.assert_array_equal(X, factor * cells.X)


@pytest.mark.parametrize("file", daily(cells.FILES, "cells.zarr"))
@pytest.mark.parametrize(
    ("column", "target"),
    [("note", "class"), ("donor", "class"), ("healthy", "class"), ("age", "real")],
)
def test_every_kind_of_column_is_a_target(folder, file, column, target):
    corpus = storage.open(storage.stage(folder / file, folder / "a.zarr", label=column))
    order = np.argsort(np.array(cells.OBS["split"]) == "test", kind="stable")
    expected = [cells.OBS[column][i] for i in order]
    assert corpus.spec["target"] == target
    if target == "class":
        expected = [v if v is None or isinstance(v, str) else str(v).lower() for v in expected]
        expected = [v and v.removesuffix(".0") for v in expected]
        assert [None if c < 0 else corpus.class_names[c] for c in corpus.y] == expected
    else:
        assert corpus.y.tolist() == expected


@pytest.mark.parametrize("file", cells.FILES[1:])
def test_what_anndata_writes_is_used_where_it_lies(folder, file):
    corpus = storage.open(folder / file)
    staged = storage.open(storage.stage(folder / file, folder / "a.zarr"))
    np.testing.assert_array_equal(corpus.X @ np.eye(cells.D), cells.X)
    assert corpus.sample_names.tolist() == cells.CELLS
    assert list(corpus.feature_names) == cells.GENES
    assert corpus.class_names == staged.class_names == ["B", "NK", "T"]
    train, same = corpus.part("train"), staged.part("train")
    one, other = (ANOVA(n_features_to_select=2).fit(c.X, c.y) for c in (train, same))
    np.testing.assert_array_equal(one.scores_, other.scores_)


def test_opening_reads_no_labels_and_no_names_of_samples(folder, monkeypatch):
    source, read = sources.anndata.AnnData, []

    def noted(name, whole):
        return lambda self, start, stop: (
            read.append((name, start, stop)) or whole(self, start, stop)
        )

    for name in ("samples", "sample_names"):
        monkeypatch.setattr(source, name, noted(name, getattr(source, name)))
    corpus = storage.open(folder / cells.FILES[1])
    n = corpus.X.shape[0]
    assert (n, read) == (len(cells.CELLS), [])
    assert (len(corpus.sample_names), corpus.sample_names[-1]) == (n, cells.CELLS[-1])
    assert read == [("sample_names", 0, 0), ("sample_names", 0, n)]
    assert (len(corpus.y), corpus.target) == (n, "class")
    assert read[2:] == [("samples", 0, n)]


def unchanged(before, after):
    """Whether two folders or files hold the same arrays, but for what bigfs writes."""
    return {k: v for k, v in before.items() if "bigfs" not in k} == {
        k: v for k, v in after.items() if "bigfs" not in k
    }


def arrays_of(path):
    """The values of all arrays of a file or folder, by their path."""
    found = {}
    if path.suffix == ".zarr":
        members = zarr.open_group(path, mode="r").members(max_depth=None)
        found = {name: array[...] for name, array in members if isinstance(array, zarr.Array)}
    else:
        h5py = pytest.importorskip("h5py", reason="h5py is an optional extra")
        with h5py.File(path) as root:
            root.visititems(
                lambda name, thing: (
                    found.update({name: thing[()]}) if isinstance(thing, h5py.Dataset) else None
                )
            )
    return {name: np.asarray(values).tolist() for name, values in found.items()}


@pytest.mark.parametrize("file", daily(cells.FILES, "cells.h5ad", "cells.zarr"))
def test_a_selection_is_written_into_what_anndata_wrote(bigfs, folder, file):
    path = folder / file
    before = arrays_of(path)
    storage.stage(path, folder / "a.zarr")
    select = ("select", "a.zarr", "--out", "r", "--features", "3", "--method", "anova")
    for _ in range(2):  # a second time replaces the first
        assert bigfs(*select, "--workers", "0", "--into", file, "--highly-variable")[0] == 0
    run = Run.open(folder / "r")
    after = arrays_of(path)
    chosen = sorted(run.selected)
    assert np.flatnonzero(after["var/bigfs_selected"]).tolist() == chosen
    assert np.flatnonzero(after["var/highly_variable"]).tolist() == chosen
    assert after["var/bigfs_score"] == run.scores.tolist()
    assert [after["var/bigfs_rank"][j] for j in run.selected] == [1, 2, 3]
    assert after["uns/bigfs/n_features"] == 3
    assert unchanged(before, {k: v for k, v in after.items() if k != "var/highly_variable"})
    assert not [p for p in folder.iterdir() if "part" in p.name or "staging" in p.name]


@pytest.mark.parametrize("file", cells.FILES)
def test_anndata_reads_the_selection_and_all_that_it_wrote(bigfs, folder, file):
    anndata = pytest.importorskip(
        "anndata", reason="anndata is no dependency: `make newest` has it"
    )
    path = folder / file
    storage.stage(path, folder / "a.zarr")
    select = ("select", "a.zarr", "--out", "r", "--features", "3", "--method", "anova")
    assert bigfs(*select, "--workers", "0", "--into", file, "--highly-variable")[0] == 0
    read = anndata.read_h5ad if file.endswith("h5ad") else anndata.read_zarr
    data, run = read(path), Run.open(folder / "r")
    assert list(data.var.columns) == [
        "bigfs_selected",
        "bigfs_score",
        "bigfs_rank",
        "highly_variable",
    ]
    assert data.var.index[data.var["bigfs_selected"]].tolist() == [
        cells.GENES[j] for j in sorted(run.selected)
    ]
    assert data.var["highly_variable"].dtype == bool
    assert (data.uns["bigfs"]["method"], int(data.uns["bigfs"]["n_features"])) == ("anova", 3)
    np.testing.assert_array_equal(data.X.toarray(), cells.X)
    np.testing.assert_array_equal(data.layers["csc"].toarray(), 2 * cells.X)
    assert data.obs_names.tolist() == cells.CELLS
    assert data.raw.var_names.tolist() == cells.GENES
    assert labels_of(list(data.obs["cell_type"])) == cells.OBS["cell_type"]


def test_anndata_reads_chosen_columns_and_staged_stores(bigfs, folder):
    anndata = pytest.importorskip(
        "anndata", reason="anndata is no dependency: `make newest` has it"
    )
    uri = storage.stage(folder / "cells.h5ad", folder / "a.zarr")
    select = ("select", "a.zarr", "--out", "r", "--features", "3", "--method", "anova")
    assert bigfs(*select, "--workers", "0")[0] == 0
    assert bigfs("transform", "r", "a.zarr", "chosen.h5ad")[0] == 0
    corpus, run = storage.open(uri), Run.open(folder / "r")
    whole, chosen = anndata.read_zarr(uri), anndata.read_h5ad(folder / "chosen.h5ad")
    order = [cells.CELLS.index(name) for name in corpus.sample_names]
    np.testing.assert_array_equal(whole.X.toarray(), cells.X[order])
    np.testing.assert_array_equal(chosen.X.toarray(), cells.X[order][:, run.selected])
    for data in (whole, chosen):
        assert data.obs_names.tolist() == corpus.sample_names.tolist()
        assert data.obs["label"].tolist() == [cells.OBS["label"][i] for i in order]


def test_a_corpus_that_is_used_where_it_lies_takes_its_selection(tmp_path):
    cells.unpack_cells(tmp_path)
    corpus = storage.open(tmp_path / "cells.zarr")
    selector = ANOVA(n_features_to_select=2).fit(corpus.X, corpus.y)
    assert corpus.part("train").write_var(selector) == str(tmp_path / "cells.zarr")
    again = storage.open(tmp_path / "cells.zarr")
    np.testing.assert_array_equal(again.X @ np.eye(cells.D), cells.X)
    assert np.flatnonzero(arrays_of(tmp_path / "cells.zarr")["var/bigfs_selected"]).tolist() == (
        sorted(selector.selected_)
    )
    assert corpus.write_var(selector, str(tmp_path / "unsharded.zarr"))
    with pytest.raises(ValueError, match="was fitted on 5 features, and the corpus has 7"):
        corpus.write_var(ANOVA().fit(cells.X[:, :5], corpus.y))


@pytest.mark.parametrize("operation", daily(["rename", "write", "sync"], "rename"))
def test_a_folder_is_whole_whatever_fails_while_it_is_written(tmp_path, monkeypatch, operation):
    """Operations on the disk fail in turn: the first, the last and some between."""
    cells.unpack_cells(tmp_path)
    path = tmp_path / "cells.zarr"
    corpus = storage.open(path)
    selector = ANOVA(n_features_to_select=2).fit(corpus.X, corpus.y)
    before, done, failing = arrays_of(path), 0, -1

    def fail(name, _):
        nonlocal done
        done += name == operation
        if name == operation and done == failing:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(atomic, "fault_point", fail)
    corpus.write_var(selector)
    total = done
    assert total
    for failing in sorted({1 + i * (total - 1) // 5 for i in range(6)}):
        done = 0
        with contextlib.suppress(OSError):
            corpus.write_var(selector)
        assert done >= failing
        assert unchanged(before, arrays_of(path))
    failing = -1
    corpus.write_var(selector)
    assert [p.name for p in tmp_path.iterdir() if "staging" in p.name] == []


def test_texts_may_be_missing_and_categories_nullable(tmp_path):
    """By hand, because anndata itself writes neither."""
    cells.unpack_cells(tmp_path)
    with edited(tmp_path / "unsharded.zarr") as root:
        obs = root["obs"]
        obs["note/mask"][:3] = True
        texts = obs["cell_type/categories"][:]
        del obs["cell_type/categories"]
        categories = obs["cell_type"].create_group("categories")
        categories.attrs["encoding-type"] = "nullable-string-array"
        categories["mask"] = np.zeros(3, dtype=bool)
        categories.create_array("values", shape=(3,), dtype=str)[:] = texts
    for column, expected in (
        ("note", [*[None] * 3, *cells.OBS["note"][3:]]),
        ("cell_type", cells.OBS["cell_type"]),
    ):
        source = sources.find(tmp_path / "unsharded.zarr", label=column)
        assert labels_of(rows_of(source, tmp_path, 200)[1]) == expected


def test_a_large_number_with_missing_ones_beside_it_stays_exact(tmp_path):
    cells.unpack_cells(tmp_path)
    path = tmp_path / "unsharded.zarr"
    values = zarr.open_group(path, use_consolidated=False)["obs/donor/values"]
    values[0] = 2**53 + 1
    uri = storage.stage(path, tmp_path / "a.zarr", label="donor")
    assert str(2**53 + 1) in storage.open(uri).class_names


@pytest.mark.parametrize(
    ("attributes", "member", "message"),
    [
        ({"encoding-type": "awkward-array"}, "values", r"'awkward-array' \(a group\)"),
        ({}, "values", r"None \(a group\)"),
        ({"encoding-type": "nullable-integer"}, "values", "broken, or not AnnData: .*mask"),
    ],
)
def test_a_column_that_cannot_be_read_is_named_with_its_encoding(
    tmp_path, attributes, member, message
):
    cells.unpack_cells(tmp_path)
    with edited(tmp_path / "unsharded.zarr") as root:
        column = root["obs"].create_group("odd")
        column.attrs.update(attributes)
        column[member] = np.arange(cells.N)
    refused(tmp_path / "unsharded.zarr", message, tmp_path, label="odd")


def test_categories_of_anndata_0_7_are_refused_not_taken_for_numbers(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is an optional extra")
    cells.unpack_cells(tmp_path)
    with h5py.File(tmp_path / "cells.h5ad", "r+") as root:
        root["obs/__categories/kind"] = np.array(["a", "b"], dtype=h5py.string_dtype())
        root["obs/kind"] = np.arange(cells.N) % 2
        root["obs/kind"].attrs["categories"] = root["obs/__categories/kind"].ref
    refused(tmp_path / "cells.h5ad", r"obs\['kind'\] has the encoding None", tmp_path, label="kind")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix"])
def test_indices_may_be_of_any_kind_of_integer(tmp_path, kind, dtype):
    root = zarr.open_group(tmp_path / "x.zarr", mode="w")
    root.attrs["encoding-type"] = "anndata"
    X = root.create_group("X")
    X.attrs.update({"encoding-type": kind, "shape": [3, 3]})
    X["data"] = np.arange(1.0, 4)
    X["indices"], X["indptr"] = np.array([2, 0, 1], dtype=dtype), np.arange(4).astype(dtype)
    read, *_ = rows_of(sources.find(tmp_path / "x.zarr"), tmp_path / "s", 200)
    expected = np.array([[0, 0, 1], [2, 0, 0], [0, 3, 0]])
    np.testing.assert_array_equal(read, expected if kind == "csr_matrix" else expected.T)
