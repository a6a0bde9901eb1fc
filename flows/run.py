"""A run: its steps in their order, in this process or by Prefect.

Nothing here imports Prefect, because that takes longer than a small selection.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from bigfs import storage
from bigfs.flows import reuse
from bigfs.flows.job import Job, Request
from bigfs.flows.messages import inform, say
from bigfs.flows.options import ClusterOptions
from bigfs.selectors.registry import BY_TARGET, WITHOUT_TARGET
from bigfs.settings import Setting
from bigfs.storage.errors import StoreError, may_pass, redact
from bigfs.storage.runs.checkpoints import to_json_types
from bigfs.storage.runs.runs import (
    Run,
    RunError,
    discard_unfinished,
    lock_run,
    record_failure,
    require_out,
)

if TYPE_CHECKING:
    from bigfs.flows.plan import Plan

Call = Callable[..., Any]  # `call(step, request, ...)` returns `step(request, ...)`
RETRIES = Setting(4)  # of a step after an error that may pass
FIRST_WAIT = Setting(5.0)  # seconds before the first retry; each later one waits twice as long
JITTER = 0.5  # share of a wait that is random, so that jobs do not return at once


# --- the order ------------------------------------------------------------------------------------


def run(
    job: Job,
    call: Call | None = None,
    *,
    cluster: Callable[[ClusterOptions], AbstractContextManager[Any]] = ClusterOptions.start,
    scored: bool = True,
    loaded: str = "Python, Dask",
) -> str:
    """Do the steps of a job that `prepare` gave. Returns the directory of the run.

    The state on disk is asked once the name of the run is held, and the store is read as it is
    then.
    """
    from bigfs.flows import steps  # scikit-learn, while the workers start
    from bigfs.flows.evaluation import selection
    from bigfs.flows.forecast import forecast, past_runs
    from bigfs.flows.plan import Plan
    from bigfs.flows.report.provenance import start_up
    from bigfs.storage.format import manifest
    from bigfs.storage.opening import hold_store

    call, reads_store = call or try_again, job.store == manifest.normalize_uri(job.source)
    selection.require_parameters(job.method, job.features, job.parameters)
    with lock_run(job.folder, waits=job.waits), keeping_failures(job.folder, BaseException):
        require_own(job)
        with cluster(job.engine):
            earlier = [start_up(loaded)]
            if not reads_store:
                earlier.append(call(steps.stage, job))
                for name in ("read", "other"):
                    if name in earlier[-1]:
                        inform(earlier[-1][name], about=name)
                job = job.model_copy(update={"store": earlier[-1]["store"]})
            with hold_store(str(job.store)) as corpus:
                plan = Plan.of(job, corpus)
                if job.method is None and plan.method != "sparge-lda":
                    inform(selection.default_note(corpus, plan.method))
                found = find_result(plan, scored)
                if found is None:
                    line = forecast(plan, list(past_runs(job.folder)), scored=scored)
                    if line is not None:
                        inform(line, about="forecast")
                if steps.needs_graph(plan):
                    earlier.append(call(steps.graph, plan))
                result = call(steps.select, plan, earlier, found)
                if scored:
                    result = call(steps.evaluate, plan, result)
                call(steps.report, plan, result)
    return job.folder


def prepare(job: Job) -> Job:
    """Return a job with its directory and its store, or refuse it before any work."""
    job = job.with_out()
    require_out(job.folder)
    with keeping_failures(job.folder, StoreError, OSError):
        store = store_of(job)
    if os.path.realpath(store) == os.path.realpath(job.folder):
        raise ValueError(f"--out and --store are one path, {job.folder}: give two")
    job = job.model_copy(update={"store": store})
    require_own(job)
    return job


@contextlib.contextmanager
def keeping_failures(folder: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Write next to the results of a run that the block failed, or was cancelled by Ctrl-C, a
    signal or Prefect, so that its history shows it.
    """
    try:
        yield
    except kinds as error:
        reason = " ".join(str(error).split()) if isinstance(error, Exception) else "cancelled"
        record_failure(folder, reason or type(error).__name__)
        raise


def is_done(job: Job, *, scored: bool = True) -> bool:
    """Return whether the run is finished, and of this job and this content of its source.

    The source is looked at only if there is such a run.
    """
    from bigfs.storage.staging.stage import is_staged

    job = job.with_out()
    try:
        found = Run.open(job.folder)
    except RunError:
        return False
    if job.fresh or not reuse.is_selected(found):
        return False
    with keeping_failures(job.folder, StoreError, OSError):
        store = store_of(job)
        is_there = is_store(job) or is_staged(job.staging)
    if not is_there:
        return False
    corpus = storage.open(store)
    if found.metadata["key"] != job.with_method(corpus).key(corpus.spec):
        return False
    is_scored = not scored or reuse.is_scored(found, job.scoring.choices())
    return reuse.is_reported(found) and is_scored


# --- refused before any work ----------------------------------------------------------------------


def is_store(request: Request) -> bool:
    """Return whether a source is a staged corpus, or is to be read in place."""
    from bigfs.storage.format import manifest

    source = manifest.normalize_uri(request.source)
    in_place = request.store is not None and manifest.normalize_uri(request.store) == source
    return in_place or manifest.exists(source)


def store_of(request: Request) -> str:
    """Return the path or URL of the store that a source has or gets."""
    from bigfs.storage.format import manifest

    if not is_store(request):
        return str(request.staging.uri)
    if given := sorted(request.corpus["settings"]):
        raise ValueError(
            f"{redact(request.source)} is a staged corpus, and {given[0]} is for staging: "
            f"leave it out"
        )
    return manifest.normalize_uri(request.source)


def require_own(job: Job) -> None:
    """Refuse a directory with the result of another question, unless it is to be replaced."""
    from bigfs.flows.report.summary import count_of_features

    try:
        run = Run.open(job.folder)
    except RunError:
        return
    parameters, names = run.metadata["parameters"], ("method", "features", "parameters", "metric")
    held = {name: parameters[name] for name in names if name in parameters}
    is_corpus = job.store == parameters["store"] or run.metadata.get("corpus") in (None, job.corpus)
    question = to_json_types(job.question)
    if job.method is None and held["method"] in (*BY_TARGET.values(), WITHOUT_TARGET):
        question["method"] = held["method"]
    if job.fresh or (is_corpus and held == question):
        return
    source = run.metadata.get("corpus", {}).get("source", parameters["store"])
    raise RunError(
        f"{job.out} holds another result ({count_of_features(run.metadata)} of {source} by "
        f"{held['method']}): give another --out, or --fresh to replace it"
    )


def find_result(plan: Plan, scored: bool) -> Run | None:
    """Refuse options that do not suit the corpus, and return the result of the plan's key on disk.

    It says which result is replaced.
    """
    from bigfs.evaluation.metrics import require_metrics
    from bigfs.flows.evaluation import plan as evaluation
    from bigfs.flows.evaluation import selection

    job, corpus, choices = plan.job, plan.corpus, plan.job.scoring.choices()
    entry = selection.get_method(plan.method)
    selection.selector_for(corpus, plan.method, plan.features, job.question["parameters"])
    if scored:
        evaluation.require_choices(corpus, entry, plan.features, choices)
    else:
        require_metrics(corpus.spec["target"] or "class", choices.get("metrics", ()))
    if job.features is None and plan.features < selection.MOST:
        d = corpus.X.shape[1]
        inform(f"{plan.features} of {d} features are selected: --features gives another number")
    if job.fresh:
        discard_unfinished(job.folder)
        return None
    held = reuse.find_run(job.folder, plan.key)
    if held is None and reuse.find_run(job.folder) is not None:
        inform(
            f"{job.out} holds the result of an earlier state of {job.corpus['source']} or of "
            f"bigfs: it is kept, and `bigfs history {job.out}` lists it"
        )
    if held is None or held.unfinished:
        return held
    if not reuse.is_selected(held):
        inform(f"{job.out} is damaged, or ended for lack of memory: it is made again")
    elif scored and "curves" in held.metadata and not reuse.is_scored(held, choices):
        is_same = held.metadata.get("scoring") == choices
        why = "because its scores are damaged" if is_same else "by other choices"
        inform(f"{job.out} is scored again, {why}")
    return held


# --- errors ---------------------------------------------------------------------------------------


def try_again(step: Callable[..., Any], *arguments: Any) -> Any:
    """Call a step in this process, and again after an error that may pass. A `Call`."""
    for retry in range(RETRIES.value + 1):
        try:
            return step(*arguments)
        except Exception as error:
            if retry == RETRIES.value or not may_pass(error):
                raise
            wait = FIRST_WAIT.value * 2**retry * (1 + JITTER * random.random())
            text = " ".join(str(error).split())
            say(f"{step.__name__}: {text}; trying again in {wait:.0f} s", "warning")
            time.sleep(wait)
    raise AssertionError  # not reached
