"""P-values of scores of one feature at a time, and choices by them.

    k_best       the m best scores
    percentile   scores above the (100 − param) % percentile
    fpr          p_j < param
    fwe          p_j < param / d                                       (Bonferroni)
    fdr          p_j ≤ p_(k),  k = max { i : p_(i) ≤ param · i / d }   (Benjamini and Hochberg)

p_(1) ≤ p_(2) ≤ … are the p-values in order. These are the modes of scikit-learn's
`GenericUnivariateSelect`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import fdtrc

from bigfs.selectors.base.estimator import Selector
from bigfs.selectors.base.parameters import NOT_NEGATIVE, Allowed
from bigfs.types import BoolArray, FloatArray

DEFAULTS = {"percentile": 10.0, "fpr": 0.05, "fdr": 0.05, "fwe": 0.05}


class SignificanceSelector(Selector):
    """Chooses by the m best scores, or by the `pvalues_`, which a subclass makes in `_p_values`."""

    mode: Literal["k_best", "percentile", "fpr", "fdr", "fwe"] = "k_best"
    param: float | None = None

    _parameter_constraints: ClassVar[Allowed] = {"param": NOT_NEGATIVE}

    pvalues_: FloatArray = field(init=False)
    _label_p_values: Any = field(init=False, default=None)  # of several labels per sample

    @abstractmethod
    def _p_values(self) -> FloatArray:
        """Return the p-value of each feature, from the scores."""

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.mode == "k_best" and self.param is not None:
            raise ValueError(
                f"param={self.param} belongs to another mode: k_best takes n_features_to_select"
            )
        if self.mode != "k_best" and self.n_features_to_select is not None:
            raise ValueError(
                f"mode={self.mode!r} chooses the number of features by itself: leave out "
                f"n_features_to_select={self.n_features_to_select}"
            )
        largest = 100 if self.mode == "percentile" else 1
        if self.param is not None and self.param > largest:
            raise ValueError(f"param must be at most {largest} for {self.mode}; got {self.param}")

    def _required_count(self, d: int) -> int:
        if self.mode == "k_best":
            return super()._required_count(d)
        return self._constraints.require(d - len(self._constraints.forbidden), d)

    def _choose(self) -> Self:
        of_labels = self._label_p_values
        self.pvalues_ = self._p_values() if of_labels is None else of_labels
        if self.mode == "k_best":
            return super()._choose()
        if self.mode != "percentile" and np.isnan(self.pvalues_).all():
            raise ValueError(
                f"mode={self.mode!r} needs p-values, and those need more samples than classes: "
                "give more samples, or use mode='k_best'"
            )
        if self.mode == "percentile":
            self._rank_uninformed_last()
        value = DEFAULTS[self.mode] if self.param is None else float(self.param)
        tested = np.delete(np.arange(len(self.scores_)), self._constraints.forbidden)
        chosen = np.zeros(len(self.scores_), dtype=bool)
        if self.mode == "percentile":
            chosen[tested] = above_percentile(self.scores_[tested], value)
        else:
            chosen[tested] = significant(self.pvalues_[tested], self.mode, value)
        return self._choose_all(chosen)


def significant(p: FloatArray, mode: str, level: float) -> BoolArray:
    """Return the mask of the features that a level of "fpr", "fwe" or "fdr" accepts."""
    if mode == "fpr":
        return p < level
    if mode == "fwe":
        return p < level / len(p)
    ordered = np.sort(p)
    accepted = ordered[ordered <= level / len(p) * np.arange(1, len(p) + 1)]
    return p <= accepted[-1] if len(accepted) else np.zeros(len(p), dtype=bool)


def above_percentile(scores: FloatArray, percentile: float) -> BoolArray:
    """Return the mask of the best percents of the scores. Equal ones are taken by their index."""
    if percentile == 100:
        return np.ones(len(scores), dtype=bool)
    # infinite scores are the largest numbers, as an interpolation between them would be NaN
    finite = np.nan_to_num(scores, posinf=np.finfo(scores.dtype).max)
    threshold = np.percentile(finite, 100 - percentile)
    mask = finite > threshold
    ties = np.flatnonzero(finite == threshold)
    mask[ties[: max(int(len(scores) * percentile / 100) - int(mask.sum()), 0)]] = True
    return np.asarray(mask, dtype=bool)


def f_p_values(between: float, within: float, F: FloatArray) -> FloatArray:
    """Return the p-values of F statistics, NaN if no degree of freedom is left within."""
    return np.asarray(fdtrc(between, within, F) if within > 0 else np.full(len(F), np.nan))
