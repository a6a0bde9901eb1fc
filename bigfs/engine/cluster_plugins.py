"""The plugins that a cluster gets: its workers return freed memory also where no task runs, and its
scheduler lets any worker take a task whose own one is gone.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from distributed import SchedulerPlugin, WorkerPlugin
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
    """Return whether a worker should log a record.

    An error of a bigfs task is left out, because the driver reports it in one line.
    """
    return not (str(record.msg).startswith("Compute Failed") and "bigfs" in str(record.args))


class AnyWorker(SchedulerPlugin):
    """Let any worker take a task that may run elsewhere, from when no worker can take it.

    distributed offers the tasks without a worker to one that comes or resumes only if they name it,
    also those with `allow_other_workers`. After the death of all workers they would wait for one of
    the dead.
    """

    name = "bigfs-any-worker"
    idempotent = True  # one serves all clients of a scheduler

    async def start(self, scheduler: Any) -> None:
        """Keep the scheduler, whose tasks are looked at."""
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Forget the worker of a task that has none and may have any."""
        if finish == "no-worker" and self.scheduler.tasks[key].loose_restrictions:
            self.scheduler.set_restrictions({key: None})
