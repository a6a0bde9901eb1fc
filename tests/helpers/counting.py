"""How many tasks a cluster was sent."""

import contextlib
from collections import Counter

from dask.utils import key_split
from distributed import SchedulerPlugin


class CountTasks(SchedulerPlugin):
    """Counts the tasks that end, by the name of their step."""

    name = "count-tasks"

    def __init__(self):
        self.ended = Counter()

    def transition(self, key, start, finish, *args, **kwargs):
        if start == "processing" and finish == "memory":
            self.ended[key_split(key)] += 1


@contextlib.contextmanager
def counted_tasks(client):
    """Count the tasks that a cluster of this process ends in the block. At least one is expected:
    an answer that is the same on a cluster proves nothing where no task was sent."""
    count = CountTasks()
    client.cluster.scheduler.add_plugin(count)
    try:
        yield count.ended
    finally:
        client.cluster.scheduler.remove_plugin(count.name)
    assert count.ended, "no task was sent"
