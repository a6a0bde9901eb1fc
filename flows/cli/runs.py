"""The commands on runs: run, graph, select, evaluate, transform, methods."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from flows.cli.options import (
    Features,
    Json,
    Method,
    Out,
    Set,
    Source,
    Store,
    parameters_of,
    unfolded,
)
from flows.cli.output import (
    exclusively,
    out_console,
    print_record,
    print_run,
    show_progress,
    state,
    working,
)
from flows.cli.servers import quiet_prefect
from flows.options import Engine, Staging


@unfolded
def run(
    source: Source,
    method: Method = "sparge-lda",
    features: Features = 500,
    out: Out = None,
    store: Annotated[
        str | None,
        typer.Option(help="where the staged corpus lies (default: .bigfs/NAME-KEY.zarr)"),
    ] = None,
    set_: Set = None,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="select, evaluate and report again, even where the result is there"
        ),
    ] = False,
    *,
    staging: Staging,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """The main job as a Prefect flow: stage, graph, select, evaluate, report."""
    from flows import stages
    from storage.runs import require_out
    from storage.sources import find

    parameters = parameters_of(set_)
    stages.require_parameters(method, features, parameters)
    require_out(out or stages.default_out(source, method, features))
    find(source, format=staging.format)  # what can't be read is said before anything starts
    with quiet_prefect(state["debug"]), show_progress(as_json):
        from flows.pipeline import pipeline

        path = pipeline(
            source, method, features, store, out, staging, parameters, engine, fresh=fresh
        )
    print_run(str(path), as_json)


@unfolded
def select(
    store: Store,
    out: Annotated[str, typer.Option(help="the run's directory")],
    method: Method = "sparge-lda",
    features: Features = 500,
    set_: Set = None,
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Select features of a staged corpus; a killed run goes on from its last checkpoint."""
    import storage
    from flows import stages
    from storage.runs import require_out

    parameters = parameters_of(set_)
    stages.require_parameters(method, features, parameters)
    stages.selector_for(storage.open(store), method, features, parameters)
    require_out(out)
    with exclusively(out), working(engine, as_json):
        path = stages.finish(
            stages.select(store, out, method=method, features=features, parameters=parameters)
        )
    print_run(str(path), as_json)


@unfolded
def evaluate(
    run: Annotated[str, typer.Argument(help="a run's directory")],
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Accuracy curves of a run, beside the baselines' and all features'; the report is written
    anew.
    """
    import storage
    from flows import stages
    from storage.runs import Run, recover

    # what is missing is said before anything starts
    storage.open(Run.open(run).about["parameters"]["store"])
    with exclusively(run), working(engine, as_json):
        recover(run)
        stages.evaluate(Run.open(run))
        stages.finish(run)
    print_run(run, as_json)


def transform(
    run: Annotated[str, typer.Argument(help="a run's directory")],
    store: Store,
    out: Annotated[str, typer.Argument(help="the .npz file to write")],
) -> None:
    """Write the columns that a run selected from a store, best first, as a scipy.sparse .npz."""
    from flows import stages

    with exclusively(out):
        path = stages.transform(run, store, out)
    print_record({}, False, str(path))


@unfolded
def graph(
    store: Store,
    k: Annotated[int, typer.Option(min=1, help="neighbours of a sample")] = 10,
    metric: Annotated[str, typer.Option(help="cosine or euclidean")] = "cosine",
    knn: Annotated[str, typer.Option(help="exact, approx or auto")] = "auto",
    recall: Annotated[
        float, typer.Option(min=0, max=1, help="share of the true neighbours that approx must find")
    ] = 0.95,
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """The kNN graph of a corpus, kept beside its store; one that is there already is reused."""
    import storage

    corpus = storage.open(store)
    with exclusively(f"{store.rstrip('/').removesuffix('.zarr')}.graphs"), working(engine, as_json):
        made = storage.graph(corpus, k, metric=metric, method=knn, recall=recall)
    print_record(
        {"graph": made.uri, **made.info},
        as_json,
        f"{made.uri}: {made.info['method']}, {made.info['why']}",
    )


def methods(as_json: Json = False) -> None:
    """The methods and what each is."""
    from bigfs.selectors.registry import METHODS

    if as_json:
        print(
            json.dumps({name: method.about for name, method in METHODS.items()}, ensure_ascii=False)
        )
        return
    table = Table("method", "what it is", box=None, pad_edge=False)
    for name, method in METHODS.items():
        table.add_row(name, method.about)
    out_console.print(table)
