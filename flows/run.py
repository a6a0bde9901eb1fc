"""A run: its steps in their order, in this process or by Prefect.

Nothing here imports Prefect, because that takes longer than a small selection.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from bigfs.flows import reuse
from bigfs.flows.job import Job, Request
from bigfs.flows.messages import inform, say
from bigfs.flows.options import Engine
from bigfs.storage.errors import may_pass, redacted
from bigfs.storage.runs.checkpoints import to_json_types
from bigfs.storage.runs.earlier import kept_folder
from bigfs.storage.runs.runs import Run, RunError, lock_run, recover, require_out

from bigfs import storage

Call = Callable[..., Any]  # `call(step, request, ...)` returns `step(request, ...)`
RETRIES = 4  # of a step after an error that may pass
FIRST_WAIT = 5.0  # seconds before the first retry; each later one waits twice as long
JITTER = 0.5  # share of a wait that is random, so that jobs do not return at once


# --- the order ------------------------------------------------------------------------------------


def run(
    job: Job,
    call: Call | None = None,
    *,
    cluster: Callable[[Engine], AbstractContextManager[Any]] = Engine.start,
    scored: bool = True,
    loaded: str = "Python, Dask",
) -> str:
    """Do the steps of a job whose results are not on disk. Returns the directory of the run."""
    from bigfs.flows import steps  # scikit-learn, while the workers start
    from bigfs.flows.evaluation import selection
    from bigfs.flows.report.provenance import start_up

    call, reads_store = call or try_again, is_store(job)
    selection.require_parameters(job.method, job.features, job.parameters)
    with lock_run(job.folder, waits=job.waits), cluster(job.engine):
        earlier = [start_up(loaded)]
        if not reads_store:
            earlier.append(call(steps.stage, job))
        require_suitable(job, scored)
        if steps.needs_graph(job):
            earlier.append(call(steps.graph, job))
        call(steps.select, job, earlier)
        if scored:
            call(steps.evaluate, job)
        call(steps.report, job)
    return job.folder


def prepare(job: Job) -> Job:
    """Return a job with its directory and its store, or refuse it before any work."""
    job = job.with_out()
    require_out(job.folder)
    job = job.model_copy(update={"store": store_of(job)})
    require_own(job)
    return job


def is_done(job: Job, *, scored: bool = True) -> bool:
    """Return whether the run is finished, and of this job and this content of its source.

    The source is looked at only if there is such a run.
    """
    job = job.with_out()
    try:
        found = Run.open(job.folder)
    except RunError:
        return False
    if job.fresh or not reuse.is_selected(found):
        return False
    in_place = store_of(job) if is_store(job) else None
    store = in_place or storage.staged(job.source, job.store, **job.settings.chosen())
    if store is None:
        return False
    run = reuse.find_run(job.folder, job.key(storage.open(store).spec, store))
    if run is None or not reuse.is_reported(run) or not reuse.is_selected(run):
        return False
    return not scored or reuse.is_scored(run, job.scoring.choices())


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
    from bigfs.storage.staging.stage import make_plan

    if not is_store(request):
        return make_plan(request.source, request.store, **request.settings.chosen()).uri
    if given := sorted(request.corpus["settings"]):
        raise ValueError(
            f"{redacted(request.source)} is a staged corpus, and {given[0]} is for staging: "
            f"leave it out"
        )
    return manifest.normalize_uri(request.source)


def require_own(job: Job) -> None:
    """Refuse a directory with the result of another question, unless it is to be replaced."""
    try:
        run = Run.open(job.folder)
    except RunError:
        return
    parameters, names = run.metadata["parameters"], ("method", "features", "parameters", "metric")
    held = {name: parameters[name] for name in names if name in parameters}
    is_corpus = job.store == parameters["store"] or run.metadata.get("corpus") in (None, job.corpus)
    if job.fresh or (is_corpus and held == to_json_types(job.question)):
        return
    source = run.metadata.get("corpus", {}).get("source", parameters["store"])
    raise RunError(
        f"{job.out} holds another result ({held['features']} features of {source} by "
        f"{held['method']}): give another --out, or --fresh to replace it"
    )


def require_suitable(job: Job, scored: bool) -> None:
    """Refuse what does not suit the corpus, and say what is replaced."""
    from bigfs.flows import steps
    from bigfs.flows.evaluation import plan as evaluation
    from bigfs.flows.evaluation import selection

    from bigfs.evaluation.metrics import require_metrics

    recover(job.folder)
    corpus, choices = storage.open(str(job.store)), job.scoring.choices()
    selection.selector_for(corpus, job.method, job.features, job.question["parameters"])
    if scored:
        evaluation.require_choices(corpus, job.features, **choices)
    else:
        require_metrics(corpus.spec["target"] or "class", choices.get("metrics", ()))
    held = None if job.fresh else reuse.find_run(job.folder)
    if held is None or held.path != held.final:
        return
    if held.metadata.get("key") != steps.key_of(job):
        inform(
            f"{job.out} holds the result of an earlier state of {job.corpus['source']} or of "
            f"bigfs: it is replaced, and kept in {kept_folder(job.folder)}"
        )
    elif scored and "curves" in held.metadata and not reuse.is_scored(held, choices):
        inform(f"{job.out} is scored again, by other choices")


# --- errors ---------------------------------------------------------------------------------------


def try_again(step: Callable[..., Any], *arguments: Any) -> Any:
    """Call a step in this process, and again after an error that may pass. A `Call`."""
    for retry in range(RETRIES + 1):
        try:
            return step(*arguments)
        except Exception as error:
            if retry == RETRIES or not may_pass(error):
                raise
            wait = FIRST_WAIT * 2**retry * (1 + JITTER * random.random())
            text = " ".join(str(error).split())
            say(f"{step.__name__}: {text}; trying again in {wait:.0f} s", "warning")
            time.sleep(wait)
    raise AssertionError  # not reached
