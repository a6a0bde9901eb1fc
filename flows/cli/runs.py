"""The commands on runs: run, graph, select, evaluate, transform, predict, export, methods."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from rich.table import Table
from rich.text import Text

from bigfs.flows.cli.extras import require_extra
from bigfs.flows.cli.options import (
    REQUIRED,
    Fields,
    Json,
    UsageError,
    WithPrefect,
)
from bigfs.flows.cli.output import (
    cluster_and_progress,
    print_json,
    print_lines,
    print_record,
    print_rows,
    print_run,
    show,
    show_progress,
)
from bigfs.flows.cli.servers import result_of_flow, uses_prefect
from bigfs.flows.job import Data, Format, Job, Part, RunFolder, Scores, StagedCorpus
from bigfs.flows.messages import inform
from bigfs.flows.options import ClusterOptions, RunScoring

Into = Annotated[
    str | None,
    typer.Option(help="AnnData (.h5ad, .zarr) of the corpus; its var gets the selection"),
]
HighlyVariable = Annotated[
    bool,
    typer.Option(
        "--highly-variable",
        help='with --into, also write var["highly_variable"], and of hvg the columns of scanpy',
    ),
]


def run(
    *,
    job: Annotated[Job, Fields(without="timeout")],
    into: Into = None,
    highly_variable: HighlyVariable = False,
    prefect: WithPrefect = None,
    as_json: Json = False,
) -> None:
    """Run the whole job: stage, graph, select, evaluate, report.

    It is a Prefect flow with --prefect, or where Prefect's settings name an API.
    """
    require_extra("report", "bigfs run")
    _carry_out(job.with_out(), into, highly_variable, as_json, prefect=prefect)


def _carry_out(
    job: Job,
    into: str | None,
    highly_variable: bool,
    as_json: bool,
    *,
    prefect: bool | None = False,
    scored: bool = True,
) -> None:
    """Do what of a job is not done, write its selection into a file, and print the run."""
    from bigfs.flows import run as runs
    from bigfs.storage.runs.runs import require_out

    require_out(job.folder)
    _require_into(into, highly_variable)
    is_done = runs.is_done(job, scored=scored)
    if not is_done:
        job.engine.prepare("bigfs.flows.steps")
        prepared = runs.prepare(job)  # it refuses wrong options before any work starts
        with show_progress(as_json, "start-up"):
            if into is not None:
                _require_into(into, highly_variable, _stage_corpus(prepared))
            if uses_prefect(prefect):
                result_of_flow("run", job)
            else:
                runs.run(prepared, scored=scored)
    _write_into(into, job.folder, highly_variable)
    print_run(job.folder, as_json)
    if is_done:
        inform(f"{job.out} has this result already (--fresh repeats it)")


def _stage_corpus(job: Job) -> Any:
    """Return the corpus of a job, which is staged unless it is there."""
    from bigfs import storage
    from bigfs.flows import run as runs
    from bigfs.flows import staging

    if not runs.is_store(job):
        with job.engine.start():
            runs.try_again(staging.stage, job)
    return storage.open(str(job.store))


def _require_into(into: str | None, highly_variable: bool, corpus: Any = None) -> None:
    """Refuse a file that the selection cannot be written into, where that shows before any work."""
    if highly_variable and into is None:
        raise UsageError("--highly-variable says what --into writes: give --into FILE too")
    if into is not None:
        from bigfs.storage.write_back import require_anndata, require_features

        require_anndata(into)
        if corpus is not None:
            names = None if corpus.X.feature_names is None else corpus.feature_names[:]
            require_features(into, names, corpus.X.shape[1])


def _write_into(into: str | None, folder: str, highly_variable: bool) -> None:
    """Write the selection of a run into the AnnData file of its corpus, if one is given."""
    if into is None:
        return
    from bigfs import storage
    from bigfs.flows.use.export import facts_of_choice
    from bigfs.storage.runs.runs import Run
    from bigfs.storage.write_back import write_var

    run = Run.open(folder)
    _require_into(into, highly_variable, storage.open(run.store))
    write_var(into, run.scores, run.selected, facts_of_choice(run), run.columns, highly_variable)


def select(
    job: Annotated[
        Job,
        Fields(
            "store out method features parameters fresh engine",
            arguments="store",
            defaults={"store": REQUIRED},
        ),
    ],
    into: Into = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="metric that --features auto, and methods such as auto, choose by",
        ),
    ] = None,
    highly_variable: HighlyVariable = False,
    as_json: Json = False,
) -> None:
    """Select features of a staged corpus. `bigfs run` takes the run up and scores it.

    A killed run resumes from its last checkpoint.
    """
    require_extra("report", "bigfs select")
    from bigfs.flows.evaluation import selection
    from bigfs.flows.plan import Plan

    plan = Plan.of(job)
    selection.selector_for(plan.corpus, plan.method, plan.features, job.parameters)
    if metric is not None:
        if job.features != selection.AUTO and not selection.get_method(plan.method).decides:
            raise UsageError(
                "--metric says what --features auto and --method auto choose by: give one of them "
                "too"
            )
        job = job.model_copy(update={"scoring": RunScoring(metrics=[metric])})
    _carry_out(job.with_out(), into, highly_variable, as_json, scored=False)


def evaluate(
    run: RunFolder,
    *,
    scoring: RunScoring,
    engine: ClusterOptions,
    as_json: Json = False,
) -> None:
    """Score a run against simple baselines and all features, and rewrite its report."""
    require_extra("report", "bigfs evaluate")
    engine.prepare("bigfs.flows.steps")
    from bigfs import storage
    from bigfs.flows import steps
    from bigfs.storage.runs.runs import Run, lock_run

    # a missing store is an error before anything starts
    storage.open(Run.open(run).store)
    with lock_run(run), cluster_and_progress(engine, as_json):
        steps.evaluate_again(run, scoring.choices())
    print_run(run, as_json)


def transform(
    run: RunFolder,
    store: StagedCorpus,
    out: Annotated[str, typer.Argument(help="path of the .npz, .h5ad or .parquet file to write")],
    as_json: Json = False,
) -> None:
    """Write the selected columns of a store, best first, with names, targets and splits."""
    from bigfs.flows.use.transform import transform as write_columns

    path = write_columns(run, store, out)
    print_record({"file": str(path)}, as_json, str(path))


def predict(
    run: RunFolder,
    data: Data,
    out: Annotated[
        str, typer.Argument(help="path of the CSV or .parquet file to write, or - for stdout")
    ],
    part: Part = None,
    format: Format = None,
    scores: Scores = False,
    *,
    engine: ClusterOptions,
    as_json: Json = False,
) -> None:
    """Predict samples with the model of a run, and score them where a store has their targets.

    A source of the same kind as the run's is read in the same way, but for ?options.
    """
    _require_one_result(out, as_json)
    from bigfs.evaluation.metrics import METRIC_NAMES
    from bigfs.flows.use.predict import predict as predict_samples

    with cluster_and_progress(engine, as_json):
        file, rows, measured, left_out = predict_samples(
            *(run, data, out),
            part=part,
            format=format,
            scores=scores,
            memory_limit=engine.staging_memory,
        )
    text = "".join(f", {METRIC_NAMES[key]} {value:.4f}" for key, value in measured.items())
    if left_out:
        text += f"\nleft out {left_out:,} values whose names the corpus of {run} does not have"
    record = {"predictions": str(file), "rows": rows, "scores": measured, "left_out": left_out}
    _report(out, record, as_json, f"{file}: {rows:,} samples{text}")


def _require_one_result(out: str, as_json: bool) -> None:
    if out == "-" and as_json:
        raise UsageError("the table and --json cannot both go to stdout: leave one of them out")


def _report(out: str, record: dict[str, Any], as_json: bool, text: str) -> None:
    """Print what was written, on stderr where the table itself is on stdout."""
    if out == "-":
        for line in text.removeprefix("-: ").splitlines():
            inform(line)
    else:
        print_record(record, as_json, text)


def export(
    run: RunFolder,
    out: Annotated[
        str, typer.Argument(help="path of the .skops, .py, .sql or .h5ad file to write")
    ],
    table: Annotated[
        str | None,
        typer.Option(
            help='table of the SELECT in a .sql file, as SQL writes it (default: "TABLE")'
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write what a run chose for programs without bigfs, as the ending of the file says.

    .skops is the model as a scikit-learn pipeline, .py a scikit-learn selector of the columns by
    name, .sql a SELECT of them (or of the chosen features of triplets), and .h5ad all features as
    var of AnnData, with score, rank and highly_variable.
    """
    from bigfs.flows.use.export import export as write_choice

    path = write_choice(run, out, table=table)
    print_record({"file": str(path)}, as_json, str(path))


def stability(
    job: Annotated[
        Job,
        Fields(
            "store method features parameters engine",
            arguments="store",
            defaults={"store": REQUIRED},
        ),
    ],
    out: Annotated[str, typer.Argument(help="path of the CSV file to write, or - for stdout")],
    subsamples: Annotated[int, typer.Option(min=2, help="number of subsamples")] = 50,
    share: Annotated[
        float, typer.Option(help="share of the training samples in each subsample, below 1")
    ] = 0.5,
    pairs: Annotated[
        bool,
        typer.Option("--pairs", help="complementary pairs of halves, which bound false choices"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Count how often each feature is selected from random subsamples of the training samples.

    --features is a whole number here.
    """
    _require_one_result(out, as_json)
    from bigfs import storage
    from bigfs.flows.evaluation import selection
    from bigfs.flows.use.stability import describe_pairs, measure_stability

    selection.require_parameters(job.method, job.features, job.parameters)
    if isinstance(job.features, str):
        raise UsageError(f"--features must be a whole number here; got {job.features}")
    if not 0 < share < 1:
        raise UsageError(f"--share must be between 0 and 1; got {share:g}")
    if pairs and (share != 0.5 or subsamples % 2):
        raise UsageError("--pairs are of halves: give an even --subsamples and no --share")
    with cluster_and_progress(job.engine, as_json):
        found = measure_stability(
            job.source,
            out,
            method=str(job.with_method(storage.open(job.source)).method),
            features=job.features,
            parameters=job.parameters,
            subsamples=subsamples,
            share=share,
            pairs=pairs,
        )
        told = describe_pairs(found, storage.open(job.source).feature_names) if pairs else []
    always = int((found.frequencies == 1).sum())
    record = {"table": out, "stability": found.index, "always": always, "subsamples": subsamples}
    text = f"stability {found.index:.3f}, {always:,} features in all {subsamples} subsamples"
    if pairs:
        record["pairs"] = told
    _report(out, record, as_json, "\n".join([f"{out}: {text}", *told]))


def graph(
    store: StagedCorpus,
    k: Annotated[
        int, typer.Option("-k", "--neighbors", min=1, help="number of neighbors per sample")
    ] = 10,
    metric: Annotated[
        Literal["cosine", "euclidean"], typer.Option(help="distance of two samples")
    ] = "cosine",
    algorithm: Annotated[
        Literal["exact", "approx", "auto"], typer.Option(help="how the neighbors are found")
    ] = "auto",
    recall: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="minimum share of the true neighbors that approx must find"
        ),
    ] = 0.95,
    *,
    engine: ClusterOptions,
    as_json: Json = False,
) -> None:
    """Compute the kNN graph of a corpus and keep it next to the store, or reuse the one there."""
    from bigfs import storage

    corpus = storage.open(store)
    with cluster_and_progress(engine, as_json):
        stored = storage.graph(corpus, k, metric=metric, method=algorithm, recall=recall)
    print_record(
        {"graph": stored.uri, **stored.info},
        as_json,
        f"{stored.uri}: {stored.info['method']}, {stored.info['why']}",
    )


def history(
    folder: Annotated[
        str, typer.Argument(help="a run's directory, or a folder with runs")
    ] = "runs",
    as_json: Json = False,
) -> None:
    """List the runs of a folder in order, with the changed features, the gap and the score.

    If a run is made again as its source changes, such as every night, the earlier results are
    listed too.
    """
    from bigfs.flows.report import history as past

    records = past.history(folder)
    if as_json:
        print_record({"folder": folder, "runs": records}, True, "")
        return
    print_rows(past.history_rows(records, folder), n_texts=2)
    print_lines(past.change_lines(records))


SYMBOLS = (
    "Passes are over a staged store. Memory is in numbers of 8 bytes in the driving process, "
    "in addition to a tile per worker.\n"
    "n samples, d features, c classes, b batches, m chosen features, k neighbors, r components, a "
    "atoms, M × N pixels; columns: the stored values of the features that are looked at closely; "
    "graph: the neighbor graph, made once and kept next to the store; pairs: a comparison of all "
    "pairs of samples; CG: conjugate gradients."
)


def methods(
    as_json: Annotated[
        bool, typer.Option("--json", help="print a JSON object by the names of the methods")
    ] = False,
) -> None:
    """List the methods by the labels that they need, with what each one costs."""
    from bigfs.selectors.registry import GROUPS, METHODS, groups_of

    costs = {name: method.make()._cost for name, method in METHODS.items()}
    groups = {name: groups_of(method) for name, method in METHODS.items()}
    if as_json:
        print_json(
            {
                name: {"about": method.about, "for": groups[name], **costs[name]._asdict()}
                for name, method in METHODS.items()
            }
        )
        return
    for group, title in GROUPS.items():
        show(Text(f"{title[0].upper()}{title[1:]}", "bold"))
        table = Table("method", "description", box=None, pad_edge=False, show_header=False)
        for name, method in METHODS.items():
            if group in groups[name]:
                cost = f"passes: {costs[name].passes}; memory: {costs[name].memory}"
                table.add_row(f"  {name}", Text.assemble(method.about, "\n", (cost, "dim")))
        show(table)
        print()
    show(Text(SYMBOLS))
