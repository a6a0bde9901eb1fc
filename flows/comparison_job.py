"""A comparison: several methods on the same samples of one corpus, at the same numbers of features.

The corpus is staged once, and its graph is made once. A method that fails or is late is a row with
the reason, and the others go on. `run_comparison` does it in this process. `flows.compare` does the
same with Prefect. Nothing here imports Prefect, because that takes longer than a small comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from bigfs import engine as work
from bigfs.coding.dictionary import NoSpams
from bigfs.engine import ClusterLost
from bigfs.metrics import METRICS
from bigfs.result import ALL
from bigfs.synonyms import canonical_name
from flows import evaluation, job
from flows.bench import Bench
from flows.comparison_report import write_comparison
from flows.locks import exclusive
from flows.options import Engine, Staging
from flows.outcomes import Outcome
from flows.report import corpus_facts
from flows.reuse import source_name
from flows.selection import CONSTRAINTS, get_method
from flows.side_by_side import run_side_by_side
from flows.standings import FORMAT, csv_rows, make_standings, markdown, require_folder
from flows.time_limit import time_limit
from storage import atomic
from storage.checkpoints import plain
from storage.format import manifest
from storage.runs import write_csv
from storage.staging.plan import Plan

# errors that a row tells; any other one ends the comparison
REFUSALS = (ValueError, MemoryError, ClusterLost, TimeoutError, NoSpams)
RunMethod = Callable[[Bench, str, float], Outcome]  # by the method's name, with the limit of time


class Choices(NamedTuple):
    """What is compared, and how it is scored."""

    methods: list[str]
    sizes: list[int]
    metrics: list[str]
    folds: int | None
    test_size: float | None
    subsamples: int | None
    at_once: int = 1
    constraints: Mapping[str, Any] | None = None  # features to "keep" and to "forbid"


class ComparisonPlan(NamedTuple):
    """A comparison that nothing was refused of yet."""

    source: str
    store: str  # path or URL
    staging: Plan | None  # None where the source is a store
    settings: Staging
    folder: Path
    choices: Choices

    @property
    def paths(self) -> list[str]:
        """The paths that only one process may work on."""
        return [self.store, str(self.folder)]


def plan_comparison(
    source: str, store: str | None, out: str | None, settings: Staging, choices: Choices
) -> ComparisonPlan:
    """Check the choices of a comparison, and find its paths.

    Raises
    ------
    ValueError
        A method, a metric or a constraint does not exist, or both folds and a share to hold out are
        given.
    """
    folder = Path(out or f"runs/{source_name(source)}-comparison")
    names = require_methods(choices.methods)
    require_metric_names(choices.metrics)
    if choices.folds is not None and choices.test_size is not None:
        raise ValueError("folds and test_size exclude one another: give one of them")
    if unknown := sorted(set(choices.constraints or {}) - set(CONSTRAINTS)):
        raise ValueError(f"constraints are keep and forbid; got {unknown[0]!r}")
    require_folder(folder)
    is_store = manifest.exists(manifest.absolute(source))
    staging = None if is_store else job.plan_store(source, store, settings)
    uri = source if staging is None else staging.uri
    own = choices._replace(methods=names, sizes=sorted(set(choices.sizes)))
    return ComparisonPlan(source, uri, staging, settings, folder, own)


def run_in_time(bench: Bench, method: str, timeout: float) -> Outcome:
    """Choose by a method and score its choices, in this process. A `RunMethod`."""
    with time_limit(timeout):
        return bench.run(method)


def run_comparison(
    plan: ComparisonPlan,
    engine: Engine,
    *,
    fresh: bool = False,
    timeout: float,
    run: RunMethod = run_in_time,
) -> str:
    """Compare in this process, as `flows.compare.compare` does with Prefect.

    Parameters
    ----------
    plan : ComparisonPlan
        What is compared.
    engine : Engine
        Where the work is done.
    fresh : bool, default=False
        Whether to run methods again whose results exist.
    timeout : float
        Seconds that one method may take, to choose and to be scored.
    run : callable, default=run_in_time
        Function of the bench, a method's name and the timeout. It returns the method's outcome, or
        raises `TimeoutError`.

    Returns
    -------
    str
        Directory of the comparison.

    Raises
    ------
    ValueError
        No method finished, or the corpus has nothing to predict.
    """
    options = job.StepOptions(fresh, timeout, engine.staging_memory)
    with exclusive(plan.paths, wait=True, say=job.say), engine.cluster():
        failures = carry_out(plan, options, job.do_step, run)
    require_result(plan, failures)
    return str(plan.folder)


def carry_out(
    plan: ComparisonPlan, options: job.StepOptions, do: job.DoStep, run: RunMethod
) -> dict[str, str]:
    """Stage the source, run the methods and write the files.

    Returns the reasons of the methods that failed.

    Raises
    ------
    ValueError
        The corpus has nothing to predict, or fewer features than the largest size.
    """
    began, folder, choices = time.perf_counter(), plan.folder, plan.choices
    if plan.staging is not None:
        job.stage_source(do, plan.staging, plan.source, plan.settings, options)
    names = choices.methods
    bench = Bench(
        plan.store,
        folder,
        names,
        choices.sizes,
        choices.metrics,
        folds=choices.folds,
        test_size=choices.test_size,
        subsamples=choices.subsamples or 0,
        constraints=choices.constraints,
    )
    with atomic.explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    outcomes, failures, reused = run_methods(bench, names, options, run, choices.at_once)
    comparison: dict[str, Any] = {
        "format": FORMAT,
        "corpus": facts_of(bench.corpus),
        "evaluation": evaluation.describe(bench.measured, tuple(names))
        + bench.describe_constraints(),
        "measured": bench.measured,
        "constraints": bench.constraints,
        **make_standings(bench, outcomes, failures),
        "seconds": time.perf_counter() - began,
        "graph_seconds": bench.graph_seconds,
        "reused": reused,
        "versions": {
            name: version(name) for name in ("bigfs", "dask", "numpy", "scipy", "scikit-learn")
        },
    }
    write_files(folder, comparison)
    return failures


def require_result(plan: ComparisonPlan, failures: Mapping[str, str]) -> None:
    """Refuse to call a comparison done in which no method finished."""
    if len(failures) == len(plan.choices.methods):
        raise ValueError(
            "no method finished: "
            + "; ".join(f"{name}: {reason}" for name, reason in failures.items())
        )


def run_methods(
    bench: Bench, names: list[str], options: job.StepOptions, run: RunMethod, at_once: int
) -> tuple[list[Outcome], dict[str, str], list[str]]:
    """Run the methods, and a model on all features where it fits in memory.

    With `at_once` above 1 they run side by side. A method whose projected memory does not fit
    beside the others then runs alone after them.

    Returns the outcomes, the reasons of those that failed, and the names of those whose earlier
    results were taken.
    """
    everything = [*names, ALL] if bench.can_take_all() else names
    found: dict[str, Outcome | str] = {}
    for name in [] if options.fresh else everything:
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
                return run(bench, name, options.timeout)
        except work.MemoryInUse:
            return None
        except REFUSALS as error:
            return reason(error, options.timeout)
        finally:
            work.show_progress(name, 1, 1)

    beside = [name for name in left if name != ALL]
    bench.at_once = min(at_once, len(beside))
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


def reason(error: BaseException, timeout: float) -> str:
    """Return why a method has no result, in one line."""
    if isinstance(error, TimeoutError):
        return f"it took longer than {timeout:g} s, and goes on from its last step when repeated"
    return " ".join(str(error).split()) or type(error).__name__


# --- refused before any work ----------------------------------------------------------------------


def require_methods(methods: list[str]) -> list[str]:
    """Return the names of the methods, each once.

    Raises
    ------
    ValueError
        A method does not exist.
    """
    for method in methods:
        get_method(method)
    return list(dict.fromkeys(map(canonical_name, methods)))


def require_metric_names(metrics: list[str]) -> None:
    """Refuse metrics that no kind of target has."""
    known = list(dict.fromkeys(name for names in METRICS.values() for name in names))
    if unknown := [name for name in metrics if name not in known]:
        raise ValueError(f"unknown metric {unknown[0]!r}; the metrics are {', '.join(known)}")


# --- files ----------------------------------------------------------------------------------------


def facts_of(corpus: Any) -> dict[str, Any]:
    """Return the facts about a corpus that the files of a comparison tell."""
    facts = corpus_facts(corpus)
    kept = {name: facts[name] for name in ("source", "store", "n", "d", "nnz", "split")}
    return kept | {"name": source_name(facts["source"])}


def write_files(folder: Path, comparison: Mapping[str, Any]) -> None:
    """Write compare.csv, compare.md, report.html and compare.json, each whole or not at all."""
    about = plain(dict(comparison))
    header, rows = csv_rows(about)
    title = f"Feature selection on {about['corpus']['name']}"
    with atomic.write(folder / "compare.csv") as part:
        write_csv(part, header, rows)
    with atomic.write(folder / "compare.md") as part:
        part.write_text(markdown(about, title, about["evaluation"]), encoding="utf-8")
    with atomic.write(folder / "report.html") as part:
        write_comparison(part, about)
    with atomic.write(folder / "compare.json") as part:
        part.write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
