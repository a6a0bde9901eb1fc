"""The first step of a run, apart from the others, which import what they compute with."""

from __future__ import annotations

import logging
from typing import Any

from bigfs.flows.job import Request
from bigfs.flows.report.provenance import time_step
from bigfs.storage.integrity import summarize

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
    if not is_made:
        log.info("stage: reused the result of an earlier run")
    log.info("stage: %s", record["read"])
    return record
