"""The commands that judge choices: compare and audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from bigfs.flows.cli.extras import require_flows
from bigfs.flows.cli.options import (
    REQUIRED,
    Fields,
    Forbid,
    Json,
    Keep,
    Set,
    WithPrefect,
    parse_parameters,
    with_constraints,
)
from bigfs.flows.cli.output import out_console, print_rows, show_progress
from bigfs.flows.cli.servers import uses_prefect
from bigfs.flows.job import Request
from bigfs.flows.options import Scoring

COSTS = 5  # columns of the table of costs
LISTS = typer.Option(
    "--list",
    "--lists",
    metavar="FILE",
    help="a list of features: a file with a name or an index per line, best first, a table, a "
    "column of AnnData's var (cells.h5ad?column=highly_variable), a selector of scikit-learn in "
    ".skops, or a run's folder (repeatable)",
)


def compare(
    *,
    methods: Annotated[
        str, typer.Option(help="methods that `bigfs methods` lists, separated by commas")
    ],
    sizes: Annotated[str, typer.Option(help="numbers of features, separated by commas")],
    request: Annotated[
        Request,
        Fields(without="overlap timeout", arguments="source out", defaults={"out": REQUIRED}),
    ],
    scoring: Annotated[Scoring, Fields("metric cv judge test_size")],
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
            metavar="NAME=LIST",
            help="values of a parameter to compare, as method.name=LIST in JSON, such as "
            "sparge-lda.gamma=[0.5,1] (repeatable)",
        ),
    ] = None,
    lists: Annotated[list[str] | None, LISTS] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="PLACE",
            help="a selector of another package to compare with, as package.module:Class or "
            "file.py:Class; its code is run in a process of its own (repeatable)",
        ),
    ] = None,
    keep: Keep = None,
    forbid: Forbid = None,
    timeout: Annotated[
        float,
        typer.Option(help="seconds that one method may take, to choose and to be scored", min=0.1),
    ] = 86400.0,
    prefect: WithPrefect = None,
    as_json: Json = False,
) -> None:
    """Compare methods on one corpus: scores, time, memory, passes, redundancy, stability, tests.

    It is a Prefect flow with --prefect, or where Prefect's settings name an API.
    """
    require_flows("bigfs compare")
    choices = Scoring(**dict(scoring) | {"against": methods, "sizes": sizes}).choices()
    require_readable(request)
    given = {
        **dict(request),
        "methods": choices["baselines"],
        "sizes": choices["sizes"],
        "metrics": choices.get("metrics"),
        "timeout": timeout,
        "folds": scoring.cv,
        "test_size": scoring.test_size,
        "judge": scoring.judge,
        "subsamples": subsamples,
        "constraints": with_constraints({}, keep, forbid) or None,
        "grid": parse_grid(grid),
        "lists": lists,
        "selectors": with_,
    }
    with show_progress(as_json, "start-up"):
        if uses_prefect(prefect):
            from bigfs.flows.prefect_flows import compare as compare_as_flow

            compare_as_flow(**given)
        else:
            from bigfs.flows.comparison import compare as comparison
            from bigfs.flows.comparison.request import Comparison

            asked = Comparison(**given)
            comparison.require_result(comparison.compare(asked)[1], asked)
    print_comparison(request.folder, as_json)


def audit(
    *,
    request: Annotated[Request, Fields(without="overlap timeout")],
    lists: Annotated[list[str], LISTS],
    method: Annotated[
        str | None,
        typer.Option(help="SparGE's embedding that judges (default: by the kind of the target)"),
    ] = None,
    set_: Set = None,
    scoring: Annotated[Scoring, Fields("metric cv judge test_size")],
    as_json: Json = False,
) -> None:
    """Certify lists of features that anybody chose: how much better a list can be at most."""
    require_flows("bigfs audit")
    from bigfs.flows.comparison import audit as audits

    given: dict[str, Any] = {"lists": lists, "method": method, "scoring": scoring}
    asked = audits.Audit(**dict(request), **given, parameters=parse_parameters(set_))
    with show_progress(as_json, "start-up"):
        about = audits.audit(asked)
    if as_json:
        from bigfs.storage.runs.metadata import strict_json

        print(strict_json(about))
        return
    print_rows(list(audits.table_rows(about)))
    out_console.print()
    for line in (about["evaluation"], *audits.explanation(about)):
        out_console.print(line, highlight=False, markup=False, soft_wrap=True)
    out_console.print(f"report: {about['out']}/report.html", highlight=False, soft_wrap=True)


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


def require_readable(request: Request) -> None:
    """Refuse an unreadable source or a folder of others before anything starts."""
    from bigfs.flows.comparison.standings import require_folder
    from bigfs.storage.format import manifest
    from bigfs.storage.sources import find

    require_folder(Path(request.folder))
    if not manifest.exists(manifest.normalize_uri(request.source)):
        find(request.source, format=request.settings.format)


def print_comparison(folder: str, as_json: bool) -> None:
    """Print the tables of a comparison, or compare.json."""
    from bigfs.flows.comparison.standings import (
        choice_lines,
        cost_rows,
        explanation,
        failure_lines,
        read_comparison,
        score_rows,
    )

    about = read_comparison(folder)
    if as_json:
        from bigfs.storage.runs.metadata import strict_json

        print(strict_json({"comparison": folder, **about}))
        return
    costs = cost_rows(about)  # too wide for a terminal: the costs, then the choice
    for rows in (
        score_rows(about),
        [row[:COSTS] for row in costs],
        [[row[0], *row[COSTS:]] for row in costs],
    ):
        print_rows(rows)
        out_console.print()
    lines = [*failure_lines(about), *choice_lines(about), about["evaluation"], *explanation(about)]
    lines.append(f"report: {folder}/report.html")
    for line in lines:
        out_console.print(line, highlight=False, markup=False, soft_wrap=True)
