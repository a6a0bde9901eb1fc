"""The command that compares methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from flows.cli.extras import require_flows
from flows.cli.options import (
    Forbid,
    Json,
    Keep,
    Source,
    WithPrefect,
    expand_model_options,
    parse_parameters,
    with_constraints,
)
from flows.cli.output import out_console, show_progress, state
from flows.cli.servers import quiet_prefect, uses_prefect
from flows.options import Engine, Scoring, Staging

COSTS = 5  # columns of the table of costs


@expand_model_options
def compare(
    source: Annotated[str, typer.Argument(help=f"{Source.__metadata__[0].help}, or a store")],
    out: Annotated[str, typer.Argument(help="directory of the comparison")],
    methods: Annotated[
        str, typer.Option(help="methods that `bigfs methods` lists, separated by commas")
    ],
    sizes: Annotated[str, typer.Option(help="numbers of features, separated by commas")],
    metric: Annotated[
        str | None,
        typer.Option(
            help="metrics, separated by commas, the first of which ranks the methods (default: "
            "accuracy; micro_f1,macro_f1 for several labels per sample; r2 for real targets)"
        ),
    ] = None,
    cv: Annotated[
        int | None,
        typer.Option(
            help="score by this many folds, with the features selected again in each (default: 5 "
            "folds, or a held-out fifth where folds are too much work; for corpora without test "
            "samples)",
            min=2,
        ),
    ] = None,
    test_size: Annotated[
        float | None,
        typer.Option(
            help="score on this share of the samples, with the features selected again without "
            "them (for corpora without test samples)"
        ),
    ] = None,
    subsamples: Annotated[
        int | None,
        typer.Option(
            help="choose again from this many random halves of the training samples, to measure "
            "the stability of the choice (default: the folds, if there are any)",
            min=2,
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="values of a parameter to compare, as method.name=[value, …] in JSON, such as "
            "sparge-lda.gamma=[0.5,1] (repeatable)"
        ),
    ] = None,
    keep: Keep = None,
    forbid: Forbid = None,
    timeout: Annotated[
        float,
        typer.Option(help="seconds that one method may take, to choose and to be scored", min=0.1),
    ] = 86400.0,
    at_once: Annotated[
        int,
        typer.Option(
            help="methods that run side by side as far as memory allows. With 1, each one's time, "
            "processor time and memory are its own",
            min=1,
        ),
    ] = 1,
    store: Annotated[
        str | None,
        typer.Option(help="path or URL of the store to make (default: .bigfs/NAME-KEY.zarr)"),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="run methods again whose results exist")
    ] = False,
    prefect: WithPrefect = None,
    *,
    staging: Staging,
    engine: Engine,
    as_json: Json = False,
) -> None:
    """Compare methods on one corpus: scores, time, memory, passes, redundancy, stability, tests.

    It is a Prefect flow with --prefect, or where Prefect's settings name an API.
    """
    require_flows("bigfs compare")
    choices = Scoring(
        against=methods, sizes=sizes, metric=metric, cv=cv, test_size=test_size
    ).choices()
    require_readable(source, out, staging)
    given = {
        "source": source,
        "methods": choices["baselines"],
        "sizes": choices["sizes"],
        "out": out,
        "metrics": choices.get("metrics"),
        "store": store,
        "settings": staging,
        "engine": engine,
        "fresh": fresh,
        "timeout": timeout,
        "folds": cv,
        "test_size": test_size,
        "subsamples": subsamples,
        "at_once": at_once,
        "constraints": with_constraints({}, keep, forbid) or None,
        "grid": parse_grid(grid),
    }
    with show_progress(as_json, "start-up"):
        if uses_prefect(prefect):
            quiet_prefect(state["debug"])
            from flows.prefect_flows import compare as compare_as_flow

            compare_as_flow(**given)
        else:
            from flows.comparison import compare as comparison

            request = comparison.Comparison(**given)
            comparison.require_result(comparison.compare(request)[1], request)
    print_comparison(out, as_json)


def parse_grid(pairs: list[str] | None) -> dict[str, dict[str, list[Any]]] | None:
    """Parse `method.name=[value, …]`."""
    grid: dict[str, dict[str, list[Any]]] = {}
    for pair in pairs or []:
        method, dot, rest = pair.partition(".")
        [(name, values)] = parse_parameters([rest]).items() if dot else [("", None)]
        if not isinstance(values, list) or not values:
            raise ValueError(f"--grid must be method.name=[value, …]; got {pair!r}")
        grid.setdefault(method, {})[name] = values
    return grid or None


def require_readable(source: str, out: str, staging: Staging) -> None:
    """Refuse an unreadable source or a folder of others before anything starts."""
    from flows.comparison.standings import require_folder
    from storage.format import manifest
    from storage.sources import find

    require_folder(Path(out))
    if not manifest.exists(manifest.normalize_uri(source)):
        find(source, format=staging.format)


def print_comparison(folder: str, as_json: bool) -> None:
    """Print the tables of a comparison, or compare.json."""
    from flows.comparison.standings import (
        cost_rows,
        explanation,
        failure_lines,
        read_comparison,
        score_rows,
    )

    about = read_comparison(folder)
    if as_json:
        from storage.runs.metadata import strict_json

        print(strict_json({"comparison": folder, **about}))
        return
    costs = cost_rows(about)  # too wide for a terminal: the costs, then the choice
    for rows in (
        score_rows(about),
        [row[:COSTS] for row in costs],
        [[row[0], *row[COSTS:]] for row in costs],
    ):
        head, *body = rows
        columns = [
            Column(head[0], no_wrap=True),
            *(Column(h, justify="right", no_wrap=True) for h in head[1:]),
        ]
        table = Table(*columns, box=None, pad_edge=False)
        for cells in body:
            table.add_row(*cells)
        out_console.print(table)
        out_console.print()
    lines = [*failure_lines(about), about["evaluation"], *explanation(about)]
    lines.append(f"report: {folder}/report.html")
    for line in lines:
        out_console.print(line, highlight=False, markup=False, soft_wrap=True)
