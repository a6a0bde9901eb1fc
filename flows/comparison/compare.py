"""A comparison: methods × sizes × parameters on the same samples of one corpus.

The corpus is staged once, and its graph is made once. A method that fails or is late is a row with
the reason, and the others go on. Nothing here imports Prefect, because that takes longer than a
small comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bigfs.flows import steps
from bigfs.flows.comparison.bench import Bench
from bigfs.flows.comparison.foreign import Foreign
from bigfs.flows.comparison.outcomes import Outcome
from bigfs.flows.comparison.report import write_comparison
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.comparison.standings import (
    FORMAT,
    csv_rows,
    make_standings,
    markdown,
    read_comparison,
    require_folder,
)
from bigfs.flows.comparison.time_limit import TooLate, time_limit
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.evaluation import selection
from bigfs.flows.options import Engine
from bigfs.flows.report.page import corpus_facts
from bigfs.flows.report.provenance import provenance
from bigfs.flows.reuse import source_name
from bigfs.flows.run import Call, is_store, store_of, try_again
from bigfs.storage import atomic
from bigfs.storage.runs.checkpoints import to_json_types
from bigfs.storage.runs.metadata import strict_json
from bigfs.storage.runs.runs import RunError, lock_run, write_csv

from bigfs import engine as work
from bigfs.coding.dictionary import NoSpams
from bigfs.engine import ClusterLost
from bigfs.result import ALL

# errors that a row tells; any other one ends the comparison
REFUSALS = (ValueError, MemoryError, ClusterLost, TimeoutError, NoSpams)


def run_method(request: Comparison, bench: Bench, name: str) -> Outcome:
    """Choose by a method and score its choices."""
    with time_limit(request.timeout):
        return bench.run(name)


def compare(
    request: Comparison,
    call: Call = try_again,
    *,
    cluster: Callable[[Engine], AbstractContextManager[Any]] = Engine.start,
) -> tuple[str, dict[str, str]]:
    """Stage the source, run the methods and write the files."""
    reads_store, request = is_store(request), prepare(request)
    folder = Path(request.folder)
    with lock_run(request.folder, waits=request.waits), cluster(request.engine):
        began = time.perf_counter()
        if not reads_store:
            call(steps.stage, request)
        bench = Bench(request)
        with atomic.explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        outcomes, failures, reused = run_methods(request, bench, call)
        how = evaluation.describe(bench.measured, tuple(request.names()))
        write_files(
            folder,
            {
                "format": FORMAT,
                "asked": request.corpus,
                "corpus": facts_of(bench.corpus),
                "evaluation": how + bench.describe_constraints(),
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
    request.names()
    for place in request.selectors or []:
        Foreign(place).identity()
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
    if len(failures) == len(request.names()):
        raise ValueError(
            "no method finished: "
            + "; ".join(f"{name}: {reason}" for name, reason in failures.items())
        )


def run_methods(
    request: Comparison, bench: Bench, call: Call = try_again
) -> tuple[list[Outcome], dict[str, str], list[str]]:
    """Run the methods, and a model on all features where it fits in memory.

    Returns the outcomes, the reasons of those that failed, and the names of those whose earlier
    results were taken.
    """
    names = request.names()
    everything = [*names, ALL] if bench.can_take_all() else names
    found: dict[str, Outcome | str] = {}
    for name in [] if request.fresh else everything:
        if (earlier := bench.find(name)) is not None:
            found[name] = earlier
    reused = list(found)

    def attempt(name: str) -> Outcome | str:
        """Return the outcome, or the reason of a failure."""
        work.show_progress(name, 0, 1)
        try:
            return call(run_method, request, bench, name)
        except TooLate:
            late = f"it took longer than {request.timeout:g} s"
            return f"{late}, and goes on from its last step when repeated"
        except REFUSALS as error:
            return " ".join(str(error).split()) or type(error).__name__
        finally:
            work.show_progress(name, 1, 1)

    for name in [name for name in everything if name not in found]:
        work.show_progress("methods", len(found), len(everything))
        found[name] = attempt(name)
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
