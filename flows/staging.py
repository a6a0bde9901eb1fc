"""The first step of a run, apart from the others, which import what they compute with."""

from __future__ import annotations

import logging
from typing import Any

from bigfs import storage
from bigfs.flows.job import Request
from bigfs.flows.messages import repeat_command
from bigfs.flows.report.provenance import command, time_step
from bigfs.storage.integrity import summarize
from bigfs.storage.sources import find
from bigfs.storage.sources.base import TextSource, parse_options
from bigfs.storage.sources.tables.kinds import AUTO, TEXT
from bigfs.storage.sources.tables.tables import Table

log = logging.getLogger("bigfs.flows")


def stage(request: Request) -> dict[str, Any]:
    """Stage the source, unless its store exists. Returns the record of the step.

    A store that is there is only read, and needs no lock.
    """
    from bigfs.storage.staging.stage import carry_out

    with time_step("stage") as record:
        try:
            is_made = carry_out(request.staging, request.engine.staging_memory)
        except BaseException:
            request.forget_staging()  # the next try looks at the source again
            raise
        record |= {"store": request.staging.uri, "reused": not is_made}
        record["read"] = summarize(str(record["store"]))
        if (other := _other_reading(request)) is not None:
            record["other"] = other
    if not is_made:
        log.info("stage: reused the result of an earlier run")
    log.info("stage: %s", record["read"])
    return record


def _other_reading(request: Request) -> str | None:
    """Return the line to type for the other part of a table of numbers and texts, of which one is
    read.
    """
    path, mark, query = request.source.partition("?")
    start, source = f"{path}?{query}{mark and '&'}", request.staging.source
    if {"columns", "categories", "text"} & {*parse_options(query), *request.settings.model_dump()}:
        return None
    decided = storage.open(request.staging.uri).spec["source"].get("decided", {})
    for column, why in decided.get("unused", {}).items():
        if why == TEXT.format(column):
            line = repeat_command(command(), (request.source, f"{start}text={column}"))
            return f"the texts in {column!r} are not read: for them {line}"
    if isinstance(source, Table) and isinstance(source, TextSource):
        other = f"{start}columns={AUTO}"
        options = {"label": source.label} if request.settings.label else {}
        table: Any = find(other, format=request.settings.format, **options)
        if numbers := table.look().numbers:
            line = repeat_command(command(), (request.source, other))
            return f"the numbers in {numbers[0]!r} are not read: for a table {line}"
    return None
