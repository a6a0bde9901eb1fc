"""Each step that asks whether its memory fits takes what it says, and at least half of that."""

import ast
import sys
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import bigfs
from bigfs import (
    CMIM,
    GLSPFS,
    JFS,
    JGSC,
    MRMR,
    NDFS,
    SMR,
    UDFS,
    Chi2,
    HighlyVariable,
    Matrix,
    MultiTaskLasso,
    RankSum,
    SparGE,
    SparGECV,
    engine,
)
from bigfs.coding import dictionary
from bigfs.cutting_plane import hinge
from bigfs.cutting_plane.columns import GatheredColumns
from bigfs.embedding import factors, spectral, targets
from bigfs.evaluation import large_model, quality, splits
from bigfs.evaluation.linear_model import LinearModel
from bigfs.graph import class_neighbors, discriminant, neighbors
from bigfs.lasso.losses import LeastSquares
from bigfs.linalg import svm
from bigfs.linalg.ridge import Ridge
from bigfs.linalg.ridge.operator import WeightedCentering, centering
from bigfs.matrix import Centered
from bigfs.selectors.row_sparse import label_sums
from bigfs.selectors.scores import llfs

PACKAGE = Path(bigfs.__file__).parent
OBJECTS = 1 << 18  # bytes of what a step makes beside its arrays
# what is asked of a part of the memory, of what another process takes, or before it is known what a
# step takes: the step itself then asks again or is tried by a test of its own
OF_A_SHARE = {
    "cutting_plane/columns.py:Columns._require_memory",  # 4,096 columns: test_columns.py
    "cutting_plane/tree.py:Search.hold_columns",  # and rows that are made later: test_tree.py
    "cutting_plane/tree.py:Search.step",  # of the open nodes: test_tree.py
    "embedding/targets.py:_thin_svd",  # of arrays of LAPACK, which are not traced
    "evaluation/large_model.py:choose_strategy",  # of a task: test_models.py
    "evaluation/large_model.py:require_trainable",  # of a task: test_models.py
    "evaluation/scoring.py:_require_decisions",  # of a task
    "graph/row_blocks.py:block_size",  # the smallest block in its share
    "graph/row_blocks.py:neighborhood_blocks",  # the smallest block in its share
    "graph/row_blocks.py:require_whole",  # of a task that waits for blocks of a cluster
    "matrix/gathering.py:_collect",  # as the parts come
    "matrix/gathering.py:hold_columns",  # of blocks of a cluster
    "matrix/kernels.py:most_at_once",  # of a worker
    "selectors/row_sparse/jhlsr.py:JHLSR._require_memory",  # the least of the solvers
}


def sparse(n, d, density=0.01, **options):
    return sp.random_array((n, d), density=density, format="csr", rng=0, **options)


def codes_of(n, c):
    return np.arange(n) % c


def ridge(solver, n, d, M, r=1):
    X, T = Matrix.from_array(sparse(n, d)), np.ones((n, r))
    return lambda: Ridge(X, M, solver=solver, targets=r).prepare(np.ones(d)).solve(T)


def gather():
    X = Matrix.from_array(sparse(200, 1500, 0.02))
    return lambda: LeastSquares(X, np.ones((200, 1))).gather(np.arange(1400))


def decide():
    X, coef = Matrix.from_array(sparse(20_000, 30)), np.ones((50, 30))
    model = LinearModel("class", np.arange(50), coef, np.ones(50), np.empty(0), np.empty(0))
    return lambda: large_model.decide(X, model)


def classifiers():
    X = Matrix.from_array(sparse(20_000, 50))
    options = {"C": 1.0, "tol": 1e-3, "max_iter": 2, "name": "svm"}
    return lambda: svm.fit_svm(X, codes_of(20_000, 10), 10, **options)


def hinge_loss():
    X, Y = (
        Matrix.from_array(sparse(20_000, 5)),
        np.where(codes_of(20_000, 4)[:, None] == [0, 1], 1, -1),
    )
    data = GatheredColumns(X, Y.astype(float))
    data.add(np.arange(5))
    return lambda: hinge.SquaredHinge(data).fit(X.columns(np.arange(5)), np.ones((5, 2)))


def inverse_transform():
    X = sparse(60, 800, 0.1)
    selector = JGSC(n_features_to_select=3, dictionary=X[:5].toarray(), n_neighbors=3).fit(X)
    codes = np.ones((2000, 3))
    return lambda: selector.inverse_transform(codes)


def differences():
    X = Matrix.from_array(sparse(2000, 300, 0.05))
    pairs = llfs.Pairs(
        np.repeat(np.arange(500), 6),
        np.random.default_rng(0).integers(0, 2000, 3000),
        np.zeros(3000, dtype=bool),
    )
    return lambda: llfs.differences(X, pairs, np.arange(500), np.ones(300))


def embedded(n, r):
    A = sparse(n, n, 4 / n)
    return partial(spectral.graph_embedding, sp.csr_array(A + A.T), r, max_iter=2)


def dense(n, d):
    return Matrix.from_array(np.random.default_rng(0).random((n, d)))


def fitted(selector, X, y=None):
    def step():
        with np.errstate(all="ignore"):
            selector.fit(X, y)

    return step


def wide(selector, d=200_000):
    X, y = Matrix.from_array(sparse(100, d, 1e-3)), codes_of(100, 2)
    return fitted(selector.set_params(n_features_to_select=3), X, y)


def few_columns(selector):
    """Fit nearly empty columns: of the arrays of a fit, those by column are the large ones."""
    X = sp.hstack([sparse(40, 20, 0.5), sparse(40, 12_000, 1 / 40)]).tocsr()
    return fitted(selector.set_params(n_features_to_select=3, max_iter=2), X)


def smr(gram, n, shape, k):
    X, y = dense(n, shape[0] * shape[1]), codes_of(n, 2)
    return fitted(SMR(n_features_to_select=3, sample_shape=shape, k=k, gram=gram, max_iter=2), X, y)


def atoms():
    X = Matrix.from_array(sparse(3000, 800))
    return lambda: dictionary.learn_atoms(X, 300, epochs=1)


def codes_of_atoms():
    X = sparse(4000, 500, 0.02)
    return fitted(JGSC(n_features_to_select=5, dictionary=X[:150].toarray(), max_iter=2), X)


def singular_vectors(n, d):
    Xc = Centered(Matrix.from_array(sparse(n, d)))
    return lambda: spectral.randomized_svd(Xc, 20, max_iter=2)


def folds():
    n = 6000
    codes, groups = codes_of(n, 20), np.arange(n) // 2
    return lambda: list(splits._splitter(3, codes, groups, 0).split(np.zeros(n), codes, groups))


def neighborhoods():
    X = dense(1000, 30)
    return partial(discriminant.local_discriminant, X, neighbors.knn(X, 15), 0.1)


def both_layouts():
    array = sparse(3000, 2000, 0.1)

    def step():
        X = Matrix.from_array(array)
        return [tile.load() for tile in (*X.row_tiles, *X.column_tiles)]

    return step


def by_columns(step):
    n, whole = 20_000, Matrix.from_array(sparse(20_000, 30))
    X = Matrix((n, 30), columns=whole.column_tiles, local=True)
    return partial(step, X, codes_of(n, 20), np.ones((30, 20)), np.zeros(20))


SVD = "embedding/spectral.py:randomized_svd"
LARGEST = "embedding/spectral.py:_largest"
SOLVE = "linalg/ridge/plan.py:choose_solver"
FEATURES = "selectors/base/estimator.py:MatrixInput._leave_out_constants"
WEIGHTS = "selectors/row_sparse/rows.py:RowSparseProblem.__init__"
SYSTEMS = "selectors/images/smr.py:SMR._systems"
# the step of each function that asks, with what is made before it
STEPS = {
    "coding/dictionary.py:learn_atoms": atoms,
    "cutting_plane/columns.py:GatheredColumns.__init__": lambda: fitted(
        SparGE(n_features_to_select=3, max_iter=2), sparse(3000, 100, 0.02), codes_of(3000, 300)
    ),
    "cutting_plane/hinge.py:SquaredHinge.__init__": hinge_loss,
    "cutting_plane/tree.py:gathers": lambda: fitted(
        SparGE(n_features_to_select=20, gap=0, max_nodes=1), dense(200, 1500), codes_of(200, 4)
    ),
    "embedding/factors.py:gaussian_factor": lambda: partial(
        factors.gaussian_factor, dense(5000, 50), 200
    ),
    "embedding/targets.py:one_hot": lambda: partial(targets.one_hot, codes_of(50_000, 20), 20),
    LARGEST: lambda: embedded(900, 200),
    f"{LARGEST} sparse": lambda: embedded(20_000, 40),
    SVD: lambda: singular_vectors(20_000, 400),
    f"{SVD} wide": lambda: singular_vectors(4000, 6000),
    "evaluation/large_model.py:decide": decide,
    "evaluation/quality.py:absolute_correlations": lambda: partial(
        quality.absolute_correlations, Matrix.from_array(sparse(500, 700))
    ),
    "evaluation/splits.py:_splitter": folds,
    "selectors/sparge/fold_scores.py:choose_in_folds": lambda: fitted(
        SparGECV(n_features_to_select=3, max_iter=2), sparse(1500, 200, 0.05), codes_of(1500, 300)
    ),
    "graph/class_neighbors.py:neighbors_by_class": lambda: partial(
        class_neighbors.neighbors_by_class,
        Matrix.from_array(sparse(3000, 200, 0.05)),
        codes_of(3000, 5),
        20,
        "euclidean",
    ),
    "graph/discriminant.py:local_discriminant": neighborhoods,
    "graph/neighbors.py:knn": lambda: partial(neighbors.knn, dense(3000, 10), 200),
    "lasso/losses.py:Loss.gather": gather,
    "lasso/losses.py:_require_memory": lambda: fitted(
        MultiTaskLasso(n_features_to_select=3), sparse(20_000, 100, 0.005), codes_of(20_000, 10)
    ),
    f"{SOLVE} woodbury": lambda: ridge("woodbury", 900, 2000, centering(900)),
    f"{SOLVE} weighted": lambda: ridge("woodbury", 900, 2000, WeightedCentering(np.ones(900))),
    f"{SOLVE} primal": lambda: ridge("primal", 2000, 900, centering(2000)),
    f"{SOLVE} cg": lambda: ridge("cg", 300, 20_000, centering(300), 10),
    "linalg/svm.py:fit_svm": classifiers,
    "matrix/construction.py:array_layouts": both_layouts,
    "selectors/atoms/jgsc.py:JGSC.fit": codes_of_atoms,
    "selectors/atoms/jgsc.py:JGSC.inverse_transform": inverse_transform,
    FEATURES: lambda: wide(Chi2()),
    **{
        f"{FEATURES} {method.__name__}": partial(wide, method(), 30_000)
        for method in (HighlyVariable, MRMR)
    },
    "selectors/greedy/criteria.py:information_problem": lambda: fitted(
        CMIM(n_features_to_select=3, n_bins=50),
        Matrix.from_array(sparse(500, 20, 0.05)),
        codes_of(500, 200),
    ),
    f"{SYSTEMS} kernel": lambda: smr("kernel", 100, (60, 60), 5),
    f"{SYSTEMS} samples": lambda: smr("samples", 200, (30, 30), 12),
    f"{SYSTEMS} covariance": lambda: smr("covariance", 200, (25, 25), 5),
    "selectors/row_sparse/label_sums.py:sum_samples": lambda: by_columns(label_sums.sum_samples),
    "selectors/row_sparse/label_sums.py:_stream_rows": lambda: by_columns(
        label_sums.distances_to_simplex
    ),
    f"{WEIGHTS} of a graph": lambda: few_columns(GLSPFS(n_components=20)),
    f"{WEIGHTS} of an embedding": lambda: few_columns(NDFS(n_components=5)),
    f"{WEIGHTS} of neighborhoods": lambda: few_columns(UDFS(n_components=5)),
    "selectors/row_sparse/rfs.py:JFS._fit": lambda: fitted(
        JFS(n_features_to_select=3, max_iter=2), dense(300, 250)
    ),
    "selectors/scores/llfs.py:differences": differences,
    "selectors/scores/rank_sum.py:RankSum._fit": lambda: fitted(
        RankSum(n_features_to_select=3), sparse(400, 3000), codes_of(400, 200)
    ),
}


def place_of(step):
    return step.split(" ")[0]


def calls():
    """Return the functions that ask, as often as they do."""
    found = []

    def walk(node, file, names):
        for child in ast.iter_child_nodes(node):
            is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            called = getattr(child, "func", None)
            if getattr(called, "attr", getattr(called, "id", None)) == "require_memory":
                found.append(f"{file}:{'.'.join(names)}")
            walk(child, file, [*names, child.name] if is_named else names)

    for file in PACKAGE.rglob("*.py"):
        if "require_memory(" in (text := file.read_text()):
            walk(ast.parse(text), file.relative_to(PACKAGE).as_posix(), [])
    return found


def test_every_step_that_asks_is_tried():
    assert {place_of(step) for step in STEPS} | OF_A_SHARE == set(calls())
    for place in set(calls()) - OF_A_SHARE:
        assert sum(place_of(step) == place for step in STEPS) >= calls().count(place), place


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")
@pytest.mark.parametrize("name", STEPS)
def test_a_step_takes_what_it_asks_for(name, monkeypatch):
    asked = []

    def note(projected, what, limit=None):
        code = sys._getframe(1).f_code
        file = Path(code.co_filename)
        if file.is_relative_to(PACKAGE):
            asked.append((f"{file.relative_to(PACKAGE).as_posix()}:{code.co_qualname}", projected))

    step = STEPS[name]()
    monkeypatch.setattr(engine, "require_memory", note)
    step()  # imports and compiles
    asked.clear()
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    projected = max(size for place, size in asked if place == place_of(name))
    assert peak - OBJECTS <= projected <= 2 * peak
