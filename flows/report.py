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

from bigfs.result import ALL
from flows.summary import METRIC_NAMES, gaps, metric_names, metrics_of, score_table
from storage.runs import Run

INK, MUTED, GRID, ACCENT, FILL = "#1f2933", "#616e7c", "#e4e7eb", "#0b6e4f", "#cfe8de"
OTHERS = ("#c8553d", "#b7791f", "#5b6c9e", "#8a63d2", "#6b7f82")
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
Picture = Callable[[Any], None]


def write_report(run: Run, facts: dict[str, Any]) -> Path:
    """Render `report.html` into the run's directory; `facts` describe the corpus (see
    `corpus_facts`).
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": readable_bytes, "seconds": readable_seconds}
    about = run.metadata
    terms, svgs = run.read_table("selected.csv"), pictures(about)
    page = environment.get_template("report.html.j2").render(
        about=about,
        facts=facts,
        method=about["parameters"]["method"],
        features=len(terms),
        terms=terms[:30],
        largest=max((float(t["score"]) for t in terms), default=0.0) or 1.0,
        classes=terms_by_class(terms, about.get("profile", []), facts.get("class_names") or []),
        curve=svgs["scores"],
        objective=svgs["objective"],
        mask=_svg(lambda axes: _mask(axes, run, facts), size=(7.2, 3.9), columns=2)
        if facts.get("sample_shape")
        else None,
        metric=metric_names(about),
        measured_on=about.get("measured", {}).get("how", ""),
        table=score_table(about, digits=3),
        planted=_planted(run, facts),
        gaps=gaps(about),
        total=sum(s["seconds"] for s in about.get("stages", [])),
        peak=max(
            (b for s in about.get("stages", []) for b in s["peak_memory"].values()), default=0
        ),
    )
    return run.write_text("report.html", page)


def pictures(about: dict[str, Any]) -> dict[str, str | None]:
    """Return the curves of a run as SVG by name, None where the run has no such curve."""
    scores = _svg(lambda axes: _curves(axes, about)) if about.get("curves") else None
    objective = (
        _svg(lambda axes: _objective(axes, about["history"])) if _has_bounds(about) else None
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
        "class_names": [str(c) for c in corpus.class_names]
        if corpus.class_names is not None
        else [],
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
    strength = np.where(np.isfinite(scores), scores, scores[np.isfinite(scores)].max(initial=1.0))[
        :, None
    ] * np.maximum(profile, 0)
    owner = strength.argmax(axis=1)
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
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue().split("?>", 1)[1].split(">", 1)[1]  # without the XML and DOCTYPE lines
    for color, name in COLOR_NAMES.items():
        svg = svg.replace(f": {color}", f": var(--{name}, {color})")
    return svg


def _curves(axes: Any, about: dict[str, Any]) -> None:
    """Draw the first metric against the number of features."""
    curves, metric = about["curves"], metrics_of(about)[0]
    with_all = next((p for p in curves if p["method"] == ALL), None)
    methods = [m for m in dict.fromkeys(p["method"] for p in curves) if m != ALL]
    colors = iter(OTHERS)
    for name in methods:
        points = sorted((p["n_features"], p[metric]) for p in curves if p["method"] == name)
        is_own = name == about["parameters"]["method"]
        axes.plot(
            *zip(*points, strict=True),
            "o-",
            label=name,
            color=ACCENT if is_own else next(colors),
            lw=2.6 if is_own else 1.6,
            ms=6 if is_own else 4.5,
            zorder=3 if is_own else 2,
        )
    if with_all is not None:
        label = f"all {with_all['n_features']:,} features: {with_all[metric]:.3f}"
        axes.axhline(with_all[metric], color=MUTED, ls="--", lw=1.2, label=label)
    axes.set(xlabel="number of features", ylabel=METRIC_NAMES[metric])
    axes.margins(y=0.12)
    _legend(axes)


def _objective(axes: Any, history: Sequence[dict[str, float]]) -> None:
    cuts = range(1, len(history) + 1)
    upper, lower = [r["upper"] for r in history], [r["lower"] for r in history]
    axes.fill_between(cuts, lower, upper, color=FILL, label="range of the optimum")
    axes.plot(cuts, upper, "o-", color=ACCENT, label="upper bound", lw=2)
    axes.plot(cuts, lower, "o-", color=OTHERS[0], label="lower bound", lw=2)
    axes.set(xlabel="cut", ylabel="objective")
    axes.xaxis.get_major_locator().set_params(integer=True)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Put the legend above the axes, where it hides no line."""
    axes.figure.legend(loc="outside upper left", ncols=2, handlelength=1.6, columnspacing=1.4)


def _mask(axes: Any, run: Run, facts: dict[str, Any]) -> None:
    """Draw the scores as an image, and the selected pixels on the mean image.

    The pixels of a store are in column-major order.
    """
    shape = tuple(facts["sample_shape"])
    is_selected = np.zeros(len(run.scores))
    is_selected[run.selected] = 1
    axes[0].imshow(np.reshape(run.scores, shape, order="F"), cmap="magma")
    axes[0].set_title("scores")
    axes[1].imshow(np.reshape(facts["mean"], shape, order="F"), cmap="gray")
    overlay = np.ma.masked_equal(np.reshape(is_selected, shape, order="F"), 0)
    axes[1].imshow(overlay, cmap="autumn", alpha=0.55)
    axes[1].set_title("selected pixels on the mean image")
    for picture in axes:
        picture.set_axis_off()


# --- words ----------------------------------------------------------------------------------------


def readable_bytes(count: float) -> str:
    return f"{count / 2**20:,.0f} MB"


def readable_seconds(seconds: float) -> str:
    return (
        f"{seconds:.1f} s" if seconds < 120 else f"{int(seconds // 60)} min {seconds % 60:02.0f} s"
    )
