"""The chosen features: their stability, what may stand for them, and their place in an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigfs.plot.axes import ACCENT, axes_or_new
from bigfs.selectors.sparge.audit import Alternatives
from bigfs.selectors.stability import Stability
from bigfs.types import AnyArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def stability(
    found: Stability,
    *,
    feature_names: Sequence[str] | None = None,
    n_features: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw how often the features are chosen from subsamples, most often first.

    Parameters
    ----------
    found : Stability
        What `bigfs.stability` returns.
    feature_names : sequence of str or None, default=None
        Names of all features. None writes x0, x1, ….
    n_features : int, default=20
        Number of features to draw, as far as they were chosen at all.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes: a bar per feature, with the index of stability above.

    See Also
    --------
    bigfs.stability : Counts how often each feature is chosen.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import ANOVA, plot, stability
    >>> X, y = load_iris(return_X_y=True)
    >>> ax = plot.stability(stability(ANOVA(n_features_to_select=2), X, y, n_subsamples=10))
    >>> [label.get_text() for label in ax.get_yticklabels()], ax.get_title()
    (['x2', 'x3'], 'stability 1.000')
    """
    ax = axes_or_new(ax)
    order = np.argsort(-found.frequencies, kind="stable")[:n_features]
    order = order[found.frequencies[order] > 0]
    names = [f"x{j}" if feature_names is None else str(feature_names[j]) for j in order]
    ax.barh(range(len(order)), found.frequencies[order], color=ACCENT)
    ax.set_yticks(range(len(order)), names)
    ax.invert_yaxis()
    ax.set(
        xlim=(0, 1),
        xlabel=f"share of {found.n_subsamples} subsamples",
        title=f"stability {found.index:.3f}",
    )
    ax.grid(visible=False, axis="y")
    return ax


def alternatives(
    found: Alternatives,
    *,
    feature_names: Sequence[str] | None = None,
    n_features: int = 40,
    n_lists: int = 60,
    ax: Axes | None = None,
) -> Axes:
    """Draw which features the lists nearly as good as the best hold.

    Parameters
    ----------
    found : Alternatives
        What `bigfs.audit` finds with `alternatives`, for one number of features.
    feature_names : sequence of str or None, default=None
        Names of all features. None writes x0, x1, ….
    n_features : int, default=40
        Number of features to draw, those of most lists.
    n_lists : int, default=60
        Number of lists to draw.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes: a row per feature, those of most lists first, and a column per list, best first.

    See Also
    --------
    bigfs.audit : Finds the lists.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bigfs import audit, plot
    >>> X, y = load_iris(return_X_y=True)
    >>> found = audit(X, y, {"mine": [2, 3]}, alternatives=0.05).alternatives[2]
    >>> ax = plot.alternatives(found)
    >>> ax.get_title()
    '2 lists are as good; 1 of 2 features are in all of these'
    """
    from matplotlib.colors import ListedColormap

    ax = axes_or_new(ax)
    features, counts = np.unique(found.lists, return_counts=True)
    order = features[np.argsort(-counts, kind="stable")][:n_features]
    names = [f"x{j}" if feature_names is None else str(feature_names[j]) for j in order]
    held = (order[:, None, None] == found.lists[:n_lists]).any(axis=2)
    ax.imshow(np.ma.masked_equal(held, False), cmap=ListedColormap([ACCENT]), aspect="auto")
    ax.set_yticks(range(len(order)), names)
    ax.set(xlabel="lists, best first", xticks=[], title=str(found))
    ax.grid(visible=False)
    return ax


def scores_image(
    values: AnyArray,
    sample_shape: tuple[int, int],
    *,
    selected: AnyArray | None = None,
    order: str = "C",
    cmap: str = "magma",
    ax: Axes | None = None,
) -> Axes:
    """Draw scores or means of pixels as an image, with the selected pixels on it.

    Parameters
    ----------
    values : array-like of shape (n_features,)
        A number per pixel. Those that are not finite stay blank.
    sample_shape : tuple of (int, int)
        Rows and columns of an image.
    selected : array-like of int or None, default=None
        Indices of the pixels to mark.
    order : str, default="C"
        Order of the pixels: "C" by rows, "F" by columns, as in stores and in MATLAB.
    cmap : str, default="magma"
        Name of a color map of matplotlib.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    See Also
    --------
    bigfs.SMR : Scores the pixels of images.

    Examples
    --------
    >>> from bigfs import plot
    >>> ax = plot.scores_image([0.0, 1.0, 2.0, 3.0], (2, 2), selected=[3])
    >>> ax.images[0].get_array().tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    layout: Any = order
    ax = axes_or_new(ax)
    image = np.reshape(np.asarray(values, dtype=np.float64), sample_shape, order=layout)
    ax.imshow(np.ma.masked_invalid(image), cmap=cmap)
    if selected is not None:
        mask = np.zeros(image.size)
        mask[selected] = 1
        marks = np.ma.masked_equal(np.reshape(mask, sample_shape, order=layout), 0)
        ax.imshow(marks, cmap="autumn", alpha=0.55)
    ax.set_axis_off()
    return ax
