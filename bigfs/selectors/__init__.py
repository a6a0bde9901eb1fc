"""The methods, a package for each family. A name is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigfs.selectors.registry import METHODS as METHODS
from bigfs.selectors.registry import MODULES, load
from bigfs.selectors.registry import Method as Method

NAMES = ["METHODS", "Method", "Selector", *MODULES]

if TYPE_CHECKING:  # the names of the registry, for type checkers and editors
    from bigfs.selectors.atoms.jgsc import GSC as GSC
    from bigfs.selectors.atoms.jgsc import JGSC as JGSC
    from bigfs.selectors.atoms.jgsc import RJGSC as RJGSC
    from bigfs.selectors.auto import AutoSelector as AutoSelector
    from bigfs.selectors.base.estimator import Selector as Selector
    from bigfs.selectors.greedy.criteria import CMIM as CMIM
    from bigfs.selectors.greedy.criteria import JMI as JMI
    from bigfs.selectors.greedy.criteria import MRMR as MRMR
    from bigfs.selectors.greedy.criteria import RRPC as RRPC
    from bigfs.selectors.images.smr import SMR as SMR
    from bigfs.selectors.penalty_path.sparse_regression import DLSR as DLSR
    from bigfs.selectors.penalty_path.sparse_regression import L1SVM as L1SVM
    from bigfs.selectors.penalty_path.sparse_regression import MCFS as MCFS
    from bigfs.selectors.penalty_path.sparse_regression import MRSF as MRSF
    from bigfs.selectors.penalty_path.sparse_regression import SPFS as SPFS
    from bigfs.selectors.penalty_path.sparse_regression import MultiTaskLasso as MultiTaskLasso
    from bigfs.selectors.row_sparse.glspfs import GLSPFS as GLSPFS
    from bigfs.selectors.row_sparse.jhlsr import JHLSR as JHLSR
    from bigfs.selectors.row_sparse.joint_embedding import JELSR as JELSR
    from bigfs.selectors.row_sparse.joint_embedding import NDFS as NDFS
    from bigfs.selectors.row_sparse.rfs import JFS as JFS
    from bigfs.selectors.row_sparse.rfs import RFS as RFS
    from bigfs.selectors.row_sparse.srlsr import RLSR as RLSR
    from bigfs.selectors.row_sparse.srlsr import SRLSR as SRLSR
    from bigfs.selectors.row_sparse.udfs import UDFS as UDFS
    from bigfs.selectors.scores.bins import Gini as Gini
    from bigfs.selectors.scores.bins import MutualInformation as MutualInformation
    from bigfs.selectors.scores.classes import ANOVA as ANOVA
    from bigfs.selectors.scores.classes import Chi2 as Chi2
    from bigfs.selectors.scores.classes import Fisher as Fisher
    from bigfs.selectors.scores.classes import TScore as TScore
    from bigfs.selectors.scores.few_labels import LSDF as LSDF
    from bigfs.selectors.scores.few_labels import SSelect as SSelect
    from bigfs.selectors.scores.graph import SPEC as SPEC
    from bigfs.selectors.scores.graph import LaplacianScore as LaplacianScore
    from bigfs.selectors.scores.highly_variable import HighlyVariable as HighlyVariable
    from bigfs.selectors.scores.llfs import LLFS as LLFS
    from bigfs.selectors.scores.rank_sum import RankSum as RankSum
    from bigfs.selectors.scores.relieff import ReliefF as ReliefF
    from bigfs.selectors.scores.targets import FRegression as FRegression
    from bigfs.selectors.scores.targets import Variance as Variance
    from bigfs.selectors.scores.trace_ratio import TRCFS as TRCFS
    from bigfs.selectors.scores.trace_ratio import TraceRatio as TraceRatio
    from bigfs.selectors.sparge.cross_validation import SparGECV as SparGECV
    from bigfs.selectors.sparge.sparge import SparGE as SparGE
    from bigfs.selectors.svm.elimination import SVMRFE as SVMRFE
    from bigfs.selectors.svm.l2svm import L2SVM as L2SVM
else:
    __all__ = NAMES


def __getattr__(name: str) -> Any:
    if name == "Selector":
        return load("base.estimator", name)
    if name not in MODULES:
        raise AttributeError(f"module 'bigfs.selectors' has no attribute {name!r}")
    return load(MODULES[name], name)


def __dir__() -> list[str]:
    return sorted(NAMES)
