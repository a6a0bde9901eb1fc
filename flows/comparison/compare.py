"""A comparison: methods × sizes × parameters on the same samples of one corpus.

The corpus is staged once, and its graph is made once. A method that fails or is late is a row with
the reason, and the others go on. Nothing here imports Prefect, because that takes longer than a
small comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator
from sklearn.model_selection import ParameterGrid

from bigfs import engine as work
from bigfs.coding.dictionary import NoSpams
from bigfs.engine import ClusterLost
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.result import ALL
from bigfs.selectors.registry import canonical_name
from flows import steps
from flows.comparison.bench import Bench
from flows.comparison.outcomes import Outcome
from flows.comparison.report import write_comparison
from flows.comparison.side_by_side import run_side_by_side
from flows.comparison.standings import (
    FORMAT,
    csv_rows,
    make_standings,
    markdown,
    read_comparison,
    require_folder,
)
from flows.comparison.time_limit import TooLate, time_limit
from flows.evaluation import plan as evaluation
from flows.evaluation import selection
from flows.job import Request
from flows.locks import exclusive
from flows.options import Engine
from flows.report.page import corpus_facts
from flows.report.summary import provenance
from flows.reuse import source_name
from flows.run import Call, is_store, store_of, try_again
from storage import atomic
from storage.runs.checkpoints import to_json_types
from storage.runs.metadata import strict_json
from storage.runs.runs import RunError, write_csv

# errors that a row tells; any other one ends the comparison
REFUSALS = (ValueError, MemoryError, ClusterLost, TimeoutError, NoSpams)
Parameters = dict[str, dict[str, Any]]  # of each variant, by its name


def _require_methods(methods: list[str]) -> list[str]:
    for method in methods:
        selection.get_method(method)
    return list(dict.fromkeys(map(canonical_name, methods)))


def _require_metrics(metrics: list[str] | None) -> list[str] | None:
    if unknown := [name for name in metrics or [] if name not in METRIC_NAMES]:
        raise ValueError(
            f"unknown metric {unknown[0]!r}; the metrics are {', '.join(METRIC_NAMES)}"
        )
    return metrics


def _require_constraints(constraints: dict[str, Any] | None) -> dict[str, Any] | None:
    if unknown := sorted(set(constraints or {}) - set(selection.CONSTRAINTS)):
        raise ValueError(f"constraints are keep and forbid; got {unknown[0]!r}")
    return constraints


class Comparison(Request):
    """What is compared, and how it is scored.

    Every method chooses each number of features on the same training samples, and a linear model on
    them is scored on the same test samples. Without test samples the methods choose again inside
    folds. `out` gets compare.json, compare.csv, compare.md and report.html. A method that cannot
    learn from the corpus, does not fit in memory or takes longer than `timeout` is a row that says
    so. A later call does again only what failed or what has changed.
    """

    order = "source methods sizes out metrics store settings engine overlap fresh"

    methods: Annotated[
        list[str],
        Field(min_length=1, description="methods that `bigfs methods` lists"),
        AfterValidator(_require_methods),
    ]
    sizes: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(min_length=1, description="numbers of features on the curves"),
        AfterValidator(lambda sizes: sorted(set(sizes))),
    ]
    grid: Annotated[
        dict[str, dict[str, list[Any]]] | None,
        Field(
            description="values to try, by method and parameter: "
            '{"sparge-lda": {"gamma": [0.5, 1, 2]}}'
        ),
    ] = None
    metrics: Annotated[
        list[str] | None,
        Field(description="metrics, the first of which ranks the methods (default: by the target)"),
        AfterValidator(_require_metrics),
    ] = None
    folds: Annotated[
        int | None,
        Field(
            ge=2,
            description="folds to score by, for corpora without test samples (default: 5, or a "
            "held-out fifth where folds are too much work)",
        ),
    ] = None
    test_size: Annotated[
        float | None, Field(gt=0, lt=1, description="share of the samples to hold out instead")
    ] = None
    subsamples: Annotated[
        int | None,
        Field(
            ge=2,
            description="random halves of the training samples to choose from again, for the "
            "stability",
        ),
    ] = None
    at_once: Annotated[
        int, Field(ge=1, description="methods that run side by side, as far as memory allows")
    ] = 1
    constraints: Annotated[
        dict[str, Any] | None,
        Field(
            description="features to keep and to forbid in every choice, as lists of names or "
            "indices"
        ),
        AfterValidator(_require_constraints),
    ] = None

    @model_validator(mode="after")
    def _require_one_split(self) -> Self:
        if self.folds is not None and self.test_size is not None:
            raise ValueError("folds and test_size exclude one another: give one of them")
        if unknown := sorted(set(map(canonical_name, self.grid or {})) - set(self.methods)):
            raise ValueError(f"the grid names {unknown[0]}, which is not among the methods: add it")
        return self

    def with_out(self) -> Self:
        """Return the comparison with its directory, which does not depend on the methods.

        So a comparison with one method more finds the results of the others.
        """
        names = ("sizes", "metrics", "folds", "test_size", "subsamples", "constraints")
        question = {name: getattr(self, name) for name in names}
        return self.with_default_out(f"{source_name(self.source)}-comparison", question)

    def variants(self) -> Parameters:
        """Return the parameters of each method of the grid, by a name that says them."""
        grid = {canonical_name(name): values for name, values in (self.grid or {}).items()}
        return {
            _variant(method, parameters): parameters
            for method in self.methods
            for parameters in ParameterGrid(grid.get(method, {}))
        }


def _variant(method: str, parameters: Mapping[str, Any]) -> str:
    """Return the name of a method with these parameters. The method is its first word."""
    values = (f"{name}={json.dumps(value)}" for name, value in parameters.items())
    return " ".join([method, *values])


def run_method(request: Comparison, bench: Bench, name: str) -> Outcome:
    """Choose by a method and score its choices."""
    with time_limit(request.timeout):
        return bench.run(name)


def compare(
    request: Comparison,
    call: Call = try_again,
    *,
    cluster: Callable[[Engine], AbstractContextManager[Any]] = Engine.cluster,
) -> tuple[str, dict[str, str]]:
    """Stage the source, run the methods and write the files."""
    reads_store, request = is_store(request), prepare(request)
    folder, variants = Path(request.folder), request.variants()
    with exclusive([request.folder], wait=request.waits), cluster(request.engine):
        began = time.perf_counter()
        if not reads_store:
            call(steps.stage, request)
        bench = Bench(
            str(request.store),
            folder,
            list(variants),
            request.sizes,
            request.metrics or (),
            folds=request.folds,
            test_size=request.test_size,
            subsamples=request.subsamples or 0,
            constraints=request.constraints,
            parameters=variants,
        )
        with atomic.explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        outcomes, failures, reused = run_methods(request, bench, call)
        how = evaluation.describe(bench.measured, tuple(variants)) + bench.describe_constraints()
        write_files(
            folder,
            {
                "format": FORMAT,
                "asked": request.corpus,
                "corpus": facts_of(bench.corpus),
                "evaluation": how,
                "measured": bench.measured,
                "constraints": bench.constraints,
                **make_standings(bench, outcomes, failures),
                "seconds": time.perf_counter() - began,
                "graph_seconds": bench.graph_seconds,
                "reused": reused,
                **provenance(),
            },
        )
    return request.folder, failures


def prepare(request: Comparison) -> Comparison:
    """Return a comparison with its directory and its store, or refuse it before any work."""
    request = request.with_out()
    for name, parameters in request.variants().items():
        method = name.partition(" ")[0]
        selection.require_parameters(method, max(request.sizes), parameters)
    folder = Path(request.folder)
    require_folder(folder)
    request = request.model_copy(update={"store": store_of(request)})
    if not request.fresh and (folder / "compare.json").exists():
        held = read_comparison(folder)
        if held["corpus"]["store"] != request.store and held.get("asked") != request.corpus:
            raise RunError(
                f"{folder} holds a comparison on {held['corpus']['source']}: give another "
                f"directory, or --fresh to replace it"
            )
    return request


def require_result(failures: Mapping[str, str], request: Comparison) -> None:
    """Refuse to call a comparison done in which no method finished."""
    if len(failures) == len(request.variants()):
        raise ValueError(
            "no method finished: "
            + "; ".join(f"{name}: {reason}" for name, reason in failures.items())
        )


def run_methods(
    request: Comparison, bench: Bench, call: Call = try_again
) -> tuple[list[Outcome], dict[str, str], list[str]]:
    """Run the methods, and a model on all features where it fits in memory.

    With `at_once` above 1 they run side by side. A method whose projected memory does not fit
    beside the others then runs alone after them.

    Returns the outcomes, the reasons of those that failed, and the names of those whose earlier
    results were taken.
    """
    names = list(request.variants())
    everything = [*names, ALL] if bench.can_take_all() else names
    found: dict[str, Outcome | str] = {}
    for name in [] if request.fresh else everything:
        if (earlier := bench.find(name)) is not None:
            found[name] = earlier
    reused = list(found)
    left = [name for name in everything if name not in found]
    memory = work.SharedMemory()

    def attempt(name: str) -> Outcome | str | None:
        """Return the outcome, the reason of a failure, or None if the method has to wait."""
        work.show_progress(name, 0, 1)
        try:
            with memory.share():
                return call(run_method, request, bench, name)
        except work.MemoryInUse:
            return None
        except TooLate:
            late = f"it took longer than {request.timeout:g} s"
            return f"{late}, and goes on from its last step when repeated"
        except REFUSALS as error:
            return " ".join(str(error).split()) or type(error).__name__
        finally:
            work.show_progress(name, 1, 1)

    beside = [name for name in left if name != ALL]
    bench.at_once = min(request.at_once, len(beside))
    if bench.at_once > 1:
        ended = run_side_by_side(attempt, beside, bench.at_once)
        found |= {name: result for name, result in ended.items() if result is not None}
    bench.at_once = 1
    for name in [name for name in left if name not in found]:
        work.show_progress("methods", len(found), len(everything))
        result = attempt(name)
        assert result is not None  # nothing runs beside it
        found[name] = result
    work.show_progress("methods", len(everything), len(everything))
    outcomes = [result for name in everything if isinstance(result := found[name], Outcome)]
    failures = {name: result for name in names if isinstance(result := found[name], str)}
    return outcomes, failures, reused


# --- files ----------------------------------------------------------------------------------------


def facts_of(corpus: Any) -> dict[str, Any]:
    """Return the facts about a corpus that the files of a comparison tell."""
    facts = corpus_facts(corpus)
    kept = {name: facts[name] for name in ("source", "store", "n", "d", "nnz", "split")}
    return kept | {"name": source_name(facts["source"])}


def write_files(folder: Path, comparison: Mapping[str, Any]) -> None:
    """Write compare.csv, compare.md, report.html and compare.json, each whole or not at all."""
    about = to_json_types(dict(comparison))
    header, rows = csv_rows(about)
    title = f"Feature selection on {about['corpus']['name']}"
    with atomic.write(folder / "compare.csv") as part:
        write_csv(part, header, rows)
    with atomic.write(folder / "compare.md") as part:
        part.write_text(markdown(about, title, about["evaluation"]), encoding="utf-8")
    with atomic.write(folder / "report.html") as part:
        write_comparison(part, about)
    with atomic.write(folder / "compare.json") as part:
        part.write_text(strict_json(about, indent=True), encoding="utf-8")
