"""Stability: how often each feature is chosen from random subsamples.

    p_j = share of the M subsamples whose m_s chosen features hold j
    Φ   = 1 − mean_j [ M/(M−1) · p_j (1 − p_j) ] / [ k̄/d · (1 − k̄/d) ],      k̄ = mean of m_s

p is the selection probability of Meinshausen and Bühlmann (2010), and Φ the stability of Nogueira,
Sechidis and Brown (2018, Definition 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, validate_params

from bigfs import engine
from bigfs.cards import brief
from bigfs.evaluation.significance import stability_index
from bigfs.evaluation.splits import draw_subsamples
from bigfs.result import scope
from bigfs.selectors.base.chooser import Target
from bigfs.selectors.base.estimator import Selector, require_no_graph
from bigfs.selectors.base.labels import Labels
from bigfs.types import FloatArray


@dataclass(frozen=True)
class Stability:
    """How often each feature was chosen."""

    __repr__ = brief

    frequencies: FloatArray  # (d,)
    index: float  # Φ: 1 for the same choice each time, 0 in the mean for a random one
    n_subsamples: int


@validate_params(
    {
        "selector": [Selector],
        "n_subsamples": [Interval(Integral, 2, None, closed="left")],
        "train_size": [Interval(Real, 0, 1, closed="neither")],
        "random_state": [Interval(Integral, 0, None, closed="left")],
    },
    prefer_skip_nested_validation=False,
)
@engine.session()
def stability(
    selector: Selector,
    X: Any,
    y: Any = None,
    *,
    n_subsamples: int = 50,
    train_size: float = 0.5,
    random_state: int = 0,
) -> Stability:
    """Count how often each feature is chosen from random subsamples.

    Parameters
    ----------
    selector : Selector
        The selector. It is not fitted itself.
    X : array-like, sparse matrix, Dask array or Matrix of shape (n_samples, n_features)
        Samples, as in its `fit`.
    y : array-like of shape (n_samples,) or (n_samples, n_targets), default=None
        Labels or targets, as in its `fit`.
    n_subsamples : int, default=50
        Number of subsamples.
    train_size : float, default=0.5
        Share of the samples in each, drawn without replacement. Each class gives its share, and one
        sample at least.
    random_state : int, default=0
        Seed of the draws.

    Returns
    -------
    Stability
        The `frequencies` of the d features, between 0 and 1, and the `index` Φ of [2]_: 1 where the
        choice is always the same, 0 in the mean where it is random. It is 1 where every feature or
        none is chosen each time.

    Raises
    ------
    ValueError
        As in the `fit` of the selector.

    References
    ----------
    .. [1] N. Meinshausen and P. Bühlmann, "Stability selection", Journal of the Royal Statistical
       Society B 72, 2010.
    .. [2] S. Nogueira, K. Sechidis and G. Brown, "On the stability of feature selection
       algorithms", Journal of Machine Learning Research 18, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import ANOVA, stability
    >>> X, y = load_iris(return_X_y=True)
    >>> found = stability(ANOVA(n_features_to_select=2), X, y, n_subsamples=10)
    >>> found.frequencies
    array([0., 0., 1., 1.])
    >>> found.index
    1.0
    """
    require_no_graph(selector, "stability")
    template = clone(selector)
    matrix, y = template._as_matrix(X, y)
    counts, chosen = np.zeros(matrix.shape[1]), []
    groups = y.codes if isinstance(y, Labels) else np.zeros(matrix.shape[0], dtype=np.int64)
    draws = draw_subsamples(groups, n_subsamples, train_size, random_state)
    for number, rows in enumerate(draws, 1):
        with scope(f"subsample {number}"):
            part = Target(y).take(rows).fit(clone(selector), matrix[rows])
        counts[part.selected_] += 1
        chosen.append(len(part.selected_))
        engine.show_progress("subsamples", number, n_subsamples)
    frequencies = counts / n_subsamples
    index = stability_index(frequencies, float(np.mean(chosen)), n_subsamples)
    return Stability(frequencies, index, n_subsamples)
