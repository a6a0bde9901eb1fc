"""Scaling of a matrix by its training rows: tf-idf or log-normalization of counts, or columns
divided by their spread.

They keep zeros, so a sparse matrix stays sparse, and columns are not centered. The names and the
values equal those of scikit-learn's `TfidfTransformer`, `StandardScaler(with_mean=False)` and
`MaxAbsScaler`, and of scanpy's `normalize_total` and `log1p`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.cards import brief
from bigfs.storage.errors import SourceError
from bigfs.types import AnyArray, FloatArray, IntArray

TFIDF, LOGNORM, STANDARD, MAX = "tfidf", "lognorm", "standard", "max"
AUTO, NONE = "auto", "none"
WEIGHTS, SCALES = (TFIDF, LOGNORM), (AUTO, STANDARD, MAX, NONE)
SETTINGS = ("weight", "scale", "sublinear_tf", "target_sum")
IS_STANDARDIZED = "columns standardized, because their units differ (--scale none keeps them)"
COLUMNS = {TFIDF: "idf", LOGNORM: "target_sum"}  # of var in the store


@dataclass(frozen=True)
class Scaling:
    """How the values of a matrix become the values of its store."""

    __repr__ = brief

    settings: dict[str, Any]
    factors: FloatArray  # (d,): the idf, the same sum for all columns, or the spread

    @property
    def weighs_rows(self) -> bool:
        """Whether counts are weighed by all columns of their row, and not columns scaled."""
        return "weight" in self.settings

    @property
    def column(self) -> str:
        """The column of var that holds the factors in the store."""
        return COLUMNS[self.settings["weight"]] if self.weighs_rows else "scale"

    def apply(self, X: sp.csr_array) -> sp.csr_array:
        """Return rows with the columns of the store in its units."""
        values = X.data.astype(np.float64)
        if not self.weighs_rows:
            values /= self.factors[X.indices]
        elif self.settings["weight"] == LOGNORM:
            totals = row_totals(X)
            totals[totals == 0] = 1  # a row of zeros stays
            values /= np.repeat(totals, np.diff(X.indptr))
            values *= self.factors[X.indices]
            np.log1p(values, out=values)
        else:
            if self.settings["sublinear_tf"]:
                is_count = values > 0
                np.log(values, out=values, where=is_count)
                values += is_count
            values *= self.factors[X.indices]
            unit_rows(X.indptr, values)
        return sp.csr_array((values.astype(np.float32), X.indices, X.indptr), shape=X.shape)

    def of_columns(self, columns: IntArray) -> Scaling:
        """Return the units of some columns. A row that is weighed needs the units of all."""
        return self if self.weighs_rows else Scaling(self.settings, self.factors[columns])

    def pick(self, X: sp.csr_array, columns: IntArray) -> sp.csr_array:
        """Return some columns of rows in the units of the store.

        This scaling is that of these columns, as `of_columns` returns it.
        """
        if self.weighs_rows:
            return self.apply(X)[:, columns]
        return self.apply(sp.csr_array(X[:, columns]))

    def transformer(self) -> Any:
        """Return scikit-learn's fitted transformer to these units."""
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import (
            FunctionTransformer,
            MaxAbsScaler,
            Normalizer,
            StandardScaler,
        )

        if self.settings.get("weight") == TFIDF:
            tfidf = TfidfTransformer(sublinear_tf=self.settings["sublinear_tf"])
            tfidf.idf_ = self.factors
            return tfidf
        scale = 1 / self.factors if self.weighs_rows else self.factors
        if self.settings.get("scale") == STANDARD:
            scaler = StandardScaler(with_mean=False)
            scaler.mean_, scaler.var_ = None, scale**2
        else:
            scaler = MaxAbsScaler()
            scaler.max_abs_ = scale
        scaler.scale_, scaler.n_features_in_ = scale, len(scale)
        if not self.weighs_rows:
            return scaler
        log1p = FunctionTransformer(np.log1p, accept_sparse=True)
        return Pipeline([("total", Normalizer("l1")), ("target_sum", scaler), ("log1p", log1p)])


def row_totals(X: sp.csr_array) -> FloatArray:
    """Return the sum of each row of counts."""
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.bincount(rows, weights=X.data, minlength=X.shape[0]).astype(np.float64)


def unit_rows(indptr: AnyArray, values: FloatArray) -> None:
    """Divide the values of each row by its norm, with the bits of scikit-learn's `normalize`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    norms = np.sqrt(np.bincount(row, weights=values * values, minlength=len(indptr) - 1))
    norms[norms == 0] = 1  # a row of zeros stays
    values /= norms[row]


def require_counts(X: sp.csr_array, place: str, weight: str) -> None:
    """Refuse negative values, which are no counts."""
    if X.nnz and X.data.min() < 0:
        raise SourceError(
            f"{place} holds the value {X.data.min():g}, and weight={weight!r} is for counts: leave "
            f"it out, or give scale="
        )


def scaling_of(corpus: Any) -> Scaling | None:
    """Return the units of a store, or None if it holds the values of its source, or text."""
    if not hasattr(corpus, "manifest"):
        return getattr(corpus, "units", None)  # of a store of anndata's
    settings = corpus.manifest.settings
    if "min_df" in settings or not {"weight", "scale"} & set(settings):
        return None
    kept = {name: settings[name] for name in SETTINGS if name in settings}
    return Scaling(kept, corpus.store.read(f"var/{Scaling(kept, np.empty(0)).column}"))
