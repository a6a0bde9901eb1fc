"""The report of a comparison: one self-contained HTML file with a picture of all curves."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from bigfs.result import ALL
from bigfs.types import FloatArray
from flows.report import (
    ACCENT,
    COLOR_NAMES,
    MUTED,
    OTHERS,
    STYLE,
    readable_bytes,
    readable_seconds,
)
from flows.standings import cost_rows, explanation, failure_lines, score_rows
from flows.summary import METRIC_NAMES

NAMED = 1 + len(OTHERS)  # methods with a color of their own; the others are gray
LABEL_GAP = 0.052  # least distance of two labels, as a share of the height
LOG_SPAN = 6  # sizes that differ by this factor are drawn on a logarithmic axis
# width, height (in inches) and share of the width for the labels
DESKTOP, PHONE = (9.6, 5.2, 0.25), (4.6, 5.6, 0.38)
NARROW = 6  # inches below which thousands are written as 1k


def write_comparison(file: Path, comparison: dict[str, Any]) -> None:
    """Write the report of a comparison.

    Parameters
    ----------
    file : Path
        The HTML file.
    comparison : dict
        The content of compare.json.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": readable_bytes, "seconds": readable_seconds}
    finished = [row for row in comparison["rows"] if not row["error"]]
    page = environment.get_template("comparison.html.j2").render(
        about=comparison,
        facts=comparison["corpus"],
        metric=METRIC_NAMES[comparison["metrics"][0]],
        best=finished[0] if finished else None,
        best_point=finished[0]["points"][-1][comparison["metrics"][0]] if finished else None,
        finished=finished,
        scores=score_rows(comparison),
        costs=cost_rows(comparison),
        failures=failure_lines(comparison),
        explanation=explanation(comparison),
        desktop=picture(comparison, DESKTOP) if finished else None,
        phone=picture(comparison, PHONE) if finished else None,
    )
    file.write_text(page, encoding="utf-8")


def picture(comparison: dict[str, Any], layout: tuple[float, float, float] = DESKTOP) -> str:
    """Return the curves of all methods as an SVG, each with its name at its end.

    Parameters
    ----------
    comparison : dict
        The content of compare.json.
    layout : tuple of float, default=DESKTOP
        Width and height in inches, and the share of the width that the names take.

    Returns
    -------
    str
        The SVG. Its colors are those of the page around it.
    """
    width, height, share = layout
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        figure.subplots_adjust(left=0.75 / width, right=1 - share, top=0.97, bottom=0.62 / height)
        _draw(figure.subplots(), comparison)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue().split("?>", 1)[1].split(">", 1)[1]  # without the XML and DOCTYPE lines
    for color, name in COLOR_NAMES.items():
        svg = svg.replace(f": {color}", f": var(--{name}, {color})")
    return svg


def _draw(axes: Any, comparison: dict[str, Any]) -> None:
    metric, sizes = comparison["metrics"][0], comparison["sizes"]
    rows = [row for row in comparison["rows"] if not row["error"]]
    colors = [ACCENT, *OTHERS]
    ends: list[tuple[float, str, str, str]] = []
    for place, row in enumerate(rows):
        values = [point[metric] for point in row["points"]]
        color = colors[place] if place < NAMED else MUTED
        first = place == 0
        axes.plot(
            sizes,
            values,
            "o-",
            color=color,
            lw=2.8 if first else 1.7 if place < NAMED else 1.0,
            ms=6 if first else 4 if place < NAMED else 3,
            zorder=10 - min(place, 8),
        )
        ends.append((values[-1], row["method"], color, "bold" if first else "normal"))
    everything = comparison[ALL]
    if everything:
        axes.axhline(everything[metric], color=MUTED, ls="--", lw=1.2, zorder=1)
        name = f"all {everything['n_features']:,} features"
        ends.append((everything[metric], name, MUTED, "normal"))
    if sizes[-1] >= LOG_SPAN * sizes[0]:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    narrow = axes.figure.get_figwidth() < NARROW
    axes.set_xticks(sizes, [_short(m) if narrow else f"{m:,}" for m in sizes])
    axes.tick_params(axis="x", labelsize=9 if narrow else 11)
    axes.set(xlabel="number of features", ylabel=METRIC_NAMES[metric])
    axes.margins(x=0.03, y=0.06)
    _label_ends(axes, ends)


def _short(m: int) -> str:
    return f"{m / 1000:g}k" if m >= 1000 and m % 100 == 0 else f"{m}"


def _label_ends(axes: Any, ends: Sequence[tuple[float, str, str, str]]) -> None:
    """Write the name of each curve beside its end, with a thin line where it had to move."""
    low, high = axes.get_ylim()
    at = np.array([(value - low) / (high - low) for value, *_ in ends])
    gap = min(LABEL_GAP, 1 / max(len(at) - 1, 1))
    for y, place, (_, name, color, weight) in zip(at, spread(at, gap), ends, strict=True):
        axes.annotate(
            name,
            xy=(1.0, y),
            xytext=(1.045, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            color=color,
            fontweight=weight,
            fontsize=10.5,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "lw": 0.7,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def spread(at: FloatArray, gap: float) -> FloatArray:
    """Move positions apart as little as it takes for the labels not to overlap.

    Parameters
    ----------
    at : ndarray of shape (n,)
        The positions, between 0 and 1.
    gap : float
        Least distance of two labels. n − 1 of them must fit between 0 and 1.

    Returns
    -------
    ndarray of shape (n,)
        The positions of the labels between 0 and 1, in the same order. This is the least-squares
        solution: labels that touch are centered on the mean of their positions.
    """
    order = np.argsort(at, kind="stable")
    # of the positions less their place in the stack, which must not decrease: pooled neighbors
    groups: list[list[float]] = []  # mean, size
    for value in at[order] - gap * np.arange(len(at)):
        groups.append([float(value), 1.0])
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            mean, size = groups.pop()
            other, other_size = groups[-1]
            total = size + other_size
            groups[-1] = [(mean * size + other * other_size) / total, total]
    flat = np.concatenate([np.full(int(size), mean) for mean, size in groups] or [np.zeros(0)])
    places = np.empty(len(at))
    places[order] = np.clip(flat, 0, max(1 - gap * (len(at) - 1), 0)) + gap * np.arange(len(at))
    return places
