"""The parts of all selectors: the estimator, its input and labels, shared parameters."""

from bigfs.selectors.base.estimator import Cost, Selector
from bigfs.selectors.base.labels import UNLABELED, Labels, labels_of

__all__ = ["UNLABELED", "Cost", "Labels", "Selector", "labels_of"]
