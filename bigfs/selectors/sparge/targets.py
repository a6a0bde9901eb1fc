"""The regression of SparGE: the samples, and the embedding of them that the features explain."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import StrOptions

from bigfs.cutting_plane.columns import Columns, GatheredColumns
from bigfs.cutting_plane.tiled_columns import FactoredTargets, StreamedColumns, TiledColumns
from bigfs.embedding import targets
from bigfs.embedding.spectral import (
    default_width,
    hypergraph_embedding,
    hypergraph_parts,
    require_width,
)
from bigfs.graph.edges import Metric
from bigfs.graph.hypergraph.hypergraph import neighbor_hyperedges
from bigfs.linalg.prox import row_norms
from bigfs.linalg.svm import positive_classes
from bigfs.matrix import Matrix
from bigfs.matrix.class_sums import class_sizes
from bigfs.matrix.gathering import ENTRY_BYTES, hold_if_small
from bigfs.matrix.kernels import SUMS_BYTES
from bigfs.selectors.base.estimator import MatrixInput
from bigfs.selectors.base.labels import Labels, at_least_two, matrix_target
from bigfs.selectors.base.parameters import POSITIVE, Allowed
from bigfs.selectors.base.sample_graph import embedding_stats, joined_neighbors, sample_graph
from bigfs.settings import Setting
from bigfs.types import AnyArray, FloatArray, IntArray

if TYPE_CHECKING:
    from bigfs.selectors.sparge.sparge import SparGE

LARGE_TARGETS = Setting(32 << 20)  # bytes of T from which it is made tile by tile
# bytes of the gathered columns from which they stay in the tiles
LARGE_GATHERED = Setting(256 << 20)
GATHERED_SETS = 8  # sets of m features that a cutting plane gathers, about
ColumnsKind = Literal["gathered", "streamed", "tiled"]


class Targets(NamedTuple):
    """The targets that the features explain."""

    X: Matrix  # the samples that take part
    T: FactoredTargets  # n × r
    omega: FloatArray | None = None  # weights ω of the residuals; None: all are one
    stats: Mapping[str, Any] = MappingProxyType({})  # of the result


def columns_kind(X: Matrix, m: int, r: int) -> ColumnsKind:
    """Return where the columns and targets of width r lie.

    The shapes and the non-zeros per column decide, so that memory does not change answers. Targets
    are made by tile where they are large and their products with all columns are not. Columns stay
    in the tiles where the `GATHERED_SETS` · m of most non-zeros, about those that a cutting plane
    gathers, are large and the matrix is not in memory anyway.
    """
    n, d = X.shape
    if X.row_tiles and 8 * n * r > LARGE_TARGETS.value and 8 * d * r <= SUMS_BYTES // 2:
        return "tiled"
    if (
        X.row_tiles
        and X.column_tiles
        and not X.local
        and gathered_bytes(X, m) > LARGE_GATHERED.value
    ):
        return "streamed"
    return "gathered"


def gathered_bytes(X: Matrix, m: int) -> int:
    """Return the bytes of the columns of most non-zeros, as many as a cutting plane gathers."""
    d = X.shape[1]
    size = min(GATHERED_SETS * m, d)
    return ENTRY_BYTES * int(np.partition(X.stats.nnz, d - size)[d - size :].sum())


class EmbeddingTarget(MatrixInput):
    """The parameters that SparGE and SparGECV share, and the y that the embedding explains."""

    embedding: Literal["lda", "cca", "hsl", "sda", "lpp", "pca"] = "lda"
    target: str = "auto"
    class_weight: Any = "root"
    loss: Literal["squared", "squared_hinge"] = "squared"
    n_components: int | None = None
    n_neighbors: int = 5
    metric: Metric = "cosine"
    graph: Any = None
    weighting: Literal["uniform", "degree"] = "uniform"
    beta: float = 1.0
    ranking: Literal["elimination", "weights", "svm"] = "elimination"
    tol: float = 0.01
    max_iter: int = 50

    _parameter_constraints: ClassVar[Allowed] = {
        "class_weight": [StrOptions({"balanced", "root"}), dict, None],
        "tol": POSITIVE,
    }
    _needs_one_scale = True
    _largest_tried = 2000  # the products of four times as many columns take 512 MB

    @property
    def _supervised(self) -> bool:  # type: ignore[override]  # elsewhere a constant of the class
        return self.embedding in ("lda", "cca", "sda")

    @property
    def _semi_supervised(self) -> bool:  # type: ignore[override]
        return self.embedding == "sda"

    @property
    def _takes_real(self) -> bool:  # type: ignore[override]
        return self.embedding in ("cca", "hsl")

    @property
    def _ignores_y(self) -> bool:  # type: ignore[override]
        return self.embedding in ("lpp", "pca")

    def _check_y(self, y: Any, has_unlabeled: bool) -> Any:
        """Return `Labels`, or the target matrix Y (n × q) of cca and hsl as it is."""
        if not self._takes_real:
            return super()._check_y(y, has_unlabeled)
        if sp.issparse(y) and self.embedding == "cca":
            return sp.csr_array(y)
        return matrix_target(y, self.target, has_unlabeled)


def regression(method: SparGE, X: Matrix, y: Any) -> Columns:
    """Return the data of the regression, without any column yet."""
    X, T, omega, stats = targets_of(method, X, y)
    if not T.norm2:
        raise ValueError(
            f"the embedding {method.embedding!r} is empty, because nothing "
            f"separates the samples: check X and y"
        )
    data: Columns
    kind = columns_for(method, X, len(T.shift))
    if kind == "tiled":
        data = TiledColumns(X, T, omega)
    elif kind == "streamed":
        data = StreamedColumns(X, T.whole(), omega)
    else:
        data = GatheredColumns(hold_if_small(X), T.whole(), omega)
    data.target_stats = stats
    return data


def columns_for(method: SparGE, X: Matrix, r: int) -> ColumnsKind:
    """Return where the columns and targets of width r lie."""
    if method.loss != "squared" or not method._in_tiles:
        return "gathered"
    return columns_kind(X, method._count(X.shape[1]), r)


def targets_of(method: SparGE, X: Matrix, y: Any) -> Targets:
    """Return the samples that take part, and what the features explain."""
    if method.loss == "squared_hinge":
        return _hinge_targets(method, X, y)
    if method.embedding == "lda":
        classes, codes = at_least_two(y)
        if not y.all_labeled:  # else they are not copied
            X, codes = X.take_rows(y.is_labeled), codes[y.is_labeled]
        c = len(classes)
        # balanced classes weigh the same
        weights = None if method.class_weight == "balanced" else _weigh(method, classes, codes)
        C = targets.lda_factor(codes, c, weights)
        norm2 = float(class_sizes(codes, c) @ row_norms(C) ** 2)
        return Targets(X, FactoredTargets(codes, C, np.zeros(c - 1), norm2))
    is_sparse = method.embedding == "cca" and sp.issparse(y)
    if is_sparse and columns_for(method, X, y.shape[1]) == "tiled":
        C, shift = targets.cca_factor(y)
        return Targets(X, FactoredTargets(_compact(y), C, shift, float(C.shape[1])))
    if method._takes_real and y is not None:
        if isinstance(y, Labels):
            codes = y.codes[y.is_labeled]
            X = X if y.all_labeled else X.take_rows(y.is_labeled)
            y = targets.one_hot(codes, len(y.classes))
        Y = y.toarray() if sp.issparse(y) else y
        T = targets.cca(Y) if method.embedding == "cca" else targets.hsl_labels(Y)
        return Targets(X, FactoredTargets.of(T))
    allowed = method._allowed(X)
    if method.embedding == "pca":
        r = method.n_components or default_width(*allowed.shape)
        result = targets.pca(allowed, r, tol=method.tol / 4)
        T = result.value.vectors
        return Targets(X, FactoredTargets.of(T), stats=embedding_stats(result))
    if method.embedding == "hsl":
        return _hypergraph_targets(method, X)
    graph = sample_graph(allowed, method.graph, method.n_neighbors, method.metric)
    degree = np.asarray(graph.A.sum(axis=1)).ravel()
    if method.embedding == "lpp":
        omega = np.sqrt(degree) if method.weighting == "degree" else None
        T = graph.targets(method.n_components, allowed.shape[1])
        return Targets(X, FactoredTargets.of(T), omega, graph.stats)
    classes, codes = at_least_two(y)
    r = method.n_components or len(classes) - 1
    result = targets.sda(graph.A, codes, len(classes), r, method.beta)
    T = require_width(result, method.n_components).value.vectors
    omega = np.sqrt(1 + method.beta * degree) if method.weighting == "degree" else None
    return Targets(X, FactoredTargets.of(T), omega, graph.stats | embedding_stats(result))


def _hypergraph_targets(method: SparGE, X: Matrix) -> Targets:
    """Return the leading eigenvectors of the hypergraph of the neighborhoods."""
    allowed = method._allowed(X)
    neighbors, stats = joined_neighbors(allowed, None, method.n_neighbors, method.metric)
    hypergraph = neighbor_hyperedges(neighbors)
    parts = hypergraph_parts(hypergraph, neighbors.index.shape[1])
    r = method.n_components or default_width(*allowed.shape, parts.n_set_aside)
    result = require_width(hypergraph_embedding(hypergraph, r, parts), method.n_components)
    T = result.value.vectors
    return Targets(X, FactoredTargets.of(T), stats=stats | embedding_stats(result))


def _hinge_targets(method: SparGE, X: Matrix, y: Labels) -> Targets:
    """Return the labeled samples, diag(ω)Y with Y in ±1, and the weights ω of the samples."""
    classes, codes = at_least_two(y)
    codes = codes[y.is_labeled]
    Y = np.where(codes[:, None] == positive_classes(len(classes)), 1.0, -1.0)
    labeled_X = X if y.all_labeled else X.take_rows(y.is_labeled)
    weights = sample_weights(method, y)
    if weights is None:
        return Targets(labeled_X, FactoredTargets.of(Y))
    omega = np.sqrt(weights)
    return Targets(labeled_X, FactoredTargets.of(omega[:, None] * Y), omega)


def sample_weights(method: SparGE, y: Labels) -> FloatArray | None:
    """Return the weight of each labeled sample, or None if all weigh the same."""
    if method.class_weight is None:
        return None
    classes, codes = at_least_two(y)
    codes = codes[y.is_labeled]
    return _weigh(method, classes, codes)[codes]


def _weigh(method: SparGE, classes: AnyArray, codes: IntArray) -> FloatArray:
    """Return the weight v_c of a sample of each class, in its mean over the samples 1."""
    if method.class_weight == "root":
        sizes = np.maximum(class_sizes(codes, len(classes)), 1)
        return np.asarray(sizes**-0.5 * (len(codes) / np.sqrt(sizes).sum()))
    weights = compute_class_weight(method.class_weight, classes=classes, y=classes[codes])
    if not (weights > 0).all() or not np.isfinite(weights).all():
        raise ValueError(f"class_weight must hold positive numbers; got {method.class_weight}")
    return weights


def _compact(Y: sp.csr_array) -> sp.csr_array:
    """Return Y with indices of 32 bits, and whole numbers of 8 bits where its values are such."""
    with np.errstate(invalid="ignore"):  # of values that 8 bits do not hold
        small = Y.data.astype(np.int8)
    data = small if np.array_equal(small, Y.data) else Y.data
    indices, indptr = Y.indices, Y.indptr
    if Y.nnz <= np.iinfo(np.int32).max:
        indices, indptr = indices.astype(np.int32), indptr.astype(np.int32)
    return sp.csr_array((data, indices, indptr), shape=Y.shape)
