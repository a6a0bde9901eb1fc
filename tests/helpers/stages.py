"""The steps of a run by keywords, for tests that look at one of them: always done, never reused."""

from bigfs.flows import steps
from bigfs.flows.job import Job, Request
from bigfs.flows.options import ClusterOptions, RunScoring
from bigfs.flows.plan import Plan
from bigfs.flows.run import store_of


def stage(source, store=None, settings=None):
    """Stage a source with the memory that is free; gives the record of the step."""
    engine = ClusterOptions(memory_limit="auto")
    request = Request(source=str(source), store=store, settings=settings or {}, engine=engine)
    return steps.stage(request.model_copy(update={"store": store_of(request)}))


def build_graph(store, method, parameters=None):
    """Give the record of the graph, or None where the method uses none beside the store."""
    job = Job(source=store, store=store, method=method, parameters=parameters or {})
    plan = Plan.of(job)
    return steps.graph(plan) if steps.needs_graph(plan) else None


def select(store, out, *, earlier=(), metric=None, **job):
    """Select features; gives the unfinished run."""
    given = {"source": str(store), "store": str(store), "out": str(out)}
    return steps.select(
        Plan.of(Job(scoring=RunScoring(metrics=metric and [metric]), **(given | job))), earlier
    )


def evaluate(run, **choices):
    """Score a run; gives the points of its curves."""
    return steps.score(run, choices)


def finish(run):
    """Write the report and finish the run; gives its directory."""
    steps.write_page(run)
    return run.finish()
