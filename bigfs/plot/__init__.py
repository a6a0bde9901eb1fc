"""Pictures of results, drawn into matplotlib axes.

Each function takes axes, or makes a figure where it gets none, and returns the axes. The reports of
`bigfs run` and `bigfs compare` are drawn by the same functions. Matplotlib is imported when the
first picture is drawn.
"""

from bigfs.plot.curves import accuracy_curve, comparison, size_choice
from bigfs.plot.features import alternatives, scores_image, stability
from bigfs.plot.solvers import bounds, gap

__all__ = [
    "accuracy_curve",
    "alternatives",
    "bounds",
    "comparison",
    "gap",
    "scores_image",
    "size_choice",
    "stability",
]
