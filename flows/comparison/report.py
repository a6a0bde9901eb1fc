"""The page of a comparison and of an audit: one self-contained HTML file of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from bigfs import plot
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.flows.comparison.files import Kind
from bigfs.flows.comparison.standings import (
    choice_lines,
    cost_rows,
    explanation,
    failure_lines,
    score_rows,
)
from bigfs.flows.report.page import STYLE, readable_seconds, render, svg_of
from bigfs.result import ALL

# width, height (in inches) and share of the width for the labels
LAYOUTS = (9.6, 5.2, 0.25), (4.6, 5.6, 0.38)  # of a desktop and of a phone


class Section(NamedTuple):
    """A part of the page. The first row of its table is the header."""

    title: str
    notes: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    warnings: Sequence[str] = ()
    pictures: Sequence[str] = ()


def page_of(
    about: Mapping[str, Any],
    kind: Kind,
    heading: str,
    sections: Sequence[Section],
    figures: Sequence[tuple[str, str]] = (),
    own: str | None = None,
) -> str:
    """Return the page of a record. The row `own` of its tables stands out."""
    given = {"figures": figures, "own": own, "facts": about["corpus"]}
    return render(
        "tables.html.j2", about=about, kind=kind.name, heading=heading, sections=sections, **given
    )


def comparison_page(about: dict[str, Any], kind: Kind) -> str:
    """Return the page of a comparison."""
    finished = [row for row in about["rows"] if not row["error"]]
    sections: list[Section] = []
    figures: list[tuple[str, str]] = []
    if finished:
        metric, m, best = about["metrics"][0], about["sizes"][-1], finished[0]
        name, everything = METRIC_NAMES[metric], about[ALL]
        figures = [
            (best["method"], f"highest mean {name} over the sizes"),
            (f"{best['points'][-1][metric]:.3f}", f"its {name} with {m:,} features"),
            (readable_seconds(about["seconds"]), "time of the comparison"),
        ]
        if everything:
            text = f"{name} with all {everything['n_features']:,} features"
            figures.insert(2, (f"{everything[metric]:.3f}", text))
        order, choice, stars = explanation(about)
        memory = "Memory is the peak of the largest process while the method chose. The processor "
        cost = [f"{choice} {memory}time is that of all processes.", *choice_lines(about)]
        pictures, title = [picture(about, layout) for layout in LAYOUTS], name[0].upper() + name[1:]
        sections = [
            Section(f"{title} by number of features", [about["evaluation"]], pictures=pictures),
            Section("The scores", [f"{order} {stars}"], score_rows(about)),
            Section("What a choice costs, and how choices differ", cost, cost_rows(about)),
        ]
    if failures := failure_lines(about):
        sections.append(Section("What did not finish", warnings=failures))
    heading = f"{len(finished)} method{'' if len(finished) == 1 else 's'} on"
    return page_of(about, kind, heading, sections, figures, about["best"])


def picture(about: dict[str, Any], layout: tuple[float, float, float]) -> str:
    """Return the curves of all methods as an SVG, each with its name at its end."""
    width, height, share = layout
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        figure.subplots_adjust(left=0.95 / width, right=1 - share, top=0.97, bottom=0.62 / height)
        plot.comparison(about, ax=figure.subplots())
        return svg_of(figure)
