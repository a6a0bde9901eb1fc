"""The report of a run: one self-contained HTML file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bigfs import plot
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.evaluation.quality import class_strength
from bigfs.flows.report.summary import (
    choice_rows,
    choice_text,
    gaps,
    metric_names,
    metrics_of,
    score_table,
    verdict_text,
)
from bigfs.plot.axes import ACCENT, FILL, GRID, INK, MUTED, OTHERS
from bigfs.result import ALL
from bigfs.storage.runs.runs import Run

# The page names these colors, so that its dark theme can replace them.
# Elsewhere an SVG is drawn with the colors above.
COLOR_NAMES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "line",
    ACCENT: "accent",
    FILL: "plot-range",
    **{color: f"plot-{number}" for number, color in enumerate(OTHERS, 1)},
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bigfs",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.grid": True,
    "grid.color": GRID,
    "legend.frameon": False,
}
Picture = Callable[[Any], object]


def write_report(run: Run, facts: dict[str, Any]) -> Path:
    """Render `report.html` into the run's directory; `facts` describe the corpus (see
    `corpus_facts`).
    """
    about = run.metadata
    terms, svgs = run.read_table("selected.csv"), pictures(about)
    page = render(
        "report.html.j2",
        about=about,
        facts=facts,
        method=about["parameters"]["method"],
        features=len(terms),
        terms=terms[:30],
        largest=max((float(t["score"]) for t in terms), default=0.0) or 1.0,
        classes=[]  # a pixel says nothing by its number
        if facts.get("sample_shape")
        else terms_by_class(terms, about.get("profile", []), facts.get("class_names") or []),
        curve=svgs["scores"],
        objective=svgs["objective"],
        mask=_svg(lambda axes: _mask(axes, run, facts), size=(7.2, 3.9), columns=2)
        if facts.get("sample_shape")
        else None,
        metric=metric_names(about),
        measured_on=about.get("measured", {}).get("how", ""),
        table=score_table(about, digits=3),
        planted=_planted(run, facts),
        choice=about.get("choice"),
        chosen=choice_text(about["choice"]) if "choice" in about else "",
        tried=choice_rows(about["choice"]) if "choice" in about else [],
        gaps=gaps(about),
        verdict=verdict_text(about),
        total=sum(s["seconds"] for s in about.get("stages", [])),
        peak=max(
            (b for s in about.get("stages", []) for b in s["peak_memory"].values()), default=0
        ),
    )
    return run.write_text("report.html", page)


def render(template: str, **values: Any) -> str:
    """Return a page of a template of this folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": readable_bytes, "seconds": readable_seconds}
    return environment.get_template(template).render(**values)


def pictures(about: dict[str, Any]) -> dict[str, str | None]:
    """Return the curves of a run as SVG by name, None where the run has no such curve."""
    scores = _svg(lambda axes: _curves(axes, about)) if about.get("curves") else None
    objective = (
        _svg(lambda axes: plot.bounds(about["history"], ax=axes)) if _has_bounds(about) else None
    )
    return {"scores": scores, "objective": objective}


def corpus_facts(corpus: Any) -> dict[str, Any]:
    """Return the facts about a corpus that the report shows."""
    n, d = corpus.X.shape
    return {
        "source": corpus.spec["source"]["uri"],
        "store": corpus.uri,
        "n": n,
        "d": d,
        "nnz": corpus.X.nnz,
        "split": {half: int(np.count_nonzero(corpus.split == half)) for half in ("train", "test")}
        if corpus.has_test_half
        else {},
        "classes": "labels" if corpus.spec["target"] == "multilabel" else "classes",
        "class_names": [str(c) for c in corpus.class_names],
        "planted": corpus.spec["source"].get("planted"),
        "sample_shape": corpus.spec.get("sample_shape"),
        "mean": corpus.X.means if corpus.spec.get("sample_shape") else None,
    }


def terms_by_class(
    terms: Sequence[dict[str, str]],
    profile: Sequence[Sequence[float]],
    class_names: Sequence[str],
    top: int = 10,
) -> list[dict[str, Any]]:
    """Return the most typical terms of each class, by score × distance of the class mean from the
    mean.
    """
    if not len(profile) or not class_names:
        return []
    scores = np.array([float(t["score"]) for t in terms[: len(profile)]])
    strength = class_strength(scores, np.asarray(profile))
    owner = np.asarray(profile).argmax(axis=1)
    classes = []
    for c, name in enumerate(class_names):
        members = np.flatnonzero(owner == c)
        members = members[np.argsort(-strength[members, c], kind="stable")][:top]
        peak = strength[members, c].max(initial=1e-12)
        chips = [
            {
                "name": terms[int(j)]["name"],
                "score": terms[int(j)]["score"],
                "weight": strength[j, c] / peak,
            }
            for j in members
        ]
        classes.append({"name": name, "terms": chips})
    return classes


def _planted(run: Run, facts: dict[str, Any]) -> dict[str, int] | None:
    """Count the informative features of a generated corpus that were selected."""
    if not facts.get("planted"):
        return None
    planted, selected = set(facts["planted"]), run.selected
    return {
        "found": len(planted & set(selected.tolist())),
        "planted": len(planted),
        "selected": len(selected),
    }


def _has_bounds(about: dict[str, Any]) -> bool:
    return bool(about.get("history")) and {"upper", "lower"} <= set(about["history"][0])


# --- pictures -------------------------------------------------------------------------------------


def _svg(draw: Picture, size: tuple[float, float] = (4.9, 3.5), columns: int = 1) -> str:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots(ncols=columns))
        return svg_of(figure)


def svg_of(figure: Figure) -> str:
    """Return a figure as an SVG with the colors of the page around it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue().split("?>", 1)[1].split(">", 1)[1]  # without the XML and DOCTYPE lines
    for color, name in COLOR_NAMES.items():
        svg = svg.replace(f": {color}", f": var(--{name}, {color})")
    return svg


def _curves(axes: Any, about: dict[str, Any]) -> None:
    """Draw the first metric against the number of features."""
    metric = metrics_of(about)[0]
    curves: dict[str, dict[int, float]] = {}
    for point in about["curves"]:
        curves.setdefault(point["method"], {})[point["n_features"]] = point[metric]
    everything = next(iter(curves.pop(ALL, {}).items()), None)
    plot.accuracy_curve(
        curves,
        all_features=everything,
        highlight=about["parameters"]["method"],
        metric=METRIC_NAMES[metric],
        ax=axes,
    )


def _mask(axes: Any, run: Run, facts: dict[str, Any]) -> None:
    """Draw the scores as an image, and the selected pixels on the mean image.

    The pixels of a store are in column-major order.
    """
    shape = tuple(facts["sample_shape"])
    plot.scores_image(run.scores, shape, order="F", ax=axes[0])
    axes[0].set_title("scores")
    plot.scores_image(
        facts["mean"], shape, selected=run.selected, order="F", cmap="gray", ax=axes[1]
    )
    axes[1].set_title("selected pixels on the mean image")


# --- words ----------------------------------------------------------------------------------------


def readable_bytes(count: float) -> str:
    return f"{count / 2**20:,.0f} MB"


def readable_seconds(seconds: float) -> str:
    return (
        f"{seconds:.1f} s" if seconds < 120 else f"{int(seconds // 60)} min {seconds % 60:02.0f} s"
    )
