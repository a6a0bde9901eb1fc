"""The pages in docs/papers: one per paper, and the table of all figures and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.papers import origin
from benchmarks.papers.claims import LEAST, Item, Verdict
from benchmarks.papers.experiments import Experiment

PROTOCOLS = Path(__file__).parent / "protocols"
DOCS = Path(__file__).parents[2] / "docs" / "papers"


class Paper(NamedTuple):
    """A paper: its figures and tables, our experiments, and what its page says besides."""

    key: str  # of the page and of --only
    title: str
    reference: str
    items: tuple[Item, ...]
    repetitions: int  # as many as the paper has, or as we plan where it does not say
    experiments: tuple[Experiment, ...] = ()
    # sections with tables and plots; each gets the folder of the pages and returns Markdown, or
    # nothing while it has no results
    sections: tuple[Callable[[Path], str], ...] = ()


# --- parts of a page ------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def by_data(methods: Iterable[str], data: Sequence[str], cell: Callable[[str, str], str]) -> str:
    """Return a table of methods and data, from what tells a cell of data and method."""
    return table(["method", *data], ([m, *(cell(d, m) for d in data)] for m in methods))


def mean_error(values: Iterable[float], digits: int = 3) -> str:
    """Return "mean ± standard error", the mean alone of one value, and nothing of none."""
    values = np.array(list(values), dtype=float)
    if not len(values):
        return ""
    mean = f"{values.mean():.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {values.std(ddof=1) / np.sqrt(len(values)):.{digits}f}"


def repetitions(experiment: Experiment) -> str:
    """Return how many repetitions of each data set are begun, of how many."""
    results = experiment.results()
    counts = {
        data: len({key.repetition for key in results.cells if key.data == data})
        for data in results.datasets()
    }
    text = ", ".join(f"{data} {count}" for data, count in counts.items()) or "none"
    return f"Repetitions begun: {text}, of {experiment.repetitions}."


def save(figure: Any, folder: Path, name: str, about: str) -> str:
    """Save a figure as SVG, the same bytes for the same figure, and return its Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none", "path.simplify": True}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    path = folder / f"{name}.svg"
    path.write_text(re.sub(r"[ \t]+\n", "\n", path.read_text()))
    return f"![{about}]({name}.svg)\n"


def curves(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[Sequence[float]]]]],
    labels: tuple[str, str],
    folder: Path,
    name: str,
    about: str,
    columns: int = 3,
    **axis: Any,
) -> str:
    """Plot curves with bands of one standard error, and return the plot's Markdown."""
    panels = {title: lines for title, lines in panels.items() if lines}
    if not panels:
        return ""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(3.4 * columns + 0.6, 2.9 * rows),
        layout="constrained",
        squeeze=False,
    )
    for ax, (title, lines) in zip(axes.flat, panels.items()):  # noqa: B905 (some stay empty)
        for i, (label, (x, runs)) in enumerate(lines.items()):
            values = np.array(runs, dtype=float)
            values = np.broadcast_to(values, (len(values), len(x)))  # a constant has one number
            mean = values.mean(axis=0)
            style = "-" if i < 10 else "--"
            ax.plot(x, mean, style, label=label, linewidth=1.2, color=f"C{i % 10}")
            if len(values) > 1:
                error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
                ax.fill_between(
                    x, mean - error, mean + error, alpha=0.2, color=f"C{i % 10}", linewidth=0
                )
        ax.set(title=title, xlabel=labels[0], ylabel=labels[1], **axis)
        ax.title.set_fontsize(10)
    for ax in axes.flat[len(panels) :]:
        ax.axis("off")
    handles, labels_ = axes.flat[0].get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(handles, labels_, loc="outside right upper", fontsize=7)
    return save(figure, folder, name, about)


# --- pages ----------------------------------------------------------------------------------------


def anchor(paper: Paper, item: Item) -> str:
    """Return the label of an item, which is unique in the documentation."""
    return f"{paper.key}-{re.sub(r'[^a-z0-9]+', '-', item.name.lower()).strip('-')}"


def rests_on(paper: Paper, item: Item) -> str:
    """Return on how many repetitions a verdict rests, of how many."""
    pairs = item.pairs()
    return f"{pairs} of {paper.repetitions}" if pairs else ""


def left_out(item: Item) -> str:
    """Return a sentence about what of an item cannot be tried."""
    return f" Not available: {item.missing}." if item.missing else ""


def page(paper: Paper, folder: Path) -> str:
    """Return the page of a paper, and write its plots."""
    parts = [
        f"# {paper.title}\n",
        f"{paper.reference}\n",
        "`python -m benchmarks.papers` wrote this page. [How a verdict is reached](index.md).\n",
        f"{origin.line(paper.experiments)}\n",
    ]
    if paper.items:
        rows = (
            [f"[{i.name}](#{anchor(paper, i)})", i.about, i.verdict(), rests_on(paper, i)]
            for i in paper.items
        )
        head = ("item", "what it shows", "verdict", "repetitions")
        parts += ["## Figures and tables\n", table(head, rows)]
    protocol = PROTOCOLS / f"{paper.key}.md"  # what the paper does and what we do
    if protocol.exists():
        parts += ["## Protocol\n", protocol.read_text()]
    written = [text for section in paper.sections if (text := section(folder))]
    parts += [text.strip() + "\n" for text in written]
    parts += ["## The claims, one by one\n"] if paper.items else []
    for item in paper.items:
        parts += [f"({anchor(paper, item)})=\n### {item.name}: {item.about}\n"]
        count = f" On {pairs} repetitions." if (pairs := rests_on(paper, item)) else ""
        if item.verdict() == Verdict.NOT_RUN and pairs:
            count = f" {pairs} repetitions are there, and a verdict needs {LEAST}."
        parts.append(f"**{item.verdict().capitalize()}.**{count}{left_out(item)}\n")
        if item.claims:
            rows = [
                (c.text, o.verdict, o.evidence)
                for c, o in zip(item.claims, item.outcomes(), strict=True)
            ]
            parts.append(table(["claim", "verdict", "our figures"], rows))
    return "\n".join(parts)


def index(papers: Sequence[Paper]) -> str:
    """Return the page with every figure and table of every paper."""
    rows = [
        (
            p.title,
            f"[{i.name}]({p.key}.md#{anchor(p, i)})",
            i.about,
            i.verdict(),
            rests_on(p, i),
            i.missing,
        )
        for p in papers
        for i in p.items
    ]
    head = ["paper", "item", "what it shows", "verdict", "repetitions", "not available"]
    counts = [str(row[3]) for row in rows]
    total = ", ".join(f"{v} ({counts.count(v)})" for v in dict.fromkeys(sorted(counts)))
    compared = [(i.pairs(), p.repetitions) for p in papers for i in p.items if i.pairs() >= LEAST]
    few = sum(pairs < planned for pairs, planned in compared)
    rests = (
        f"The {len(compared)} verdicts that compare methods rest on as many repetitions as planned."
    )
    if few:
        rests = (
            f"{few} of the {len(compared)} verdicts that compare methods rest on fewer repetitions "
            "than planned. They are provisional. With two or three repetitions a difference must "
            'be large to show, so "does not hold" says little there.'
        )
    return f"""{(PROTOCOLS / "index.md").read_text()}
Verdicts of the {len(rows)} figures and tables: {total}.

{rests}

{table(head, rows)}
```{{toctree}}
:hidden:

{chr(10).join(p.key for p in papers)}
```
"""


def write(papers: Sequence[Paper], folder: Path = DOCS) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for paper in papers:
        (folder / f"{paper.key}.md").write_text(page(paper, folder))
    (folder / "index.md").write_text(index(papers))
