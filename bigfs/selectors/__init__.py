"""The methods, one file each, to read top-down: formula, problem, step, estimator."""

from __future__ import annotations

from bigfs.selectors.atoms.gsc import GSC
from bigfs.selectors.atoms.jgsc import JGSC
from bigfs.selectors.atoms.rjgsc import RJGSC
from bigfs.selectors.base.estimator import Selector
from bigfs.selectors.greedy.joint_information import CMIM, JMI
from bigfs.selectors.greedy.mrmr import MRMR, RRPC
from bigfs.selectors.images.smr import SMR
from bigfs.selectors.penalty_path.lasso import L1SVM, MultiTaskLasso
from bigfs.selectors.penalty_path.spectral_regression import MCFS, MRSF
from bigfs.selectors.penalty_path.targets import DLSR, SPFS
from bigfs.selectors.registry import METHODS, Method
from bigfs.selectors.row_sparse.glspfs import GLSPFS
from bigfs.selectors.row_sparse.jelsr import JELSR
from bigfs.selectors.row_sparse.jfs import JFS
from bigfs.selectors.row_sparse.jhlsr import JHLSR
from bigfs.selectors.row_sparse.ndfs import NDFS
from bigfs.selectors.row_sparse.rfs import RFS
from bigfs.selectors.row_sparse.rlsr import RLSR
from bigfs.selectors.row_sparse.srlsr import SRLSR
from bigfs.selectors.row_sparse.udfs import UDFS
from bigfs.selectors.scores.bins import Gini, MutualInformation
from bigfs.selectors.scores.classes import ANOVA, Chi2, Fisher
from bigfs.selectors.scores.few_labels import LSDF, SSelect
from bigfs.selectors.scores.laplacian_score import LaplacianScore
from bigfs.selectors.scores.llfs import LLFS
from bigfs.selectors.scores.relieff import ReliefF
from bigfs.selectors.scores.spec import SPEC
from bigfs.selectors.scores.targets import FRegression, TScore, Variance
from bigfs.selectors.scores.trace_ratio import TraceRatio
from bigfs.selectors.scores.trcfs import TRCFS
from bigfs.selectors.sparge.cross_validation import SparGECV
from bigfs.selectors.sparge.sparge import SparGE
from bigfs.selectors.svm.svm import L2SVM, SVMRFE

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
