"""The plugin of the workers: what was freed goes back to the system also where no task runs."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from distributed import WorkerPlugin
from tornado.ioloop import PeriodicCallback

from bigfs.engine.budget import most_between_tasks, resident, trim_memory


class MemoryRelief(WorkerPlugin):
    """Return freed memory to the system every second."""

    name = "bigfs-relief"

    def setup(self, worker: Any) -> None:
        """Start to look at the memory of a worker."""

        def trim_if_nearly_full() -> None:
            limit = worker.memory_manager.memory_limit or np.inf
            if resident() > most_between_tasks(limit):
                trim_memory()

        worker.periodic_callbacks[self.name] = PeriodicCallback(trim_if_nearly_full, 1000)
        worker.periodic_callbacks[self.name].start()
        logging.getLogger("distributed.worker").addFilter(should_log)

    def teardown(self, worker: Any) -> None:
        """Look no longer."""
        worker.periodic_callbacks.pop(self.name).stop()
        logging.getLogger("distributed.worker").removeFilter(should_log)


def should_log(record: logging.LogRecord) -> bool:
    """Return whether a worker should log a record. An error of a bigfs task is left out, because
    the driver receives it and reports it in one line."""
    return not (str(record.msg).startswith("Compute Failed") and "bigfs" in str(record.args))
