"""The colors of the pictures, and what several of them share: the axes, sizes, steps, legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bigfs.advice import install_command

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID, ACCENT, FILL = "#1f2933", "#616e7c", "#e4e7eb", "#0b6e4f", "#cfe8de"
OTHERS = ("#c8553d", "#b7791f", "#5b6c9e", "#8a63d2", "#6b7f82")
LOG_SPAN = 6  # sizes that differ by this factor are drawn on a logarithmic axis
CROWDED = 5  # sizes, beyond which their labels are small on a narrow picture
NARROW = 6  # inches below which thousands are written as 1k


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or the axes of a new figure of pyplot."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot  # takes half a second, and most programs draw nothing
    except ImportError as error:
        raise ImportError(
            f"pictures need matplotlib, which is not installed: {install_command('flows')}"
        ) from error
    _, new = pyplot.subplots(layout="constrained")
    return new


def legend_above(ax: Axes) -> None:
    """Put the legend above the axes, where it hides no line."""
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
        handlelength=1.6,
        columnspacing=1.4,
        frameon=False,
    )


def count_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Mark numbers of features on the x-axis, on a logarithmic scale where they differ much."""
    from matplotlib.ticker import NullLocator

    if sizes[-1] >= LOG_SPAN * sizes[0]:
        ax.set_xscale("log")
    figure = ax.figure
    narrow = figure is not None and figure.bbox.width / figure.dpi < NARROW
    ax.set_xticks(sizes, [short_count(m) if narrow else f"{m:,}" for m in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    if narrow and len(sizes) > CROWDED:
        ax.tick_params(axis="x", labelsize="small")
    ax.set(xlabel="number of features")


def short_count(m: int) -> str:
    """Return a number with its thousands as k."""
    return f"{m / 1000:g}k" if m >= 1000 and m % 100 == 0 else f"{m}"
