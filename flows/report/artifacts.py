"""Artifacts of a flow in Prefect: progress bars, tables, pictures and a summary. And its event.

Tables hold the top rows only, because Prefect keeps them in its database. An artifact that the
server does not take is a line in the log, because the work does not need it.
"""

from __future__ import annotations

import base64
import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
from prefect import get_run_logger, runtime
from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event
from prefect.exceptions import PrefectException

from bigfs import engine
from bigfs.evaluation.metrics import METRIC_NAMES
from bigfs.flows.report.history import history
from bigfs.flows.report.page import pictures
from bigfs.flows.report.summary import (
    choice_text,
    count_of_features,
    markdown_table,
    metric_names,
    metrics_of,
    score_table,
    status_text,
    verdict_text,
)
from bigfs.storage.runs.runs import Run, RunError

TOP = 25
EVERY = 2.0  # seconds between updates of a progress bar


@contextlib.contextmanager
def optional(what: str) -> Iterator[None]:
    """Log that the server did not take something, in place of an error."""
    try:
        yield
    except (httpx.HTTPError, PrefectException, OSError, RunError) as error:
        get_run_logger().warning("%s is not shown: %s", what, error or type(error).__name__)


@contextlib.contextmanager
def progress() -> Iterator[None]:
    """Show one progress artifact per labeled map inside the block, until the server fails."""
    artifacts: dict[tuple[str, str], tuple[Any, float]] = {}
    is_shown = True

    def show(label: str, done: int, total: int) -> None:
        nonlocal is_shown
        if not is_shown:
            return
        is_shown = False
        with optional("progress"):
            update(label, done, total)
            is_shown = True

    def update(label: str, done: int, total: int) -> None:
        step, now = runtime.task_run.get_task_name() or "", time.monotonic()
        artifact, last = artifacts.get((step, label), (None, 0.0))
        if artifact is None:
            artifact = create_progress_artifact(
                100.0 * done / total,
                key=_key(step, label),
                description=f"{step}: {label}, {total} steps",
            )
        elif now - last > EVERY or done == total:
            update_progress_artifact(artifact, 100.0 * done / total)
        else:
            return
        artifacts[step, label] = artifact, now

    with engine.progress(show):
        yield


@optional("the link to the dashboard")
def show_dashboard(link: str) -> None:
    create_link_artifact(link, link_text="Dask dashboard", key="dask-dashboard")


@optional("the comparison")
def show_comparison(text: str) -> None:
    create_markdown_artifact(text, key="comparison")


@optional("the selection")
def show_selection(run: Run) -> None:
    create_table_artifact(
        run.read_table("selected.csv")[:TOP],
        key="selected",
        description=f"The best features of {_title(run)}",
    )
    _show_picture(run, "objective", "objective", "Objective of the method per step")


@optional("the scores")
def show_curves(run: Run) -> None:
    if not run.metadata.get("curves"):
        return
    metric, curves = METRIC_NAMES[metrics_of(run.metadata)[0]], run.metadata["curves"]
    rows = [
        {METRIC_NAMES.get(name, name): value for name, value in point.items()} for point in curves
    ]
    create_table_artifact(
        rows,
        key=_key(metric),
        description=f"{_title(run)}, {metric_names(run.metadata)}. {run.metadata['evaluation']}",
    )
    _show_picture(
        run,
        "scores",
        _key(metric),
        f"{metric[0].upper()}{metric[1:]} by the number of features. {run.metadata['evaluation']}",
    )


@optional("the summary")
def show_summary(run: Run) -> None:
    about = run.metadata
    lines = [f"## {_title(run)}", "", f"{status_text(about)}. {verdict_text(about)}.", ""]
    if "choice" in about:
        lines += [f"Chosen: {choice_text(about['choice'])}.", ""]
    if (table := score_table(about)) is not None:
        lines += markdown_table(table["text"])
    if "evaluation" in about:
        lines += [about["evaluation"], ""]
    stages = [[s["stage"], f"{s['seconds']:.1f}"] for s in about.get("stages", [])]
    lines += markdown_table([["stage", "seconds"], *stages])
    lines += [f"Corpus `{about['parameters']['store']}`. Report: `{run.final / 'report.html'}`"]
    lines += [f"\n> {hint}" for hint in about.get("hints", [])]
    create_markdown_artifact("\n".join(lines), key="summary", description=_title(run))


CHANGED = "bigfs.selection.changed"  # an event, with the record of `bigfs history` as its payload


@optional("the event")
def tell_change(run: Run) -> None:
    """Emit an event if the run before this one, of the same directory, chose other features."""
    record = [record for record in history(run.final) if record["error"] is None][-1]
    if record["added"] or record["removed"]:
        source = run.metadata.get("corpus", {}).get("source", "")
        resource = {"prefect.resource.id": f"bigfs.run.{run.final}", "bigfs.source": source}
        emit_event(CHANGED, resource=resource, payload=record)


def _show_picture(run: Run, name: str, key: str, description: str) -> None:
    svg = pictures(run.metadata)[name]
    if svg is not None:
        # Prefect's page may have a dark theme
        svg = svg.replace("<svg ", '<svg style="background: white" ', 1)
        address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
        create_image_artifact(
            address, key=f"{key}-curve", description=f"{description}: {_title(run)}"
        )


def _title(run: Run) -> str:
    about = run.metadata
    return f"{count_of_features(about)} by {about['parameters']['method']}"


def _key(*words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower().replace("²", "2")).strip("-")
