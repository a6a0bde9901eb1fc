"""The methods side by side on real data: `bigfs compare` on each set, and tables and pictures for
the documentation.

python -m benchmarks.peers run FOLDER           # the folder of the data; resumes when cut off
python -m benchmarks.peers pages                # tables and pictures from benchmarks/peers/*.json
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from scipy.stats import rankdata, sem

from benchmarks.papers.origin import now
from bigfs.flows.comparison.compare import compare, run_method
from bigfs.flows.comparison.files import read_comparison
from bigfs.flows.comparison.report import LAYOUTS, picture
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.comparison.standings import cost_rows, failure_lines, score_rows
from bigfs.flows.comparison.time_limit import time_limit
from bigfs.flows.options import ClusterOptions
from bigfs.flows.report.summary import markdown_table
from bigfs.result import ALL
from bigfs.selectors.registry import METHODS

app = typer.Typer(add_completion=False)
ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks" / "peers"
PICTURES = ROOT / "docs" / "pictures"
PAGE = ROOT / "docs" / "measured" / "peers-tables.md"
# a real target, a dictionary of its own, images, and what ranks as another method does
LEFT_OUT = ("f-regression", "jgsc", "rjgsc", "smr", "fisher")
DRAWN = 12  # methods in a picture
SMALL = (20, 50, 100, 200)


def all_methods(methods: str) -> list[str]:
    """The methods that are named, or all that can be compared."""
    return methods.split(",") if methods else [name for name in METHODS if name not in LEFT_OUT]


class DataSet(NamedTuple):
    """A file of the folder, and how methods are compared on it."""

    file: str
    about: str
    sizes: tuple[int, ...] = SMALL
    folds: int | None = 3  # None: the set has test samples
    engine: ClusterOptions = ClusterOptions(workers=0)
    limit: float = 120.0  # processor seconds of the driving process that one method may take


DATA = {
    "PCMAC": DataSet("PCMAC.mat", "Word counts, two newsgroups"),
    "COIL20": DataSet("COIL20.mat", "Images of twenty objects"),
    "ORL": DataSet("ORL.mat", "Faces of forty people"),
    "TOX-171": DataSet("TOX-171.mat", "Gene expression, four classes"),
    "BASEHOCK": DataSet("BASEHOCK.mat", "Word counts, two newsgroups"),
    "Isolet": DataSet("Isolet.mat", "Spoken letters"),
    "20news": DataSet(
        "20news-bydate.tar.xz",
        "20 Newsgroups by date, tf-idf",
        (50, 100, 200, 500, 1000, 2000),
        None,
        ClusterOptions(workers=2, memory_limit="1GB"),
        300.0,
    ),
}


@app.command()
def run(
    folder: Path,
    work: Path = Path("/tmp/bigfs-peers"),
    kept: Path = KEPT,
    sets: str = ",".join(DATA),
    methods: str = "",
    limit: float | None = None,
) -> None:
    """Compare the methods on each set that has no figures yet."""
    kept.mkdir(parents=True, exist_ok=True)
    for name in sets.split(","):
        data, file = DATA[name], kept / f"{name}.json"
        if file.exists():
            continue
        seconds = limit or data.limit
        request = Comparison(
            source=str(folder / data.file),
            methods=all_methods(methods),
            sizes=list(data.sizes),
            out=str(work / name),
            store=str(work / f"{name}.zarr"),
            engine=data.engine,
            timeout=seconds,
            scoring={"cv": data.folds},
        )
        load = os.getloadavg()[0]
        compare(request, call_in_processor_time)
        about = read_comparison(work / name)
        measured = {"made": now(), "load": round(load, 1), "limit": seconds}
        figures = trimmed(about) | {"run": measured}
        file.write_text(json.dumps(figures, separators=(",", ":")) + "\n")
        print(name, "done", flush=True)


def call_in_processor_time(step: Any, request: Comparison, *arguments: Any) -> Any:
    """Call a step, and a method in so many processor seconds of this process."""
    if step is not run_method:
        return step(request, *arguments)
    bench, method = arguments
    with time_limit(request.timeout, signal.ITIMER_PROF):
        return bench.run(method)


def trimmed(about: dict[str, Any]) -> dict[str, Any]:
    """The figures of a comparison that the tables and pictures show, rounded."""
    corpus = {key: about["corpus"][key] for key in ("name", "n", "d", "nnz", "split")}
    shown = ("metrics", "sizes", "best", "test", "repeats", ALL, "evaluation", "seconds")
    return rounded({"corpus": corpus, "rows": about["rows"], **{k: about[k] for k in shown}})


def rounded(value: Any) -> Any:
    """The same JSON with four significant digits."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


# --- pages ----------------------------------------------------------------------------------------


@app.command()
def pages(kept: Path = KEPT, pictures: Path = PICTURES, page: Path = PAGE) -> None:
    """Write the page of the tables, and a picture for each set."""
    files = {name: kept / f"{name}.json" for name in DATA}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    lines = [(KEPT / "introduction.md").read_text(), "## Mean accuracy over the sizes", ""]
    lines += markdown_table(overview(found))
    for name, about in found.items():
        lines += section(name, about)
        best = [row for row in about["rows"] if not row["error"]][:DRAWN]
        (pictures / f"peers-{name}.svg").write_text(picture(about | {"rows": best}, LAYOUTS[0]))
    page.write_text("\n".join(lines))


def overview(found: dict[str, dict[str, Any]]) -> list[list[str]]:
    """A row per method: its mean accuracy on each set, and its mean rank over those it finished."""
    means = {
        name: {row["method"]: row["mean"] for row in about["rows"] if not row["error"]}
        for name, about in found.items()
    }
    # equal means share their ranks
    ranks = {
        name: dict(zip(own, rankdata([-mean for mean in own.values()]), strict=True))
        for name, own in means.items()
    }
    table = [["method", *found, "mean rank", "± SE"]]
    methods = {row["method"]: None for about in found.values() for row in about["rows"]}
    of = {method: [own[method] for own in ranks.values() if method in own] for method in methods}
    for method in sorted(methods, key=lambda m: np.mean(of[m]) if of[m] else np.inf):
        cells = [f"{own[method]:.3f}" if method in own else "–" for own in means.values()]
        mean = f"{np.mean(of[method]):.1f}" if of[method] else "–"
        error = f"{sem(of[method]):.1f}" if len(of[method]) > 1 else "–"
        table.append([f"`{method}`", *cells, mean, error])
    return table


def section(name: str, about: dict[str, Any]) -> list[str]:
    """The picture of one set, its scores with the costs, and the methods that did not finish."""
    corpus, ran = about["corpus"], about["run"]
    scores, costs = score_rows(about), cost_rows(about)
    by_method = {row[0]: row[1:] for row in costs[1:]}
    table = [[*scores[0], *costs[0][1:]]]
    for row in scores[1:]:
        table.append([f"`{row[0]}`", *row[1:], *by_method.get(row[0], [""] * len(costs[0][1:]))])
    return [
        f"## {name}",
        "",
        f"{DATA[name].about}: {corpus['n']:,} × {corpus['d']:,}, {corpus['nnz']:,} non-zeros. "
        f"{about['evaluation']} At most {ran['limit']:g} s per method, commit {ran['made']}, load "
        f"{ran['load']:g} when it began.",
        "",
        f"![The {DRAWN} best methods on {name}](../pictures/peers-{name}.svg)",
        "",
        *markdown_table(table),
        *(f"* {line}" for line in failure_lines(about)),
        "",
    ]


if __name__ == "__main__":
    app()
