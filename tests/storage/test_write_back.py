"""A selection in the user's own AnnData file."""

import contextlib
import fcntl
import json
import threading

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigfs import ANOVA, HighlyVariable, storage
from bigfs.storage import atomic, locks
from bigfs.storage.errors import SourceError
from bigfs.storage.runs.runs import Run, results_of
from tests.helpers.anndata import write_anndata, zarr_text
from tests.helpers.commands import fails


def hdf5_text(group, name, values):
    group.create_dataset(name, data=values, dtype=h5py.string_dtype())


@pytest.fixture
def cells(tmp_path, rng):
    """An .h5ad file of 40 cells and 9 genes, two of which tell the three labels apart."""
    y = np.arange(40) % 3
    X = sp.csr_array(rng.poisson(1.0, (40, 9)) + 3 * (y[:, None] == np.arange(9)), dtype=np.float64)
    with h5py.File(tmp_path / "cells.h5ad", "w") as root:
        write_anndata(root, X, "csr_matrix", hdf5_text)
        root.create_group("obsm")["mine"] = np.arange(40)
        root["var"]["length"] = np.arange(9)
        root["var"].attrs["column-order"] = ["length"]
    storage.stage(tmp_path / "cells.h5ad", tmp_path / "c.zarr", label="label")
    return tmp_path / "cells.h5ad"


SELECT = (
    *("select", "c.zarr", "--out", "r", "--features", "4"),
    *("--workers", "0", "--method", "anova"),
)
RUN = ("run", *SELECT[1:], "--no-prefect")
ANEW = ("run", "cells.h5ad?label=label", *RUN[2:])


def content(file):
    """The values of all data sets of a file, but for what bigfs writes."""
    found = {}
    with h5py.File(file) as root:
        root.visititems(
            lambda name, thing: (
                found.update({name: thing[()]})
                if isinstance(thing, h5py.Dataset) and "bigfs" not in name
                else None
            )
        )
    return found


def test_select_into_writes_var_and_uns_and_nothing_else(bigfs, cells, tmp_path):
    before = content(cells)
    for _ in range(2):  # a second time replaces the first
        assert bigfs(*SELECT, "--into", "cells.h5ad")[0] == 0
    run = Run.open(tmp_path / "r")
    with h5py.File(cells) as root:
        var, about = root["var"], root["uns/bigfs"]
        assert list(var.attrs["column-order"]) == [
            *("length", "bigfs_selected", "bigfs_score", "bigfs_rank")
        ]
        assert var["bigfs_selected"].dtype == bool
        assert set(np.flatnonzero(var["bigfs_selected"])) == set(run.selected)
        np.testing.assert_array_equal(var["bigfs_score"], run.scores)
        rank = var["bigfs_rank"][:]
        np.testing.assert_array_equal(rank[run.selected], [1, 2, 3, 4])
        assert np.isnan(np.delete(rank, run.selected)).all()
        for name in ("selected", "score", "rank"):
            assert var[f"bigfs_{name}"].attrs["encoding-type"] == "array"
        assert about.attrs["encoding-type"] == root["uns"].attrs["encoding-type"] == "dict"
        assert about["method"].asstr()[()] == "anova"
        assert about["n_features"][()] == 4
        assert json.loads(about["parameters"].asstr()[()]) == {}
        assert about["status"].attrs["encoding-type"] == "string"
        assert "highly_variable" not in var
    after = content(cells)
    assert after.keys() == before.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)
    assert not [p for p in tmp_path.iterdir() if "part" in p.name]


def test_a_link_to_the_file_stays_a_link(bigfs, cells, tmp_path):
    (tmp_path / "link.h5ad").symlink_to(cells)
    assert bigfs(*SELECT, "--into", "link.h5ad")[0] == 0
    assert (tmp_path / "link.h5ad").is_symlink()
    with h5py.File(cells) as root:
        assert root["var/bigfs_selected"][:].sum() == 4


def test_highly_variable_is_written_on_request(bigfs, cells):
    assert bigfs(*SELECT, "--into", "cells.h5ad", "--highly-variable")[0] == 0
    with h5py.File(cells) as root:
        np.testing.assert_array_equal(root["var/highly_variable"][:], root["var/bigfs_selected"][:])


@pytest.mark.parametrize("words", [SELECT, RUN, ANEW], ids=["select", "run", "run of a source"])
def test_another_file_is_refused_before_any_selection(bigfs, cells, tmp_path, words):
    (tmp_path / "text").write_text("x")
    with h5py.File(tmp_path / "other.h5ad", "w") as root:
        write_anndata(root, sp.csr_array(np.eye(5)), "csr_matrix", hdf5_text)
    with h5py.File(tmp_path / "bare.h5", "w") as root:
        root["x"] = 1
    for name, said in {
        "missing": "missing does not exist: give an AnnData file",
        "text": r"text is no AnnData file (.h5ad) or folder (.zarr)",
        "c.zarr": "is a store that bigfs staged",
        "other.h5ad": "the features of other.h5ad are not the 9 of the corpus",
        "bare.h5": "has no var of a current AnnData version",
    }.items():
        fails(bigfs(*words, "--into", name), said)
    fails(bigfs(*words, "--highly-variable"), "give --into FILE too")
    with h5py.File(cells, "r+") as root:
        names = root["var/_index"].asstr()[:]
        root["var/_index"][:] = names[::-1]
    if words != ANEW:  # of which it is the source
        fails(bigfs(*words, "--into", "cells.h5ad"), "in the same order")
    assert not (tmp_path / "r").exists()
    assert not (tmp_path / ".r").exists()


def test_corpus_writes_the_choice_of_a_selector(cells, tmp_path):
    corpus = storage.open(tmp_path / "c.zarr")
    selector = ANOVA(n_features_to_select=4).fit(corpus.X, corpus.y)
    assert corpus.write_var(selector, highly_variable=True) == str(cells)
    with h5py.File(cells) as root:
        assert np.flatnonzero(root["var/bigfs_selected"]).tolist() == sorted(selector.selected_)
        np.testing.assert_array_equal(root["var/bigfs_score"], selector.scores_)
        np.testing.assert_array_equal(root["var/highly_variable"], selector.support_)
        about = root["uns/bigfs"]
        assert about["method"].asstr()[()] == "ANOVA"
        assert json.loads(about["parameters"].asstr()[()]) == selector.get_params()
    with pytest.raises(ValueError, match="was fitted on 5 features"):
        corpus.write_var(ANOVA().fit(np.eye(6)[:, :5], [0, 1] * 3))
    with pytest.raises(SourceError, match="does not exist: give an AnnData file"):
        corpus.write_var(selector, str(tmp_path / "missing.h5ad"))


def test_two_selections_into_one_file_go_one_after_the_other(cells, tmp_path):
    corpus = storage.open(tmp_path / "c.zarr")
    chosen = ANOVA(n_features_to_select=4).fit(corpus.X, corpus.y)
    before = content(cells)
    other = threading.Thread(target=corpus.write_var, args=(chosen,), daemon=True)
    with locks.lock(cells):
        other.start()
        other.join(0.5)
        assert other.is_alive()
        assert content(cells).keys() == before.keys()
    other.join(60)
    assert not other.is_alive()
    assert content(cells).keys() == before.keys()
    with h5py.File(cells) as root:
        assert root["var/bigfs_selected"][:].sum() == 4


def test_a_file_that_is_written_elsewhere_is_left_alone(cells, tmp_path):
    corpus = storage.open(tmp_path / "c.zarr")
    chosen = ANOVA(n_features_to_select=4).fit(corpus.X, corpus.y)
    before = cells.read_bytes()
    with open(cells, "rb+") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)  # as HDF5 does
        with pytest.raises(SourceError, match="is open for writing in another program: close it"):
            corpus.write_var(chosen)
    assert cells.read_bytes() == before
    with h5py.File(cells) as reader:  # who reads it keeps what was there
        corpus.write_var(chosen)
        assert "bigfs_selected" not in reader["var"]
    assert cells.read_bytes() != before


def test_the_copy_of_a_killed_selection_is_deleted_by_the_next(cells, tmp_path):
    atomic.write_marker(killed := tmp_path / ".cells.h5ad.0123456789abcdef.staging")
    (killed / "new").write_bytes(b"half")
    corpus = storage.open(tmp_path / "c.zarr")
    with atomic.workplace(tmp_path / "other.h5ad") as at_work:
        corpus.write_var(ANOVA(n_features_to_select=4).fit(corpus.X, corpus.y))
        assert list(tmp_path.glob(".*.staging")) == [at_work]


HVG = ("--method", "hvg", "--features", "3", "--workers", "0", "--out", "h")
COLUMNS = {
    "seurat": ("dispersions", "dispersions_norm", "highly_variable_intersection"),
    "seurat_v3": ("variances", "variances_norm", "highly_variable_rank"),
}


@pytest.mark.parametrize("flavor", COLUMNS)
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.filterwarnings("ignore:The data type .* does not have a Zarr V3 specification")
def test_highly_variable_genes_get_the_columns_of_scanpy(bigfs, tmp_path, rng, suffix, flavor):
    """By the command line, with the batches of the file, and as `write_var` writes them."""
    X = sp.csr_array(rng.poisson(rng.gamma(0.5, 2.0, 40), (60, 40)), dtype=np.float64)
    path, batch = tmp_path / f"mine.{suffix}", np.arange(60) % 2
    with (
        h5py.File(path, "w") if suffix == "h5ad" else contextlib.nullcontext(zarr.open_group(path))
    ) as root:
        write_anndata(root, X, "csr_matrix", hdf5_text if suffix == "h5ad" else zarr_text)
        root["obs"]["donor"] = batch
    weight = {"seurat": "lognorm", "seurat_v3": None}[flavor]
    store = storage.stage(f"{path}?batch=donor", tmp_path / "s.zarr", weight=weight)
    into = ("--into", str(path), "--highly-variable", "--set", f"flavor={flavor}")
    status, _, err = bigfs("select", "s.zarr", *HVG, *into)
    assert status == 0, err
    corpus = storage.open(store)
    selector = HighlyVariable(n_features_to_select=3, flavor=flavor).fit(
        np.asarray(corpus.X.rows(np.arange(60)).toarray(), dtype=np.float64), batch=batch
    )
    for _ in range(2):
        with (
            h5py.File(path)
            if suffix == "h5ad"
            else contextlib.nullcontext(zarr.open_group(path)) as root
        ):
            names = ("highly_variable", "means", "highly_variable_nbatches", *COLUMNS[flavor])
            for name in names:
                np.testing.assert_allclose(
                    root["var"][name][:].astype(float), selector.columns_[name], rtol=1e-9
                )
            assert set(names) <= set(root["var"].attrs["column-order"])
            flavor_written = root["uns/hvg/flavor"][()]
            text = flavor_written if isinstance(flavor_written, bytes) else str(flavor_written)
            assert text in (flavor, flavor.encode())
        corpus.write_var(selector.fit(corpus.X), highly_variable=True)


def test_run_writes_its_selection_too(bigfs, cells, tmp_path):
    words = ("run", "c.zarr", "--out", "o", "--method", "anova", "--features", 4, "--workers", 0)
    words += ("--no-prefect", "--into", "cells.h5ad")
    for _ in range(2):  # also of a run that is there
        status, _, err = bigfs(*words, "--highly-variable")
        assert status == 0, err
        with h5py.File(cells, "r+") as root:
            chosen = np.flatnonzero(root["var/bigfs_selected"][:])
            np.testing.assert_array_equal(root["var/highly_variable"][:].nonzero()[0], chosen)
            del root["var/bigfs_selected"]
        np.testing.assert_array_equal(np.sort(Run.open(tmp_path / "o").selected), chosen)
    fails(bigfs(*words[:-1], "no.h5ad"), "no.h5ad does not exist: give an AnnData file")
    fails(bigfs(*words[:-2], "--highly-variable"), "give --into FILE too")


def test_a_selection_is_no_change_of_its_own_source(bigfs, cells, tmp_path):
    words = ("run", "cells.h5ad?label=label", "--out", "o", "--method", "anova", "--features", 4)
    words += ("--workers", 0, "--no-prefect", "--into", "cells.h5ad")
    for night in range(3):
        status, _, err = bigfs(*words)
        assert status == 0, err
        assert ("has this result already" in err) == (night > 0)
    assert len(results_of("o")) == 1
    assert len(list((tmp_path / ".bigfs").glob("*.zarr"))) == 1
    # another change is one
    with h5py.File(cells, "r+") as root:
        root["X/data"][0] = 50.0
    assert "earlier state" in bigfs(*words)[2]
