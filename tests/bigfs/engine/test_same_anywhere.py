"""The answer is the same on any machine: BLAS has one thread, and memory and workers decide nothing
that rounds.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import spams  # noqa: F401  # it brings a BLAS of its own when JGSC first needs it
from threadpoolctl import threadpool_info, threadpool_limits

from bigfs import engine
from bigfs.matrix import Matrix
from bigfs.selectors.registry import METHODS
from tests.helpers.daily import daily
from tests.helpers.fitting import fit_few_steps


def blas_threads():
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield


def test_blas_gets_its_threads_back_after_the_outer_block():
    with engine.one_blas_thread():
        with engine.one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}


def test_every_task_runs_with_one_thread():
    tiles = [0, 1]
    assert engine.map_tiles(lambda tile: blas_threads(), tiles, local=True) == [{1}, {1}]
    assert engine.map_tiles(lambda tile: blas_threads(), tiles) == [{1}, {1}]
    assert blas_threads() == {2}


@pytest.mark.parametrize(
    "name", daily(METHODS, "anova", "sparge-lda", "srlsr", "jgsc", "smr", "mcfs")
)
def test_every_fit_runs_with_one_thread_and_writes_in_no_block(name, monkeypatch):
    """A block stays in the cache for later passes, or is the user's own array."""
    seen, tiles = set(), Matrix.tiles

    def begin_pass(self, axis):
        seen.update(blas_threads())
        return tiles(self, axis)

    monkeypatch.setattr(Matrix, "tiles", begin_pass)
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = np.abs(rng.normal(size=(40, 9)) + y[:, None])
    target = y + rng.random(40) if METHODS[name].targets == ("real",) else y
    selector = METHODS[name].make(n_features_to_select=3)
    if name == "smr":
        selector.set_params(sample_shape=(3, 3))
    if name == "sparge-lda-cv":
        selector.set_params(gammas=[1.0])
    matrix = Matrix.from_array(sp.csr_array(X))
    blocks = [engine.load(tile) for tile in (*matrix.row_tiles, *matrix.column_tiles)]
    before = [block.copy() for block in blocks]
    fit_few_steps(selector, matrix, target)
    assert seen == {1}
    assert blas_threads() == {2}
    for block, copy in zip(blocks, before, strict=True):
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(block, part), getattr(copy, part))


# Who asks for the memory, the workers or the cores, and why the answer does not depend on them.
ASKERS = {
    "cutting_plane/tree.py": "a search that ends has the same lists with any rows of products",
    "graph/row_blocks.py": "distances have the same bits in any blocks",
    "graph/approximate/sample.py": "a row is ranked by one task, whichever",
    "linalg/ridge/direct.py": "parts are added in the order of the tiles",
    "matrix/kernels.py": "a sum has the same bits with others in its pass or alone",
    "matrix/gathering.py": "a small matrix keeps its tiles where it is read at once",
    "evaluation/linear_model.py": "no classifier depends on which others it is trained with",
    "selectors/greedy/search.py": "a term of a feature is the same gathered or not",
    "selectors/row_sparse/srlsr.py": "the labels of the samples follow the choice",
    "evaluation/scoring.py": "decision values that do not fit are refused",
    "evaluation/large_model.py": "scores of a choice, to the tolerance of their models",
}


def test_nothing_else_asks_what_the_machine_has():
    root = Path(engine.__file__).parents[1]
    asked = {"memory_limit", "n_workers", "task_memory", "cpu_count", "virtual_memory"}
    askers = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if "engine" not in file.relative_to(root).parts
        and any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in asked
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        )
    }
    assert askers == set(ASKERS)
