"""Scaling of a matrix: tf-idf of counts, or columns divided by their spread, by its training rows.

They keep zeros, so a sparse matrix stays sparse, and columns are not centered. The names and the
values are those of scikit-learn's `TfidfTransformer`, `StandardScaler(with_mean=False)` and
`MaxAbsScaler`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray, FloatArray, IntArray
from storage.errors import SourceError

TFIDF, STANDARD, MAX = "tfidf", "standard", "max"
SCALES = (STANDARD, MAX)
SETTINGS = ("weight", "scale", "sublinear_tf")


@dataclass(frozen=True)
class Scaling:
    """How the values of a matrix become those of its store."""

    settings: dict[str, Any]
    factors: FloatArray

    @property
    def is_tfidf(self) -> bool:
        """Whether rows are weighed, and not columns scaled."""
        return "weight" in self.settings

    def apply(self, X: sp.csr_array) -> sp.csr_array:
        """Return rows with the columns of the store in its units."""
        values = X.data.astype(np.float64)
        if not self.is_tfidf:
            values /= self.factors[X.indices]
        else:
            if self.settings["sublinear_tf"]:
                np.log(values, out=values, where=values > 0)
                values[X.data > 0] += 1
            values *= self.factors[X.indices]
            unit_rows(X.indptr, values)
        return sp.csr_array((values.astype(np.float32), X.indices, X.indptr), shape=X.shape)

    def pick(self, X: sp.csr_array, index: IntArray, columns: IntArray) -> sp.csr_array:
        """Return the chosen columns of rows of a source in the units of the store."""
        if self.is_tfidf:
            return self.apply(X)[:, index]
        return Scaling(self.settings, self.factors[columns]).apply(sp.csr_array(X[:, index]))

    def transformer(self) -> Any:
        """Return scikit-learn's fitted transformer to these units."""
        from sklearn.feature_extraction.text import TfidfTransformer
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler

        if self.is_tfidf:
            tfidf = TfidfTransformer(sublinear_tf=self.settings["sublinear_tf"])
            tfidf.idf_ = self.factors
            return tfidf
        if self.settings["scale"] == MAX:
            scaler = MaxAbsScaler()
            scaler.max_abs_ = self.factors
        else:
            scaler = StandardScaler(with_mean=False)
            scaler.mean_, scaler.var_ = None, self.factors**2
        scaler.scale_, scaler.n_features_in_ = self.factors, len(self.factors)
        return scaler


def unit_rows(indptr: AnyArray, values: FloatArray) -> None:
    """Divide the values of each row by its norm, with the bits of scikit-learn's `normalize`."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    norms = np.sqrt(np.bincount(row, weights=values * values, minlength=len(indptr) - 1))
    norms[norms == 0] = 1  # a row of zeros stays
    values /= norms[row]


def require_counts(X: sp.csr_array, place: str) -> None:
    """Refuse negative values, which are no counts."""
    if X.nnz and X.data.min() < 0:
        raise SourceError(
            f"{place} holds the value {X.data.min():g}, and weight='tfidf' is for counts: leave it "
            f"out, or give scale="
        )


def scaling_of(corpus: Any) -> Scaling | None:
    """Return the units of a store, or None if it holds the values of its source, or text."""
    manifest = getattr(corpus, "manifest", None)
    settings = {} if manifest is None else manifest.settings
    if "min_df" in settings or not {"weight", "scale"} & set(settings):
        return None
    kept = {name: settings[name] for name in SETTINGS if name in settings}
    return Scaling(kept, corpus.store.read("var/idf" if "weight" in kept else "var/scale"))
