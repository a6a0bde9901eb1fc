"""The commands that score choices: compare and audit."""

from __future__ import annotations

from typing import Annotated

from bigfs.flows.cli.extras import require_extra
from bigfs.flows.cli.options import Fields, Json, WithPrefect
from bigfs.flows.cli.output import print_json, print_lines, print_rows, show_progress
from bigfs.flows.cli.servers import result_of_flow, uses_prefect
from bigfs.flows.comparison.request import Audit, Comparison

COSTS = 5  # columns of the table of costs


def compare(
    *,
    request: Annotated[Comparison, Fields(without="overlap")],
    prefect: WithPrefect = None,
    as_json: Json = False,
) -> None:
    """Compare methods on one corpus: scores, time, memory, passes, redundancy, stability, tests.

    It is a Prefect flow with --prefect, or where Prefect's settings name an API.
    """
    require_extra("report", "bigfs compare")
    from bigfs.flows.comparison import compare as comparison

    request = comparison.prepare(request)  # it refuses wrong options before any work starts
    with show_progress(as_json, "start-up"):
        if uses_prefect(prefect):
            result_of_flow("compare", request)
        else:
            comparison.require_result(comparison.compare(request))
    print_comparison(request.folder, as_json)


def audit(
    *,
    request: Annotated[Audit, Fields(without="overlap timeout", arguments="source lists")],
    as_json: Json = False,
) -> None:
    """Certify lists of features that anybody chose: how much better a list can be at most."""
    require_extra("report", "bigfs audit")
    from bigfs.flows.comparison import audit as audits

    with show_progress(as_json, "start-up"):
        about = audits.audit(request)
    if as_json:
        print_json(about)
        return
    print_rows(list(audits.table_rows(about)))
    near = [audits.near_text(one, about["share"]) for one in about.get("alternatives", ())]
    print_lines(["", *near, about["evaluation"], *audits.explanation(about)])
    print_lines([f"report: {about['out']}/report.html"])


def print_comparison(folder: str, as_json: bool) -> None:
    """Print the tables of a comparison, or compare.json."""
    from bigfs.flows.comparison.files import read_comparison
    from bigfs.flows.comparison.standings import cost_rows, lines_of, score_rows

    about = read_comparison(folder)
    if as_json:
        print_json({"comparison": folder, **about})
        return
    costs = cost_rows(about)  # too wide for a terminal: the costs, then the choice
    choices = [[row[0], *row[COSTS:]] for row in costs]
    for rows in (score_rows(about), [row[:COSTS] for row in costs], choices):
        print_rows(rows)
        print()
    print_lines([*lines_of(about), f"report: {folder}/report.html"])
