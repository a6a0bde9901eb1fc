"""An audit: what is certain about lists of features, and how well models on them predict.

The certificate is that of `bigfs.audit`. The scores are those of a run: a linear model on samples
that trained none, in the same folds for all lists. SparGE's own choices of the lists' lengths stand
beside them, chosen again in each fold. A list is the same in all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import bigfs
from bigfs import storage
from bigfs.evaluation.curves import measure
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.evaluation.splits import Split
from bigfs.flows import steps
from bigfs.flows.comparison.files import AUDIT, facts_of, holding, write_record
from bigfs.flows.comparison.lists import read_lists
from bigfs.flows.comparison.report import Section, page_of
from bigfs.flows.comparison.request import Audit
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation import selection
from bigfs.flows.job import default_method
from bigfs.flows.report.provenance import provenance
from bigfs.flows.run import is_store, store_of, try_again
from bigfs.storage.runs.checkpoints import to_json_types
from bigfs.types import IntArray

BEST = "SparGE"  # its own choice, in tables
FIGURES = ("objective", "most_better", "least_worse", "redundancy")  # of a list


def audit(request: Audit) -> dict[str, Any]:
    """Stage the source, audit the lists and write the files. Returns what audit.json holds."""
    reads_store, request = is_store(request), request.with_out()
    request = request.model_copy(update={"store": store_of(request)})
    with holding(request, AUDIT), request.engine.start():
        began = time.perf_counter()
        if not reads_store:
            made = try_again(steps.stage, request)
            request = request.model_copy(update={"store": made["store"]})
        about = audit_lists(request)
        about |= {"out": request.folder, "seconds": time.perf_counter() - began, **provenance()}
        about = to_json_types(about)
        texts = {"report.html": audit_page(about)}
        write_record(Path(request.folder), AUDIT, about, csv_rows(about), texts)
    return about


def audit_lists(request: Audit) -> dict[str, Any]:
    """Certify and score the lists."""
    corpus = storage.open(str(request.store))
    train = selection.training_part(corpus)
    method = request.method or default_method(corpus)
    lists = read_lists(request.lists, train.X.shape[1], train.X.feature_names)
    selector = selection.selector_for(corpus, method, 1, request.parameters)
    choices = request.scoring.choices()
    largest = max(len(index) for index in lists.values())
    evaluation.require_choices(corpus, largest, **choices)
    plan = evaluation.make_plan(corpus, train, selection.get_method(method), **choices)
    samples = selection.usable(selector, method, train.X, train.y)
    found = bigfs.audit(*samples, lists, estimator=selector)
    chosen = {m: best.selected_ for m, best in sorted(found.best.items())}

    def rank(number: int, split: Split) -> dict[str, dict[int, IntArray]]:
        own = chosen
        if plan.measured["how"] != "test half":
            samples = selection.usable(selector, method, split.X_train, split.y_train)
            own = {m: best.selected_ for m, best in selector.fit_path(*samples, [*chosen]).items()}
        return {BEST: own} | {name: {len(index): index} for name, index in lists.items()}

    metrics = plan.measured.get("metrics", [])
    scores: dict[tuple[str, int], dict[str, float]] = {}
    if plan.splits:
        scorer = evaluation.scorer_of(plan.measured)
        for p in measure(plan.splits, rank, with_all=False, scorer=scorer).points:
            scores[p.method, p.n_features] = {name: p.scores[name] for name in metrics}

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
        row(BEST, m, objective=s["objective"], most_better=s["objective_gap"], least_worse=0.0)
        for m, s in stats.items()
        if "objective_gap" in s
    ]
    return {
        "format": AUDIT.format,
        "asked": request.corpus,
        "corpus": facts_of(corpus),
        "method": method,
        "parameters": request.parameters,
        "metrics": list(metrics),
        "evaluation": evaluation.describe(plan.measured, (BEST,)),
        "rows": rows,
    }


# --- tables and files -----------------------------------------------------------------------


def table_rows(about: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield the header and a row per list, as text."""
    names = [METRIC_NAMES[metric] for metric in about["metrics"]]
    yield ["list", "features", "at most better", "at least worse", "redundancy", *names]
    for row in about["rows"]:
        scores = [f"{row[metric]:.3f}" for metric in about["metrics"]]
        worse = f"{row['least_worse']:.2%}" if row["least_worse"] else "–"
        redundancy = f"{row['redundancy']:.3f}" if "redundancy" in row else "–"
        numbers = [f"{row['n_features']:,}", f"{row['most_better']:.2%}", worse, redundancy]
        yield [row["list"], *numbers, *scores]


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


def csv_rows(about: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Return the header and the rows of audit.csv."""
    header = ["list", "n_features", *FIGURES, *about["metrics"]]
    return header, [[row.get(name, "") for name in header] for row in about["rows"]]


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
    n_lists = sum(row["list"] != BEST for row in about["rows"])
    heading = f"{n_lists} list{'' if n_lists == 1 else 's'} of features of"
    return page_of(about, AUDIT, heading, sections, own=BEST)
