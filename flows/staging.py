"""The first step of a run, apart from the others, which import what they compute with."""

from __future__ import annotations

import logging
from typing import Any

from bigfs.flows.job import Request
from bigfs.flows.report.provenance import time_step
from bigfs.storage.integrity import summarize

from bigfs import storage

log = logging.getLogger("bigfs.flows")


def stage(request: Request) -> dict[str, Any]:
    """Stage the source, unless its store exists. Returns the record of the step.

    A store that is there is only read, and needs no lock.
    """
    settings = request.settings.chosen() | {"memory_limit": request.engine.staging_memory}
    with time_step("stage") as record:
        existing = storage.staged(request.source, request.store, **settings)
        record |= {
            "store": existing or storage.stage(request.source, request.store, **settings),
            "reused": existing is not None,
        }
        record["read"] = summarize(str(record["store"]))
    if existing is not None:
        log.info("stage: reused the result of an earlier run")
    log.info("stage: %s", record["read"])
    return record
