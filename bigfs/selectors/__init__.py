"""The methods, one file each, to read top-down: formula, problem, step, estimator."""

from __future__ import annotations

from bigfs.selectors.base import Selector
from bigfs.selectors.contingency import Gini, MutualInformation
from bigfs.selectors.glspfs import GLSPFS
from bigfs.selectors.gsc import GSC
from bigfs.selectors.jelsr import JELSR
from bigfs.selectors.jfs import JFS
from bigfs.selectors.jgsc import JGSC
from bigfs.selectors.jhlsr import JHLSR
from bigfs.selectors.joint_information import CMIM, JMI
from bigfs.selectors.laplacian_score import LaplacianScore
from bigfs.selectors.lasso import L1SVM, MultiTaskLasso
from bigfs.selectors.llfs import LLFS
from bigfs.selectors.moments import FRegression, TScore, Variance
from bigfs.selectors.mrmr import MRMR, RRPC
from bigfs.selectors.ndfs import NDFS
from bigfs.selectors.registry import METHODS, Method
from bigfs.selectors.relieff import ReliefF
from bigfs.selectors.rfs import RFS
from bigfs.selectors.rjgsc import RJGSC
from bigfs.selectors.rlsr import RLSR
from bigfs.selectors.row_sparse import DLSR, SPFS
from bigfs.selectors.semi_supervised_scores import LSDF, SSelect
from bigfs.selectors.smr import SMR
from bigfs.selectors.sparge import SparGE
from bigfs.selectors.sparge_cv import SparGECV
from bigfs.selectors.spec import SPEC
from bigfs.selectors.spectral_regression import MCFS, MRSF
from bigfs.selectors.srlsr import SRLSR
from bigfs.selectors.svm import L2SVM, SVMRFE
from bigfs.selectors.trace_ratio import TraceRatio
from bigfs.selectors.trcfs import TRCFS
from bigfs.selectors.udfs import UDFS
from bigfs.selectors.univariate import ANOVA, Chi2, Fisher

__all__ = [
    "ANOVA",
    "CMIM",
    "DLSR",
    "GLSPFS",
    "GSC",
    "JELSR",
    "JFS",
    "JGSC",
    "JHLSR",
    "JMI",
    "L1SVM",
    "L2SVM",
    "LLFS",
    "LSDF",
    "MCFS",
    "METHODS",
    "MRMR",
    "MRSF",
    "NDFS",
    "RFS",
    "RJGSC",
    "RLSR",
    "RRPC",
    "SMR",
    "SPEC",
    "SPFS",
    "SRLSR",
    "SVMRFE",
    "TRCFS",
    "UDFS",
    "Chi2",
    "FRegression",
    "Fisher",
    "Gini",
    "LaplacianScore",
    "Method",
    "MultiTaskLasso",
    "MutualInformation",
    "ReliefF",
    "SSelect",
    "Selector",
    "SparGE",
    "SparGECV",
    "TScore",
    "TraceRatio",
    "Variance",
]
