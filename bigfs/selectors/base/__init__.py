"""What all selectors are made of: the estimator, its input and labels, shared parameters."""

from bigfs.selectors.base.estimator import (
    UNLABELED,
    Cost,
    Labels,
    Selector,
    labels_of,
)

__all__ = ["UNLABELED", "Cost", "Labels", "Selector", "labels_of"]
