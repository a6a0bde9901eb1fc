"""A Zarr store that anndata wrote, used where it lies: in a folder, or in a bucket."""

import fsspec
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from bigfs import storage
from bigfs.selectors.registry import METHODS
from bigfs.storage.anndata_view import OBS_ROWS
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.runs.runs import Run
from bigfs.storage.sources.scratch_matrix import CHUNK
from bigfs.storage.staging.scratch import TILE_NNZ
from tests.helpers.anndata import write_anndata, zarr_text

pytestmark = pytest.mark.filterwarnings(
    "ignore:The data type .* does not have a Zarr V3 specification"
)
N, D = 120, 30
ROLES = {"group": "donor", "batch": "donor", "sample_weight": "w", "time": "age"}
ONE_PASS = [name for name, method in METHODS.items() if method.make()._cost.in_place == "1"]


def write_atlas(path, rng):
    """Write sharded counts with some stored zeros, and what obs says of the cells."""
    X = sp.random_array((N, D), density=0.3, format="csr", rng=rng, dtype=np.float64)
    X.data = np.floor(8 * X.data)
    root = zarr.open_group(path, mode="w")
    write_anndata(root, X, "csr_matrix", zarr_text)
    for name in ("data", "indices"):
        del root["X"][name]
        values = getattr(X, name)
        array = root["X"].create_array(
            name, shape=values.shape, dtype=values.dtype, chunks=(64,), shards=(256,)
        )
        array[:] = values
    obs = root["obs"]
    types = obs.create_group("cell_type")
    types.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0"})
    zarr_text(types, "categories", ["T", "B", "NK"])
    types["codes"] = np.where(np.arange(N) % 11 == 0, -1, np.arange(N) % 3).astype(np.int8)
    zarr_text(obs, "donor", [f"d{i % 5}" for i in range(N)])
    zarr_text(obs, "sex", ["f" if i % 4 else "m" for i in range(N)])
    obs["w"], obs["age"] = 0.5 + np.arange(N) % 4, 20 + 0.5 * np.arange(N)
    return X


@pytest.fixture
def atlas(tmp_path, rng, change):
    """The folder of an atlas, whose tiles and whose parts of obs are small."""
    change(TILE_NNZ, 150)
    change(OBS_ROWS, 50)
    change(CHUNK, 40)
    path = tmp_path / "atlas.zarr"
    write_atlas(path, rng)
    return path


@pytest.fixture
def bucket(atlas):
    fs = fsspec.filesystem("memory")
    for file in filter(lambda path: path.is_file(), atlas.rglob("*")):
        name = f"/bucket/atlas.zarr/{file.relative_to(atlas)}"
        fs.makedirs(name.rpartition("/")[0], exist_ok=True)
        fs.pipe(name, file.read_bytes())
    yield "memory://bucket/atlas.zarr"
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


def state_of(folder):
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def label_of(name):
    return "sex" if name == "t-score" else "cell_type"


@pytest.mark.parametrize("name", ONE_PASS)
def test_a_method_of_one_pass_chooses_as_from_the_staged_store(atlas, tmp_path, name):
    label, before = label_of(name), state_of(atlas)
    parameters = {"n_bins": 3} if name == "hvg" else {}  # else most genes are alone in their bins
    here = storage.open(f"{atlas}?label={label}")
    staged = storage.open(storage.stage(atlas, tmp_path / "staged.zarr", label=label))
    assert len(here.X.row_tiles) > 4
    assert (here.class_names, here.target) == (staged.class_names, staged.spec["target"])
    np.testing.assert_array_equal(here.y, staged.y, strict=True)
    in_place, expected = (
        METHODS[name].make(n_features_to_select=7, **parameters).fit(corpus.X, corpus.y)
        for corpus in (here, staged)
    )
    assert here.X.passes == 1
    np.testing.assert_array_equal(in_place.selected_, expected.selected_)
    np.testing.assert_allclose(in_place.scores_, expected.scores_, rtol=1e-12)
    assert list(here.feature_names[in_place.selected_]) == [f"var{j}" for j in expected.selected_]
    assert state_of(atlas) == before


def test_what_obs_says_is_that_of_the_staged_store(atlas, tmp_path):
    options = {"label": "cell_type", **ROLES}
    here = storage.open(f"{atlas}?" + "&".join(f"{k}={v}" for k, v in options.items()))
    staged = storage.open(storage.stage(atlas, tmp_path / "staged.zarr", **options))
    for name in ("groups", "batches", "sample_weight", "times", "y"):
        np.testing.assert_array_equal(getattr(here, name), getattr(staged, name))
    np.testing.assert_array_equal(here.X.batches, staged.X.batches)
    assert here.roles == staged.roles
    assert here.categories("group") == staged.categories("group") == [f"d{i}" for i in range(5)]
    assert here.sample_names.tolist() == staged.sample_names.tolist()
    real = storage.open(f"{atlas}?label=w,age")
    assert (real.target, real.class_names) == ("multioutput", ["w", "age"])
    obs = zarr.open_group(atlas)["obs"]
    np.testing.assert_array_equal(real.y, np.column_stack([obs["w"], obs["age"]]))
    fitted = [
        METHODS["anova"].make().fit(c.X, c.y, sample_weight=c.sample_weight) for c in (here, staged)
    ]
    np.testing.assert_allclose(fitted[0].scores_, fitted[1].scores_, rtol=1e-12)


def test_a_bucket_is_read_where_it_lies(bucket, atlas, tmp_path, monkeypatch):
    monkeypatch.setenv("BIGFS_DATA", str(tmp_path / "data"))
    far = storage.open(f"{bucket}#label=cell_type")
    near = storage.open(f"{atlas}?label=cell_type")
    np.testing.assert_array_equal(far.X @ np.eye(D), near.X @ np.eye(D))
    np.testing.assert_array_equal(far.y, near.y)
    assert not (tmp_path / "data").exists()
    again = storage.open(f"{bucket}#label=cell_type")
    assert again.spec["content"] == far.spec["content"]
    fsspec.filesystem("memory").pipe("/bucket/atlas.zarr/note", b"another version")
    changed = storage.open(f"{bucket}#label=cell_type")
    assert changed.spec["content"] != far.spec["content"]
    with pytest.raises(StoreError, match="does not exist: stage a source there first"):
        storage.open("memory://bucket/none.zarr")


def test_counts_are_log_normalized_block_by_block(atlas, tmp_path):
    here = storage.open(f"{atlas}?label=cell_type&weight=lognorm&target_sum=100")
    options = {"label": "cell_type", "weight": "lognorm", "target_sum": 100}
    staged = storage.open(storage.stage(atlas, tmp_path / "staged.zarr", **options))
    np.testing.assert_array_equal(here.X @ np.eye(D), staged.X @ np.eye(D))
    assert here.spec["content"] != storage.open(f"{atlas}?label=cell_type").spec["content"]
    for options in ("weight=lognorm", "weight=tfidf", "scale=standard"):
        with pytest.raises(StoreError, match="others are fitted on all rows, so stage it"):
            storage.open(f"{atlas}?{options}")
    with pytest.raises(StoreError, match="target_sum must be a number above 0; got many"):
        storage.open(f"{atlas}?weight=lognorm&target_sum=many")
    zarr.open_group(atlas)["X/data"][3] = -1
    with pytest.raises(SourceError, match="holds the value -1, and weight='lognorm' is for counts"):
        storage.open(f"{atlas}?weight=lognorm&target_sum=100").X @ np.eye(D)


def test_dense_rows_and_layers_are_read_in_place(atlas, tmp_path):
    root = zarr.open_group(atlas)
    X = storage.open(atlas).X @ np.eye(D)
    layer = root.require_group("layers").create_array(
        "dense", shape=X.shape, dtype="f4", chunks=(16, 8), shards=(64, 16)
    )
    layer[:] = 2 * X
    corpus = storage.open(f"{atlas}?layer=dense&label=cell_type")
    np.testing.assert_array_equal(corpus.X @ np.eye(D), 2 * X)
    assert len(corpus.X.row_tiles) > 4


def test_what_cannot_be_read_in_place_is_refused(atlas, tmp_path):
    staged = storage.stage(atlas, tmp_path / "staged.zarr", label="cell_type")
    with pytest.raises(StoreError, match="is a staged corpus, which has no options: leave out la"):
        storage.open(f"{staged}?label=cell_type")
    with pytest.raises(SourceError, match=r"has no obs\['kind'\]"):
        _ = storage.open(f"{atlas}?label=kind").y
    with pytest.raises(SourceError, match="anndata has no option lable: did you mean label"):
        storage.open(f"{atlas}?lable=cell_type")
    indptr = zarr.open_group(atlas)["X/indptr"]
    indptr[60] = indptr[59] - 1
    with pytest.raises(SourceError, match="is broken: its indptr does not match"):
        _ = storage.open(f"{atlas}?label=cell_type").X


def test_the_command_selects_in_place(atlas, tmp_path, bigfs):
    before = state_of(atlas)
    command = ("select", f"{atlas.name}?label=cell_type", "--workers", "0", "--features", "5")
    status, _, err = bigfs(*command, "--method", "anova", "--out", "here")
    assert status == 0, err
    assert "more than once" not in err
    storage.stage(atlas, tmp_path / "staged.zarr", label="cell_type")
    staged = ("select", "staged.zarr", *command[2:], "--method", "anova", "--out", "there")
    assert bigfs(*staged)[0] == 0
    here, there = Run.open(tmp_path / "here"), Run.open(tmp_path / "there")
    assert here.read_table("selected.csv") == there.read_table("selected.csv")
    np.testing.assert_allclose(here.scores, there.scores, rtol=1e-12)
    status, _, err = bigfs(*command, "--method", "anova", "--out", "here")
    assert "has this result already" in err
    # a method of several passes works, and says what it costs
    with pytest.warns(UserWarning, match="sparge-lda reads .*atlas.zarr.* more than once"):
        status, _, err = bigfs(*command, "--method", "sparge-lda", "--out", "slow")
    assert status == 0, err
    assert state_of(atlas) == before
