"""Feature selection for data that does not fit in memory."""

from bigfs.blocks import cluster
from bigfs.matrix import Matrix
from bigfs.selectors import ANOVA, JGSC, RJGSC, SMR, Chi2, Fisher, SparGE

__all__ = ["ANOVA", "JGSC", "RJGSC", "SMR", "Chi2", "Fisher", "Matrix", "SparGE", "cluster"]
