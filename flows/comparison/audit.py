"""An audit: bounds for lists of features, and how well models on them predict.

The certificate comes from `bigfs.audit`. The scores are as in a run: a linear model on samples
that trained none, in the same folds for all lists. SparGE's own choices of the lists' lengths are
in the same table, chosen again in each fold. A list is the same in all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import bigfs
from bigfs import plot, storage
from bigfs.evaluation.curves import measure
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.evaluation.splits import Split
from bigfs.flows.comparison.files import AUDIT, hold_corpus, make_record, write_record
from bigfs.flows.comparison.lists import read_lists
from bigfs.flows.comparison.report import Section, page_of
from bigfs.flows.comparison.request import Audit
from bigfs.flows.evaluation import controls, selection
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.job import default_method
from bigfs.flows.options import ClusterOptions
from bigfs.flows.report.page import STYLE, svg_of
from bigfs.flows.report.summary import score_text
from bigfs.flows.run import store_of, try_again
from bigfs.selectors.sparge.audit import ROUNDING, Alternatives
from bigfs.types import IntArray

BEST = "SparGE"  # its own choice, in tables
MOST_WRITTEN, MOST_DRAWN, MOST_ROWS = 200, 40, 30  # lists, features and exchanges
FIGURES = ("objective", "most_better", "least_worse", "redundancy")  # of a list


def audit(request: Audit) -> dict[str, Any]:
    """Stage the source, audit the lists and write the files. Returns what audit.json holds."""
    began, request = time.perf_counter(), request.with_out()
    request = request.model_copy(update={"store": store_of(request)})
    with hold_corpus(request, AUDIT, try_again, ClusterOptions.start) as request:
        corpus = storage.open(str(request.store))
        about = make_record(
            request, AUDIT, corpus, began, out=request.folder, **audit_lists(request, corpus)
        )
        texts = {"report.html": audit_page(about)}
        header = ["list", "n_features", *FIGURES, *about["metrics"]]
        write_record(Path(request.folder), AUDIT, about, (header, about["rows"]), texts)
    return about


def audit_lists(request: Audit, corpus: Any) -> dict[str, Any]:
    """Certify and score the lists."""
    train = selection.training_part(corpus)
    method = request.method or default_method(corpus)
    lists = read_lists(request.lists, train.X.shape[1], train.X.feature_names)
    selector = selection.selector_for(corpus, method, 1, request.parameters)
    choices = request.scoring.choices()
    largest = max(len(index) for index in lists.values())
    plan = evaluation.make_plan(corpus, train, selection.get_method(method), largest, choices)
    draws = controls.draws_of(choices)
    samples = selection.usable(selector, method, train.X, train.y)
    found = bigfs.audit(*samples, lists, estimator=selector, alternatives=request.alternatives)
    chosen = {m: best.selected_ for m, best in sorted(found.best.items())}

    def choose(X: Any, y: Any) -> dict[int, IntArray]:
        path = selector.fit_path(*selection.usable(selector, method, X, y), [*chosen])
        return {m: best.selected_ for m, best in path.items()}

    def rank(number: int, split: Split) -> dict[str, dict[int, IntArray]]:
        X, y = split.X_train, split.y_train
        found = {name: {len(index): index} for name, index in lists.items()}
        found[BEST] = chosen if plan.measured["how"] == "test half" else choose(X, y)
        for draw in chain.from_iterable(draws.values()):
            if controls.control_of(draw) == controls.RANDOM:
                order = controls.draw_list(draw, X, request.parameters)
                found[draw] = {m: order[:m] for m in chosen}
            else:
                found[draw] = choose(X, controls.shuffle_labels(y, draw, request.parameters))
        return found

    metrics = plan.measured.get("metrics", [])
    scores: dict[tuple[str, int], dict[str, Any]] = {}
    if plan.splits:
        scorer = evaluation.scorer_of(plan.measured)
        result = measure(plan.splits, rank, with_all=False, scorer=scorer)
        evaluation.leave_out(plan, result.left_out)
        measured = [
            {"method": p.method, "n_features": p.n_features, **p.scores} for p in result.points
        ]
        for one in controls.average_draws(measured, metrics):
            kept = {name: one[name] for name in (*metrics, "spread", "draws") if name in one}
            scores[one["method"], one["n_features"]] = kept

    def row(name: str, m: int, **figures: Any) -> dict[str, Any]:
        return {"list": name, "n_features": m, **figures, **scores.get((name, m), {})}

    names = corpus.feature_names
    rows = [
        row(
            name,
            len(one.features),
            **{figure: getattr(one, figure) for figure in FIGURES},
            exchanges=[
                {"leaves": str(names[e.leaves]), "enters": str(names[e.enters]), "gain": e.gain}
                for e in one.exchanges
            ],
        )
        for name, one in found.lists.items()
    ]
    stats = {m: best.result_.stats for m, best in sorted(found.best.items())}
    rows += [
        row(BEST, m, objective=s["objective"], **own_bounds(s, found.alternatives.get(m)))
        for m, s in stats.items()
        if "objective_gap" in s
    ]
    rows += [row(control, m) for control in draws for m in chosen]
    near = [near_record(m, one, names) for m, one in found.alternatives.items()]
    return {
        "method": method,
        **({"share": request.alternatives, "alternatives": near} if near else {}),
        "parameters": request.parameters,
        "metrics": list(metrics),
        "evaluation": evaluation.describe(plan.measured | controls.protocol_of(draws)),
        "rows": rows,
    }


def own_bounds(stats: Mapping[str, Any], searched: Alternatives | None) -> dict[str, float]:
    """Return how much better a list than SparGE's own can be, and is, at the least."""
    if searched is None:
        return {"most_better": stats["objective_gap"], "least_worse": 0.0}
    worse = 1 - float(searched.objectives[0]) / stats["objective"]
    worse = worse if worse > ROUNDING else 0.0
    most = worse if searched.is_complete else stats["objective_gap"]
    return {"most_better": most, "least_worse": worse}


def near_record(m: int, found: Alternatives, names: Any) -> dict[str, Any]:
    """Return the lists of m features that are nearly as good as the best, for audit.json."""
    return {
        "n_features": m,
        "summary": str(found),
        "n_lists": len(found.lists),
        "is_complete": found.is_complete,
        "undecided": found.n_undecided,
        "always": [str(names[j]) for j in found.always],
        "exchanges": [
            {"leaves": str(names[e.leaves]), "enters": str(names[e.enters]), "rise": -e.gain}
            for e in found.exchanges
        ],
        "lists": [[str(names[j]) for j in one] for one in found.lists[:MOST_WRITTEN]],
        "objectives": found.objectives[:MOST_WRITTEN].tolist(),
    }


def picture(one: Mapping[str, Any]) -> str:
    """Return the features of the written lists as an SVG."""
    names, positions = np.unique(one["lists"], return_inverse=True)
    lists = positions.reshape(len(one["lists"]), -1)
    found = Alternatives(lists, np.array(one["objectives"]), one["undecided"], one["is_complete"])
    with mpl.rc_context(STYLE):
        height = 1.2 + 0.22 * min(len(names), MOST_DRAWN)
        figure = Figure(figsize=(9.6, height), layout="constrained")
        ax = figure.subplots()
        plot.alternatives(found, feature_names=names.tolist(), n_features=MOST_DRAWN, ax=ax)
        ax.set_title(one["summary"])
        return svg_of(figure)


# --- tables and files -----------------------------------------------------------------------


def table_rows(about: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the header and a row per list, as text."""
    names = [METRIC_NAMES[metric] for metric in about["metrics"]]
    yield ["list", "features", "at most better", "at least worse", "redundancy", *names]
    for row in about["rows"]:
        scores = [score_text(row, metric) for metric in about["metrics"]]
        better = f"{row['most_better']:.2%}" if "most_better" in row else "–"
        worse = f"{row['least_worse']:.2%}" if row.get("least_worse") else "–"
        redundancy = f"{row['redundancy']:.3f}" if "redundancy" in row else "–"
        yield [row["list"], f"{row['n_features']:,}", better, worse, redundancy, *scores]


def explanation(about: Mapping[str, Any]) -> list[str]:
    """Return the sentences that say how to read the table."""
    return [
        "At most better: no list of the same length has an objective that is lower by more than "
        "this share. At least worse: SparGE found one that is lower by this share.",
        f"The objective is that of {about['method']}: how well the features explain the target "
        "together, on the training samples. It is no accuracy.",
        "A list is the same in every fold, and SparGE chooses again in each. If a list was chosen "
        "with samples that test it here, its scores are too high.",
    ]


def near_text(one: Mapping[str, Any], share: float) -> str:
    """Return the sentence on the lists that are nearly as good."""
    end = "" if one["is_complete"] else " The search came to its limit before it had found all."
    return (
        f"{one['n_features']:,} features, objective within {share:.3g} of the best: "
        f"{one['summary']}. The bound leaves {one['undecided']:,} features undecided.{end}"
    )


def audit_page(about: Mapping[str, Any]) -> str:
    """Return the page of an audit."""
    notes = [f"Scored by the objective of {about['method']}. {about['evaluation']}"]
    sections = [Section("The lists", [*notes, *explanation(about)], list(table_rows(about)))]
    note = "The exchanges of one feature that lower its objective most, each of other features."
    head = ["leaves", "enters", "objective lower by"]
    for row in about["rows"]:
        if exchanges := row.get("exchanges"):
            table = [[e["leaves"], e["enters"], f"{e['gain']:.3%}"] for e in exchanges]
            sections.append(Section(f"What would help {row['list']} most", [note], [head, *table]))
    for one in about.get("alternatives", ()):
        head = ["leaves", "enters", "objective higher by"]
        table = [[e["leaves"], e["enters"], f"{e['rise']:.3%}"] for e in one["exchanges"]]
        title = f"Lists of {one['n_features']:,} within {about['share']:.3g} of the best"
        notes = [near_text(one, about["share"]), "The table: which features may stand for which."]
        notes = notes if table else notes[:1]
        rows = [head, *table[:MOST_ROWS]] if table else ()
        sections.append(Section(title, notes, rows, pictures=[picture(one)]))
    n_lists = sum("exchanges" in row for row in about["rows"])
    heading = f"{n_lists} list{'' if n_lists == 1 else 's'} of features of"
    return page_of(about, AUDIT, heading, sections, own=BEST)
