"""The command line. Heavy libraries are imported by the command that needs them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from typer.exceptions import TyperException

from bigfs.blocks import ClusterLost
from flows import signals
from flows.cli import mount, parameters_of, quiet_prefect
from flows.options import Engine, Features, Json, Method, Out, Set, Source, Staging, Store, unfolded

app = typer.Typer(
    help="Feature selection for data that does not fit in memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out_console = Console(markup=False, emoji=False)  # paths, names and labels are printed as they are

state: dict[str, Any] = {"debug": False}
INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt


@app.callback()
def common(debug: Annotated[bool, typer.Option(help="show the traceback of an error")] = False) -> None:
    state["debug"] = debug


# --- the main job ---------------------------------------------------------------------------------


@app.command()
@unfolded
def run(
    source: Source,
    method: Method = "sparge-lda",
    features: Features = 500,
    out: Out = None,
    store: Annotated[str | None, typer.Option(help="where the staged corpus lies (default: .bigfs/NAME-KEY.zarr)")] = None,
    set_: Set = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="select, evaluate and report again, even where the result is there")] = False,
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
    with quiet_prefect(state["debug"]), _progress(as_json):
        from flows.pipeline import pipeline

        path = pipeline(source, method, features, store, out, staging, parameters, engine, fresh=fresh)
    _say_run(str(path), as_json)


@app.command()
@unfolded
def stage(
    source: Source,
    store: Annotated[str, typer.Argument(help="where to put it: a path or an fsspec URL")],
    *,
    staging: Staging,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Stage a source as a corpus store; one that is there already is reused."""
    from flows import stages
    from storage.sources import find

    find(source, format=staging.format)
    with _alone(store), _running(engine, as_json):
        record = stages.stage(source, store, staging.model_dump() | {"memory_limit": engine.staging_memory})
    _say(record, as_json, f"{'reused' if record['reused'] else 'staged'} {record['store']} in {record['seconds']:.1f} s")


@app.command()
@unfolded
def append(
    source: Source,
    store: Annotated[str, typer.Argument(help="a staged corpus on a local disk")],
    format: Annotated[str | None, typer.Option(help="of the source (default: guessed from its content)")] = None,
    split: Annotated[str, typer.Option(help="train or test: where samples go that have none, in a store with both")] = "train",
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Add the samples of a source to a store; what was added already is not added again."""
    import storage
    from storage import layout
    from storage.sources import find

    if not layout.exists(store) and "://" not in source and layout.exists(source):
        print("bigfs append: give the source first and the store second; the other order ends with the next version", file=sys.stderr)
        source, store = store, source
    before = storage.open(store).X.shape[0]
    find(source, format=format)
    with _alone(store), _running(engine, as_json):
        uri = storage.append(source, store, format=format, split=split, memory_limit=engine.staging_memory)
    n = storage.open(uri).X.shape[0]
    text = f"{n - before:,} samples joined {uri}, which has {n:,} now" if n > before else f"{uri} has the samples of {source} already"
    _say({"store": uri, "added": n - before, "samples": n}, as_json, text)


@app.command()
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
    with _alone(out), _running(engine, as_json):
        path = stages.finish(stages.select(store, out, method=method, features=features, parameters=parameters))
    _say_run(str(path), as_json)


@app.command()
@unfolded
def evaluate(
    run: Annotated[str, typer.Argument(help="a run's directory")],
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Accuracy curves of a run, beside the baselines' and all features'; the report is written anew."""
    import storage
    from flows import stages
    from storage.runs import Run, recover

    storage.open(Run.open(run).about["parameters"]["store"])  # what is missing is said before anything starts
    with _alone(run), _running(engine, as_json):
        recover(run)
        stages.evaluate(Run.open(run))
        stages.finish(run)
    _say_run(run, as_json)


@app.command()
def transform(
    run: Annotated[str, typer.Argument(help="a run's directory")],
    store: Store,
    out: Annotated[str, typer.Argument(help="the .npz file to write")],
) -> None:
    """Write the columns that a run selected from a store, best first, as a scipy.sparse .npz."""
    from flows import stages

    with _alone(out):
        path = stages.transform(run, store, out)
    _say({}, False, str(path))


@app.command()
@unfolded
def graph(
    store: Store,
    k: Annotated[int, typer.Option(min=1, help="neighbours of a sample")] = 10,
    metric: Annotated[str, typer.Option(help="cosine or euclidean")] = "cosine",
    knn: Annotated[str, typer.Option(help="exact, approx or auto")] = "auto",
    recall: Annotated[float, typer.Option(min=0, max=1, help="share of the true neighbours that approx must find")] = 0.95,
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """The kNN graph of a corpus, kept beside its store; one that is there already is reused."""
    import storage

    corpus = storage.open(store)
    with _alone(f"{store.rstrip('/').removesuffix('.zarr')}.graphs"), _running(engine, as_json):
        made = storage.graph(corpus, k, metric=metric, method=knn, recall=recall)
    _say({"graph": made.uri, **made.info}, as_json, f"{made.uri}: {made.info['method']}, {made.info['why']}")


# --- looking --------------------------------------------------------------------------------------


@app.command()
def methods(as_json: Json = False) -> None:
    """The methods and what each is."""
    from bigfs.selectors import METHODS

    if as_json:
        print(json.dumps({name: method.about for name, method in METHODS.items()}, ensure_ascii=False))
        return
    table = Table("method", "what it is", box=None, pad_edge=False)
    for name, method in METHODS.items():
        table.add_row(name, method.about)
    out_console.print(table)


mount(app)


@app.command()
def datasets(as_json: Json = False) -> None:
    """The corpora that are known by name: public ones, and generated ones at their scale."""
    from storage.catalogue import ENTRIES
    from storage.sources.generators import Text
    from storage.sources.synthetic import CORPORA, PREFIX

    known = [(name, *entry.shape, entry.classes, entry.title) for name, entry in ENTRIES.items()]
    for name, spec in CORPORA.items():
        d = spec.d if isinstance(spec, Text) else spec.shape[0] * spec.shape[1]
        known.append((PREFIX + name, spec.n, d, len(spec.classes), "generated"))
    if as_json:
        columns = ("name", "samples", "features", "classes", "title")
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in known], ensure_ascii=False))
        return
    table = Table("name", "samples", "features", "classes", "what it is", box=None, pad_edge=False)
    for name, n, d, classes, title in known:
        table.add_row(name, f"{n:,}", f"{d:,}" if d else "text", f"{classes:,}", title)
    for column in table.columns[1:4]:
        column.justify = "right"
    out_console.print(table)


@app.command()
def info(store: Store, as_json: Json = False) -> None:
    """What a store holds, its size by layout, and how it was made."""
    import storage

    facts = storage.info(store)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False, default=str))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        table.add_row(name, _readable(value))
    out_console.print(table)


@app.command()
@unfolded
def check(
    store: Store,
    *,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Read everything in a store and compare it with what was written; non-zero if anything is wrong."""
    import storage

    with _running(engine, as_json):
        report = storage.check(store)
    wrong = "\n".join(report.problems)
    _say(report._asdict(), as_json, wrong or f"{report.uri} is whole: {report.documents:,} documents read")
    if report.problems:
        raise typer.Exit(1)


# --- how it speaks --------------------------------------------------------------------------------


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(item)}" for name, item in value.items()) or "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def _progress(as_json: bool) -> Iterator[None]:
    from flows.progress import shown

    with shown(enabled=not as_json):
        yield


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """Inside, no other command works on `place`; people see what is waited for."""
    from flows.locks import alone

    with alone([place], wait=True, say=lambda text: print(f"bigfs: {text}", file=sys.stderr, flush=True)):
        yield


@contextmanager
def _running(engine: Engine, as_json: bool) -> Iterator[None]:
    """Inside, tiles are worked on where `engine` says, and people see how far they are."""
    with engine.cluster(), _progress(as_json):
        yield


def _say(record: dict[str, Any], as_json: bool, text: str) -> None:
    if as_json:
        print(json.dumps(record, ensure_ascii=False, default=str))
    else:
        out_console.print(text, highlight=False, soft_wrap=True)


def _say_run(path: str, as_json: bool) -> None:
    from flows.report import metric_names, score_table
    from storage.runs import Run

    done = Run.open(path)
    if as_json:
        print(json.dumps({"run": path, **done.about}, ensure_ascii=False))
        return
    scores = score_table(done.about)
    if scores is not None:
        table = Table(
            f"{metric_names(done.about)} with", *(Column(f"{k:,}", no_wrap=True) for k in scores["counts"]), box=None, pad_edge=False
        )
        for name, values in scores["rows"]:
            table.add_row(name, *values)
        out_console.print(table)
        if scores["all"]:
            out_console.print(f"all {scores['all'][0]:,} features  {scores['all'][1]}", highlight=False)
    if "evaluation" in done.about:
        out_console.print(done.about["evaluation"], highlight=False, markup=False, soft_wrap=True)
    last = done.about["history"][-1] if done.about.get("history") else {}
    gap = f" (gap {100 * last['gap']:.2f} %)" if "gap" in last else ""
    out_console.print(f"{done.about['parameters']['method']}: {done.about['status']}{gap}", highlight=False, soft_wrap=True)
    out_console.print(f"report: {Path(path) / 'report.html'}", highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line; an error is one line on stderr and a non-zero exit status."""
    with signals.heeded():
        status = _run()
        if status == INTERRUPTED:
            raise KeyboardInterrupt
    sys.exit(status)


def _run() -> int:
    """Run one command. Returns its exit status."""
    try:
        status = app(standalone_mode=False)
    except (TyperException, ValueError, OSError, MemoryError, ClusterLost) as error:
        if state["debug"]:
            raise
        usage = isinstance(error, TyperException)
        say = getattr(error, "format_message", error.__str__)
        text = say() or type(error).__name__
        print(f"bigfs: {' '.join(text.split())}", file=sys.stderr)
        return 2 if usage else 1
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    main()
