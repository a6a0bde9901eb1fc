"""The steps of a solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigfs.plot.axes import ACCENT, FILL, MUTED, OTHERS, axes_or_new, legend_above
from bigfs.result import STOPS, Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def bounds(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the bounds of the optimum over the steps of a solver.

    Parameters
    ----------
    result : Result, Selector or list of dict
        The result, a fitted selector that holds it, or its history.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    ValueError
        The method has no bounds.

    See Also
    --------
    gap : The number that decides when to stop, of any method that iterates.

    Examples
    --------
    >>> from bigfs import plot
    >>> ax = plot.bounds([{"upper": 3.0, "lower": 1.0}, {"upper": 2.5, "lower": 2.0}])
    >>> ax.lines[0].get_ydata()
    array([3. , 2.5])
    """
    history = _history(result)
    if not history or not {"upper", "lower"} <= set(history[0]):
        raise ValueError("bounds needs a history with upper and lower, as that of SparGE; got none")
    ax = axes_or_new(ax)
    steps = range(1, len(history) + 1)
    upper = np.array([record["upper"] for record in history])
    lower = np.array([record["lower"] for record in history])
    ax.fill_between(steps, lower, upper, color=FILL, label="range of the optimum")
    ax.plot(steps, upper, "o-", color=ACCENT, label="upper bound", lw=2)
    ax.plot(steps, lower, "o-", color=OTHERS[0], label="lower bound", lw=2)
    ax.set(ylabel="objective")
    _label_steps(ax, history)
    legend_above(ax)
    return ax


def gap(result: Any, *, tol: float | None = None, ax: Axes | None = None) -> Axes:
    """Draw the number that decides when a solver stops, on a logarithmic axis unless it is zero.

    Parameters
    ----------
    result : Result, Selector or list of dict
        The result, a fitted selector that holds it, or its history.
    tol : float or None, default=None
        Tolerance to draw as a dashed line.
    ax : matplotlib.axes.Axes or None, default=None
        Where to draw. None makes a figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes. They show the gap, or the violation, error or change of a method without one.

    Raises
    ------
    ValueError
        The method does not iterate.

    See Also
    --------
    bounds : The two bounds behind a gap.

    Examples
    --------
    >>> from bigfs import plot
    >>> ax = plot.gap([{"gap": 0.5}, {"gap": 0.01}], tol=0.01)
    >>> ax.get_ylabel(), ax.get_yscale()
    ('gap', 'log')
    """
    history = _history(result)
    name = next((name for name in STOPS if history and name in history[-1]), None)
    if name is None:
        raise ValueError(f"gap needs a history with one of {', '.join(STOPS)}; got none")
    ax = axes_or_new(ax)
    steps = [step for step, record in enumerate(history, 1) if name in record]
    values = [record[name] for record in history if name in record]
    ax.plot(steps, values, "o-", color=ACCENT, lw=2, label=name)
    # a gap that is zero from the first step on has no place on a logarithmic axis
    ax.set(ylabel=name, yscale="log" if max(values) > 0 else "linear")
    if tol is not None:
        ax.axhline(tol, color=MUTED, ls="--", lw=1.2, label=f"tolerance {tol:g}")
        legend_above(ax)
    _label_steps(ax, history)
    return ax


def _history(result: Any) -> list[Record]:
    """Return the history of a result or of a fitted selector, or the list itself."""
    result = getattr(result, "result_", result)
    return list(getattr(result, "history", result) or [])


def _label_steps(ax: Axes, history: list[Record]) -> None:
    """Name the steps, which are cuts where each adds a set of features, and mark whole ones."""
    from matplotlib.ticker import MaxNLocator

    ax.set(xlabel="cut" if "sets" in history[-1] else "step")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
