"""Highly variable genes: the dispersion of a gene, relative to genes of a similar mean.

    seurat        e = log(s²/m), with m and s² of exp(x) − 1;   (e − mean of e) / (its deviation),
                  in each of n_bins equal bins of log(1 + m)
    cell_ranger   e = s²/m;   (e − median of e) / (its median absolute deviation / 0.6745),
                  in the bins between the percentiles 10, 15, …, 100 of m
    seurat_v3     Σ_i min(z_i, √n)² / (n − 1),  z = (x − m)/σ,
                  log σ² the loess of log s² on log m
    pearson_residuals   the variance of the residuals of `pearson`

s² has n − 1 degrees of freedom. With batches, each batch is scored by itself, and genes are ranked
by the number of batches that choose them and by their mean (`seurat`, `cell_ranger`) or median rank
(the others). The values equal `scanpy.pp.highly_variable_genes`, and the function in
`scanpy.experimental.pp` for Pearson residuals.
"""

from __future__ import annotations

import warnings
from dataclasses import field
from numbers import Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import column_or_1d

from bigfs import engine
from bigfs.linalg.loess import loess
from bigfs.matrix import Matrix
from bigfs.rounding import unless_rounding
from bigfs.selectors.base.estimator import MANY, Cost, Selector
from bigfs.selectors.base.parameters import COUNT, POSITIVE, SHARE, Allowed
from bigfs.selectors.scores.pearson import residual_variances
from bigfs.types import AnyArray, BoolArray, FloatArray, IntArray
from bigfs.validation import LARGEST, require_magnitude

V3 = ("seurat_v3", "seurat_v3_paper")
PEARSON = "pearson_residuals"
OF_COUNTS = (*V3, PEARSON)
MAD = 0.6744897501960817  # median absolute deviation of a normal variable
TINY = 1e-12  # in place of a mean of zero
MOST_NAMED = 3  # batches that a warning names


class HighlyVariable(Selector):
    """Score each gene by how much it varies for its mean.

    It is unsupervised. The flavors "seurat" and "cell_ranger" take the natural logarithms of
    normalized counts, as a store of ``weight="lognorm"`` has them. The others take counts.

    Parameters
    ----------
    flavor : {"seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals"}, \
            default="seurat"
        How the score is made. Those of "seurat_v3" differ only with batches: "seurat_v3" ranks
        genes by their median rank over the batches, and "seurat_v3_paper" first by the number of
        batches that choose them, as "pearson_residuals" does.
    n_bins : int, default=20
        Number of bins of the mean, for "seurat" only.
    span : float, default=0.3
        Share of the genes in each local fit of the variance on the mean, for "seurat_v3".
    theta : float, default=100
        Overdispersion of the counts under "pearson_residuals": their variance is μ + μ²/θ.
    mode : {"k_best", "cutoffs"}, default="k_best"
        How genes are chosen. "k_best" keeps `n_features_to_select`. "cutoffs" keeps all genes whose
        mean and normalized dispersion are between the next four, as scanpy does without
        ``n_top_genes``. It is for the flavors "seurat" and "cell_ranger".
    min_mean : float, default=0.0125
        What the mean, as `columns_` has it, must be above.
    max_mean : float, default=3
        What the mean must be below.
    min_disp : float, default=0.5
        What the normalized dispersion must be above. A gene without one counts as 0.
    max_disp : float, default=float("inf")
        What the normalized dispersion must be below.

    Attributes
    ----------
    scores_ : ndarray of shape (n_features,)
        Normalized dispersion (`dispersions_norm`) or variance (`variances_norm`, or
        `residual_variances`) of each gene. One without, because it is constant or forbidden, gets
        less than all others. With batches, the number of genes that rank below it. Larger is
        better.
    columns_ : dict of str to ndarray of shape (n_features,)
        The columns that scanpy writes to `var`: `highly_variable`, `means`, and `dispersions` and
        `dispersions_norm`, or `variances`, `highly_variable_rank`, and `variances_norm` or
        `residual_variances`. With batches, `highly_variable_nbatches` too, and
        `highly_variable_intersection` of the flavors "seurat" and "cell_ranger".
    %(passes)s

    See Also
    --------
    Variance : The variance itself.
    SparGE : With `embedding="pca"`, choose features for the variance together.

    Notes
    -----
    The values equal `scanpy.pp.highly_variable_genes` with ``n_top_genes`` as
    `n_features_to_select`. Exactly that number is chosen, and of equal genes the first, where
    scanpy may keep all or choose by rounding. With batches and "seurat_v3", scanpy from 1.12 on
    takes the means by an algorithm that rounds otherwise, and the local fit jumps where a last
    digit tells genes of equal mean apart: by up to 0.02 of a score with 20 cells per batch. The
    values here are those that it gives to each batch alone, and those of scanpy 1.11. Where no two
    genes of a batch have the same mean, all agree. Forbidden genes take no part. The flavors
    "seurat" and "cell_ranger" need one pass over X, "seurat_v3" two, and "pearson_residuals" three.
    The residuals of each batch are clipped at the root of its own number of cells.

    References
    ----------
    .. [1] R. Satija, J. A. Farrell, D. Gennert, A. F. Schier and A. Regev, "Spatial reconstruction
       of single-cell gene expression data", Nature Biotechnology, 2015.
    .. [2] G. X. Y. Zheng et al., "Massively parallel digital transcriptional profiling of single
       cells", Nature Communications, 2017.
    .. [3] T. Stuart et al., "Comprehensive integration of single-cell data", Cell, 2019.
    .. [4] J. Lause, P. Berens and D. Kobak, "Analytic Pearson residuals for normalization of
       single-cell RNA-seq UMI data", Genome Biology, 2021, doi:10.1186/s13059-021-02451-7.

    Examples
    --------
    >>> import numpy as np
    >>> from bigfs import HighlyVariable
    >>> rng = np.random.default_rng(0)
    >>> counts = rng.poisson(2.0, (200, 50)).astype(float)
    >>> counts[:, 7] *= rng.integers(0, 3, 200)
    >>> HighlyVariable(n_features_to_select=1, flavor="seurat_v3").fit(counts).selected_
    array([7])
    """

    _ignores_y = True
    _nested = False  # a batch chooses as many genes as are asked for
    _largest_tried = MANY

    flavor: Literal[
        "seurat", "cell_ranger", "seurat_v3", "seurat_v3_paper", "pearson_residuals"
    ] = "seurat"
    n_bins: int = 20
    span: float = 0.3
    theta: float = 100
    mode: Literal["k_best", "cutoffs"] = "k_best"
    min_mean: float = 0.0125
    max_mean: float = 3
    min_disp: float = 0.5
    max_disp: float = float("inf")

    _parameter_constraints: ClassVar[Allowed] = {
        **{name: [Real] for name in ("min_mean", "max_mean", "min_disp", "max_disp")},
        "n_bins": COUNT,
        "span": SHARE,
        "theta": POSITIVE,
    }

    columns_: dict[str, AnyArray] = field(init=False)

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.mode == "cutoffs" and self.n_features_to_select is not None:
            raise ValueError(
                "mode='cutoffs' chooses the number of genes by itself: leave out "
                f"n_features_to_select={self.n_features_to_select}"
            )
        if self.mode == "cutoffs" and self.flavor in OF_COUNTS:
            raise ValueError(
                f"flavor={self.flavor!r} has no cutoffs: give mode='k_best' and "
                "n_features_to_select, or another flavor"
            )

    _scores_alone = True
    _non_negative = True
    _feature_bytes = 160  # (measured)

    @property
    def _cost(self) -> Cost:  # type: ignore[override]
        passes = "3" if self.flavor == PEARSON else "2" if self.flavor in V3 else "1"
        return Cost(passes, "d b")

    @engine.session()
    def fit(self, X: Any, y: Any = None, batch: Any = None) -> Self:
        """Score the genes of X and keep the best.

        Parameters
        ----------
        X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
            Cells, without negative values. The matrix of a store is `bigfs.storage.open(uri).X`.
        y : object, default=None
            Not used.
        batch : array-like of shape (n_samples,), default=None
            Batch of each cell, as a number or a text. None takes the batches of a `Matrix` of a
            store that was staged with ``batch=``, and else all cells as one batch. A batch of one
            cell has no variance and takes no part.

        Returns
        -------
        Self
            The fitted selector.

        Raises
        ------
        ValueError
            X holds NaN, infinity or negative values, every batch has one cell, or more genes are
            asked for than X has.
        MemoryLimitError
            The projected memory of the run is above the limit.
        """
        return self._run(X, y, batch=batch)

    def _fit(self, X: Matrix, y: Any, batch: Any = None) -> None:
        X, codes, names, sizes = _batches(X, X.batches if batch is None else batch)
        sums, squares, fractions = _moments(X, codes, len(sizes), self.flavor == "seurat")
        means, variances = _mean_and_variance(sums, squares, sizes)
        allowed = np.ones(X.shape[1], dtype=bool)
        allowed[self._constraints.forbidden] = False
        m = self._count(X.shape[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.flavor in OF_COUNTS:
                if fractions.any():
                    warnings.warn(
                        f"flavor={self.flavor!r} is for counts, and X holds values that are not "
                        "whole: give counts, or flavor='seurat'",
                        stacklevel=2,
                    )
                if self.flavor == PEARSON:
                    norms = residual_variances(X, codes, sizes, sums, self.theta)
                else:
                    norms = self._norms(X, codes, names, sizes, means, variances, allowed)
                self._rank_variances(norms, allowed, m)
                total = _mean_and_variance(
                    sums.sum(axis=1, keepdims=True),
                    squares.sum(axis=1, keepdims=True),
                    sizes.sum(keepdims=True),
                )
                self.columns_ |= {"means": total[0][:, 0], "variances": total[1][:, 0]}
            else:
                self._rank_dispersions(sums, means, variances, allowed, m)
        if len(sizes) == 1:
            self.columns_.pop("highly_variable_nbatches", None)

    def _required_count(self, d: int) -> int:
        if self.mode == "k_best":
            return super()._required_count(d)
        return self._constraints.require(d - len(self._constraints.forbidden), d)

    def _choose(self) -> Self:
        if self.mode == "k_best":
            super()._choose()
        else:
            self._choose_all(
                self._is_between(self.columns_["means"], self.columns_["dispersions_norm"])
            )
        self.columns_ = {"highly_variable": self.support_, **self.columns_}
        return self

    # --- seurat and cell_ranger -------------------------------------------------------------------

    def _rank_dispersions(
        self, sums: FloatArray, means: FloatArray, variances: FloatArray, allowed: BoolArray, m: int
    ) -> None:
        """Set the columns and the scores. The sums, means and variances are d × b."""
        d, b = means.shape
        parts = np.zeros((3, d, b))  # mean, dispersion and normalized dispersion
        chosen = np.zeros((d, b), dtype=bool)
        for k in range(b):
            taken = allowed & (sums[:, k] > 0) if b > 1 else allowed
            parts[:, taken, k] = self._dispersions(means[taken, k], variances[taken, k])
            norms = parts[2, taken, k]
            known = np.sort(norms[~np.isnan(norms)])
            if self.mode == "cutoffs":
                chosen[taken, k] = self._is_between(parts[0, taken, k], norms)
            elif len(known):
                chosen[taken, k] = norms >= known[-min(m, len(known))]
        if b == 1:
            mean, dispersion, norm = parts[:, :, 0]
            norm[~allowed] = np.nan
            self.scores_ = _last_if_unknown(norm)
        else:
            mean, dispersion, norm = (_mean_of_known(part) for part in parts)
            n_batches = chosen.sum(axis=1)
            self.scores_ = _places(-n_batches, -norm)
            norm = np.nan_to_num(norm, posinf=np.inf) if self.mode == "cutoffs" else norm
        self.columns_ = {"means": mean, "dispersions": dispersion, "dispersions_norm": norm}
        if b > 1:
            self.columns_ |= {
                "highly_variable_nbatches": n_batches,
                "highly_variable_intersection": n_batches == b,
            }

    def _is_between(self, mean: FloatArray, norm: FloatArray) -> BoolArray:
        norm = np.nan_to_num(norm)
        inside = (mean > self.min_mean) & (mean < self.max_mean)
        return np.asarray(inside & (norm > self.min_disp) & (norm < self.max_disp))

    def _dispersions(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Return the means, the dispersions and the normalized dispersions of the genes (3 × d)."""
        mean = np.where(mean == 0, TINY, mean)
        dispersion = variance / mean
        if self.flavor == "seurat":
            dispersion = np.log(np.where(dispersion == 0, np.nan, dispersion))
            mean = np.log1p(mean)
            edges = _equal_bins(mean, self.n_bins)
        else:
            edges = np.unique(np.percentile(mean, np.arange(10, 105, 5))) if len(mean) else mean
        bins = np.searchsorted(edges, mean)
        norm = np.full(len(mean), np.nan)
        for number in np.unique(bins):
            inside = bins == number
            known = dispersion[inside & ~np.isnan(dispersion)]
            if not len(known):
                continue
            if self.flavor == "cell_ranger":
                center = np.median(known)
                spread = np.median(np.abs(known - center)) / MAD
            else:  # a gene alone in its bin gets 1
                center = known.mean() if len(known) > 1 else 0.0
                spread = known.std(ddof=1) if len(known) > 1 else known[0]
            norm[inside] = (dispersion[inside] - center) / spread
        return np.array([mean, dispersion, norm])

    # --- flavors of counts ------------------------------------------------------------------------

    def _norms(
        self,
        X: Matrix,
        codes: IntArray,
        names: AnyArray,
        sizes: FloatArray,
        means: FloatArray,
        variances: FloatArray,
        allowed: BoolArray,
    ) -> FloatArray:
        """Return the normalized variances. They, the means and the variances are d × b."""
        d, b = means.shape
        expected = np.ones((d, b))  # σ²
        for k in range(b):
            varies = allowed & (variances[:, k] > 0)
            curve = np.log10(means[varies, k]), np.log10(variances[varies, k])
            try:
                fitted = loess(*curve, self.span)
            except ValueError as error:
                where = f"the batch {names[k]} of {sizes[k]:.0f} samples"
                raise ValueError(f"{where}: {error}, or join it with another batch") from error
            expected[varies, k] = 10**fitted
        clip = np.sqrt(expected * sizes) + means
        sums, squares, _ = _moments(X, codes, b, False, clip)
        norms = (sizes * means**2 + squares - 2 * sums * means) / ((sizes - 1) * expected)
        return np.asarray(norms)

    def _rank_variances(self, norms: FloatArray, allowed: BoolArray, m: int) -> None:
        """Set the columns and the scores by normalized variances (d × b)."""
        d, b = norms.shape
        norms[~allowed] = np.nan
        ranks = np.argsort(np.argsort(-norms, axis=0, kind="stable"), axis=0).astype(float)
        ranks[(ranks >= m) | np.isnan(norms)] = np.nan
        n_batches = np.sum(~np.isnan(ranks), axis=1)
        rank = np.full(d, np.nan)
        ranked = n_batches > 0
        rank[ranked] = np.nanmedian(ranks[ranked], axis=1)
        self.columns_ = {
            "highly_variable_rank": rank,
            "highly_variable_nbatches": n_batches,
            ("residual_variances" if self.flavor == PEARSON else "variances_norm"): norms.mean(1),
        }
        if b == 1:
            self.scores_ = _last_if_unknown(norms[:, 0])
        else:
            keys = (rank, -n_batches) if self.flavor == "seurat_v3" else (-n_batches, rank)
            self.scores_ = _places(*keys)


# --- sums of each gene over the cells of each batch -----------------------------------------------


def _batches(X: Matrix, batch: Any) -> tuple[Matrix, IntArray, AnyArray, FloatArray]:
    """Return the cells of batches of several, and the number of the batch of each.

    The names and the sizes of the batches follow.
    """
    n = X.shape[0]
    if batch is None:
        return X, np.zeros(n, dtype=np.int64), np.array(["of all"]), np.array([float(n)])
    batch = column_or_1d(np.asarray(batch))
    if len(batch) != n:
        raise ValueError(f"X has {n} samples but batch has {len(batch)}: give one per sample")
    if any(value is None or value != value for value in batch.tolist()):
        raise ValueError("batch is missing for some samples: leave these samples out, or name one")
    names, codes, sizes = np.unique(batch, return_inverse=True, return_counts=True)
    if (alone := sizes < 2).any():
        some = ", ".join(map(str, names[alone][:MOST_NAMED]))
        what = f"{alone.sum()} of {len(sizes)} batches, such as {some}, have one sample, which has"
        if alone.all():
            raise ValueError(f"{what} no variance: join them, or give no batch")
        warnings.warn(f"{what} no variance, and take no part: join them with others", stacklevel=3)
        X, batch = X.take_rows(~alone[codes]), batch[~alone[codes]]
        names, codes, sizes = np.unique(batch, return_inverse=True, return_counts=True)
    return X, codes.astype(np.int64), names, sizes.astype(np.float64)


def _moments(
    X: Matrix, codes: IntArray, b: int, exponential: bool, clip: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return Σx and Σx² of each gene over each batch (d × b), and how many x are not whole (d,),
    where x is exp(x) − 1 if `exponential`, and at most `clip` (d × b)."""
    if X.column_tiles:
        parts = X.map(_batch_sums, 1, codes, b, exponential, clip, label="sum genes")
        sums = np.concatenate(parts)
    else:
        sums = X.sum(_batch_sums, 0, b, exponential, clip, split=[codes], label="sum genes")
    if exponential and not (sums <= LARGEST**2).all():  # nor NaN
        raise ValueError(
            "the values of X are too large for exp(x) − 1, as flavor='seurat' takes the logarithms "
            "of normalized counts: scale X to values near 1, as weight='lognorm' does to counts, "
            "or give flavor='seurat_v3'"
        )
    require_magnitude(sums[:, b : 2 * b].sum(axis=1), sums[:, :b].any())
    return sums[:, :b], sums[:, b : 2 * b], sums[:, 2 * b]


def _batch_sums(
    block: Any,
    start: int,
    stop: int,
    codes: IntArray,
    b: int,
    exponential: bool,
    clip: FloatArray | None,
) -> FloatArray:
    """Return the `_moments` of the genes of a tile side by side."""
    limits = clip if clip is None or len(clip) == block.shape[1] else clip[start:stop]
    if not sp.issparse(block):
        parts = [_dense_sums(block[codes == k], exponential, limits, k) for k in range(b)]
        sums, squares, fractions = np.transpose(parts, (1, 2, 0))
        return np.column_stack([sums, squares, fractions.sum(axis=1)])
    entries = block.tocoo()
    _require_not_negative(entries.data)
    values = entries.data.astype(np.float64)
    cells = entries.col.astype(np.int64) * b + codes[entries.row]
    whole = values == np.floor(values)
    if exponential:
        with np.errstate(over="ignore"):
            values = np.expm1(values)
    if limits is not None:
        values = np.minimum(values, limits.ravel()[cells])
    width = block.shape[1]
    with np.errstate(over="ignore"):
        sums, squares = (
            np.bincount(cells, weights, width * b).reshape(width, b)
            for weights in (values, values**2)
        )
    return np.column_stack([sums, squares, np.bincount(entries.col[~whole], minlength=width)])


def _dense_sums(
    rows: AnyArray, exponential: bool, limits: FloatArray | None, k: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    _require_not_negative(rows)
    values = rows.astype(np.float64)
    fractions = (values != np.floor(values)).sum(axis=0)
    with np.errstate(over="ignore"):
        values = np.expm1(values) if exponential else values
        values = values if limits is None else np.minimum(values, limits[:, k])
        return values.sum(axis=0), np.einsum("ij,ij->j", values, values), fractions


def _require_not_negative(values: AnyArray) -> None:
    if values.min(initial=0) < 0:
        raise ValueError(
            "Negative values in data: highly variable genes need counts or their logarithms, not "
            "scaled values"
        )


def _mean_and_variance(
    sums: FloatArray, squares: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the means and the variances, of n − 1 degrees of freedom (d × b)."""
    means = sums / sizes
    variances = unless_rounding(squares / sizes - means**2, squares / sizes)
    return means, variances * sizes / (sizes - 1)


# --- bins and ranks -------------------------------------------------------------------------------


def _equal_bins(values: FloatArray, n_bins: int) -> FloatArray:
    """Return the upper ends of bins of equal width, as `pandas.cut` makes them, but the last."""
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    if low == high:  # pandas widens the range
        margin = 0.001 * abs(low) if low else 0.001
        low, high = low - margin, high + margin
    return np.linspace(low, high, n_bins + 1)[1:-1]


def _mean_of_known(part: FloatArray) -> FloatArray:
    """Return the mean over the batches that are not NaN (d × b → d), NaN if all are."""
    known = ~np.isnan(part)
    return np.asarray(np.where(known, part, 0).sum(axis=1) / known.sum(axis=1))


def _last_if_unknown(scores: FloatArray) -> FloatArray:
    """Return scores with NaN replaced by a number below all others."""
    known = scores[np.isfinite(scores)]
    return np.nan_to_num(scores, nan=known.min(initial=0) - 1, posinf=np.inf, neginf=-np.inf)


def _places(first: AnyArray, second: AnyArray) -> FloatArray:
    """Return how many genes come later in the order of two keys. NaN is last, then the index."""
    order, places = np.lexsort((second, first)), np.empty(len(first))
    places[order] = np.arange(len(first))[::-1]
    return places
