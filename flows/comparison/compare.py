"""A comparison: methods × sizes × parameters on the same samples of one corpus.

The corpus is staged once, and its graph is made once. A method that fails or is late is a row with
the reason, and the others continue. Nothing here imports Prefect, because that takes longer than a
small comparison.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from bigfs import engine as work
from bigfs.coding.dictionary import SpamsMissingError
from bigfs.engine import ClusterLostError
from bigfs.flows.comparison.bench import Bench
from bigfs.flows.comparison.external import ExternalSelector
from bigfs.flows.comparison.files import (
    COMPARISON,
    hold_corpus,
    make_record,
    read_comparison,
    require_folder,
    write_record,
)
from bigfs.flows.comparison.outcomes import Outcome
from bigfs.flows.comparison.report import comparison_page
from bigfs.flows.comparison.request import Comparison
from bigfs.flows.comparison.standings import csv_rows, make_standings, markdown
from bigfs.flows.comparison.time_limit import TimeLimitError, time_limit
from bigfs.flows.evaluation import controls, selection
from bigfs.flows.evaluation import plan as evaluation
from bigfs.flows.forecast import forecast_methods, past_runs
from bigfs.flows.messages import inform
from bigfs.flows.options import ClusterOptions
from bigfs.flows.run import Call, store_of, try_again
from bigfs.result import ALL
from bigfs.selectors.registry import METHODS
from bigfs.storage import atomic

# errors that a row tells; any other one ends the comparison
REFUSALS = (ValueError, MemoryError, ClusterLostError, TimeoutError, SpamsMissingError)


def run_method(request: Comparison, bench: Bench, name: str) -> Outcome:
    """Choose by a method and score its choices."""
    with time_limit(request.timeout):
        return bench.run(name)


def compare(
    request: Comparison,
    call: Call = try_again,
    *,
    cluster: Callable[[ClusterOptions], AbstractContextManager[Any]] = ClusterOptions.start,
) -> str:
    """Stage the source, run the methods and write the files. Returns the directory."""
    began, request = time.perf_counter(), prepare(request)
    folder = Path(request.folder)
    with hold_corpus(request, COMPARISON, call, cluster) as request:
        bench = Bench(request)
        request = bench.request
        with atomic.explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        outcomes, failures, reused = run_methods(request, bench, call)
        how = evaluation.describe(bench.measured | controls.protocol_of(bench.draws))
        about = make_record(
            *(request, COMPARISON, bench.corpus, began),
            evaluation=how + bench.describe_constraints(),
            measured=bench.measured,
            constraints=bench.constraints,
            **make_standings(bench, outcomes, failures),
            graph_seconds=bench.graph_seconds,
            reused=reused,
        )
        texts = {"compare.md": markdown(about), "report.html": comparison_page(about, COMPARISON)}
        write_record(folder, COMPARISON, about, csv_rows(about), texts)
    return request.folder


def prepare(request: Comparison) -> Comparison:
    """Return a comparison with its directory and its store, or refuse it before any work."""
    request = request.with_out()
    for name, parameters in request.variants().items():
        selection.require_parameters(name.partition(" ")[0], 1, parameters)
    request.names()
    for place in request.selectors or []:
        ExternalSelector(place).identity()
    request = request.model_copy(update={"store": store_of(request)})
    require_folder(Path(request.folder))
    return request


def require_result(folder: str) -> None:
    """Refuse to call a comparison done in which no method finished."""
    rows = read_comparison(folder)["rows"]
    if all(row["error"] for row in rows):
        reasons = "; ".join(f"{row['method']}: {row['error']}" for row in rows)
        raise ValueError(f"no method finished: {reasons}")


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
    left = [name for name in everything if name not in found]
    methods = [method for name in left if (method := name.partition(" ")[0]) in METHODS]
    past = list(past_runs(request.folder))
    line = forecast_methods(bench.corpus, methods, request.scoring.protocol, past)
    if line is not None:
        inform(line, about="forecast")

    def attempt(name: str) -> Outcome | str:
        """Return the outcome, or the reason of a failure."""
        work.show_progress(name, 0, 1)
        try:
            return call(run_method, request, bench, name)
        except TimeLimitError:
            late = f"it took longer than {request.timeout:g} s"
            return f"{late}, and goes on from its last step when repeated"
        except REFUSALS as error:
            return " ".join(str(error).split()) or type(error).__name__
        finally:
            work.show_progress(name, 1, 1)

    for name in left:
        work.show_progress("methods", len(found), len(everything))
        found[name] = attempt(name)
    work.show_progress("methods", len(everything), len(everything))
    outcomes = [result for name in everything if isinstance(result := found[name], Outcome)]
    failures = {name: result for name in names if isinstance(result := found[name], str)}
    return outcomes, failures, reused
