"""The report of a comparison: one self-contained HTML file with a picture of all curves."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bigfs import plot
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.flows.comparison.standings import (
    choice_lines,
    cost_rows,
    explanation,
    failure_lines,
    score_rows,
)
from bigfs.flows.report.page import STYLE, render, svg_of

# width, height (in inches) and share of the width for the labels
DESKTOP, PHONE = (9.6, 5.2, 0.25), (4.6, 5.6, 0.38)


def page_of(comparison: dict[str, Any]) -> str:
    """Return the report of a comparison."""
    finished = [row for row in comparison["rows"] if not row["error"]]
    return render(
        "comparison.html.j2",
        about=comparison,
        facts=comparison["corpus"],
        metric=METRIC_NAMES[comparison["metrics"][0]],
        best=finished[0] if finished else None,
        best_point=finished[0]["points"][-1][comparison["metrics"][0]] if finished else None,
        finished=finished,
        scores=score_rows(comparison),
        costs=cost_rows(comparison),
        failures=failure_lines(comparison),
        choices=choice_lines(comparison),
        explanation=explanation(comparison),
        desktop=picture(comparison, DESKTOP) if finished else None,
        phone=picture(comparison, PHONE) if finished else None,
    )


def picture(comparison: dict[str, Any], layout: tuple[float, float, float] = DESKTOP) -> str:
    """Return the curves of all methods as an SVG, each with its name at its end."""
    width, height, share = layout
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        figure.subplots_adjust(left=0.95 / width, right=1 - share, top=0.97, bottom=0.62 / height)
        plot.comparison(comparison, ax=figure.subplots())
        return svg_of(figure)
