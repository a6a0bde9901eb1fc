"""The notebook of the guide, on a client of the user's own."""

import ast
import re
from pathlib import Path

import dask.array as da
import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client

import bigfs
from bigfs import storage

pytestmark = [pytest.mark.process, pytest.mark.slow]

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "pipelines.md"
N, D = 60, 20
# at least. How many a worker has is the scheduler's choice: the store has one tile, with one home.
TASKS = 100


def cell(start):
    """The lines of the guide's block that starts so, without the last one, and its last one."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.S | re.M)
    [code] = [block for block in blocks if block.startswith(start)]
    lines = code.splitlines()
    assert len(lines) <= 5
    ast.parse(lines[-1], mode="eval")
    return "\n".join(lines[:-1]), lines[-1]


@pytest.fixture(scope="module")
def expression():
    """Counts of N cells: the first three genes tell the three types apart."""
    rng = np.random.default_rng(7)
    y = np.arange(N) % 3
    rates = np.full((N, D), 0.4)
    rates[:, :3] += 4 * np.eye(3)[y]
    return sp.csr_array(rng.poisson(rates).astype(np.float64)), y


class Watched(Client):
    """A client that counts the tasks of each worker before it closes."""

    done: list[int]

    def __init__(self, **arguments):
        super().__init__(host="127.0.0.1", dashboard_address="127.0.0.1:0", **arguments)

    def __exit__(self, *error):
        Watched.done = list(self.run(tasks_done).values())
        super().__exit__(*error)


def tasks_done(dask_worker):
    return dask_worker.state.executed_count


def write_h5ad(path, X, y):
    """By AnnData's published encoding."""
    text = h5py.string_dtype()
    with h5py.File(path, "w") as file:
        file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        group = file.create_group("X")
        group.attrs.update(
            {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": X.shape}
        )
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(X, name)
        for frame, names in (
            ("obs", [f"cell{i}" for i in range(X.shape[0])]),
            ("var", [f"gene{j}" for j in range(X.shape[1])]),
        ):
            group = file.create_group(frame)
            group.attrs.update(
                {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
            )
            group.attrs["column-order"] = np.array([], dtype=text)
            group.create_dataset("_index", data=names, dtype=text)
        kind = file["obs"].create_group("cell_type")
        kind.attrs.update(
            {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
        )
        kind.create_dataset("categories", data=["B", "NK", "T"], dtype=text)
        kind["codes"] = y.astype(np.int8)


def check(selector, accuracy, names, err, card):
    # two of the three tell three types apart, within one standard error
    chosen = set(selector.get_feature_names_out())
    assert chosen < set(names)
    assert selector.n_features_ == 2
    assert 0.85 < accuracy <= 1
    assert "evaluation folds" in err  # a bar of `bigfs.progress`
    assert "gap" in card
    assert all(name in card for name in chosen)
    assert "2 of 20 features" in card


def test_an_h5ad_file_in_five_lines(expression, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_h5ad("cells.h5ad", *expression)
    code, last = cell("with Client(")
    names = {"Client": Watched, "bigfs": bigfs, "storage": storage}
    exec(code, names)
    assert len(Watched.done) == 2
    assert min(Watched.done) > 0
    assert sum(Watched.done) > TASKS
    card = eval(last, names)._repr_html_()
    genes = ["gene0", "gene1", "gene2"]
    check(names["selector"], names["accuracy"], genes, capfd.readouterr().err, card)


@pytest.mark.nightly  # tests/bigfs/engine/test_client.py does so on threads
def test_a_persisted_array_in_four_lines(expression, capfd):
    S, y = expression
    blocks = [da.from_array(S[a : a + 20], chunks=(20, D), asarray=False) for a in (0, 20, 40)]
    code, last = cell("with bigfs.progress():")
    with Watched(n_workers=2) as client:
        names = {"X": client.persist(da.concatenate(blocks)), "y": y, "bigfs": bigfs}
        exec(code, names)
    assert len(Watched.done) == 2
    assert min(Watched.done) > 0
    assert sum(Watched.done) > TASKS
    card = eval(last, names)._repr_html_()
    check(names["selector"], names["accuracy"], ["x0", "x1", "x2"], capfd.readouterr().err, card)
    serial = bigfs.SelectorCV(cv=3)
    with bigfs.cluster(workers=0):
        expected = serial.cross_val_score(S, y, cv=3).mean()
    assert names["accuracy"] == expected
