"""One file a method, read top-down: formula → problem → step → estimator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bigfs.selectors._base import Selector
from bigfs.selectors.jgsc import JGSC, RJGSC
from bigfs.selectors.jhlsr import JHLSR
from bigfs.selectors.smr import SMR
from bigfs.selectors.sparge import SparGE
from bigfs.selectors.srlsr import RLSR, SRLSR
from bigfs.selectors.univariate import ANOVA, Chi2, Fisher


class Method(NamedTuple):
    """What the command line knows of a method."""

    make: Callable[..., Selector]
    about: str


METHODS: dict[str, Method] = {
    "sparge-lda": Method(partial(SparGE, embedding="lda"), "sparse graph embedding on the classes"),
    "sparge-sda": Method(partial(SparGE, embedding="sda"), "sparse graph embedding on the classes and the kNN graph, for few labels"),
    "sparge-cca": Method(partial(SparGE, embedding="cca"), "sparse graph embedding on real or multi-label targets"),
    "sparge-hsl": Method(partial(SparGE, embedding="hsl"), "sparse graph embedding on the hypergraph of the labels"),
    "sparge-pca": Method(partial(SparGE, embedding="pca"), "sparse graph embedding on the variance, unsupervised"),
    "sparge-lpp": Method(partial(SparGE, embedding="lpp"), "sparse graph embedding on the kNN graph, unsupervised"),
    "srlsr": Method(SRLSR, "rescaled least squares, semi-supervised: −1 is unlabelled"),
    "rlsr": Method(RLSR, "rescaled least squares at p = 1, convex, with a duality gap"),
    "jhlsr": Method(JHLSR, "hypergraph and sparse regression learned jointly; all, some or no labels"),
    "smr": Method(SMR, "sparse matrix regression on M × N samples; k = 1 is GBR"),
    "fisher": Method(Fisher, "Fisher score, one feature at a time"),
    "anova": Method(ANOVA, "ANOVA F, one feature at a time; ranks as fisher does"),
    "chi2": Method(Chi2, "χ² of non-negative features, one feature at a time"),
}

__all__ = ["ANOVA", "JGSC", "JHLSR", "METHODS", "RJGSC", "RLSR", "SMR", "SRLSR", "Chi2", "Fisher", "Method", "Selector", "SparGE"]
