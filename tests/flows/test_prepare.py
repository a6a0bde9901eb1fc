"""The workers of a command are forked from a process that has imported their libraries."""

import subprocess
import sys

import pytest

from bigfs.engine import clusters

PREPARED = """
import sys
from bigfs.flows.options import ClusterOptions

def libraries():
    return "sklearn" in sys.modules, "bigfs.storage.staging.build" in sys.modules

if __name__ == "__main__":
    options = ClusterOptions(workers=1)
    options.prepare("bigfs.flows.steps")
    with options.start() as client:
        print(libraries(), *client.run(libraries).values())
"""
NOT_PREPARED = """
import psutil
from bigfs.flows.options import ClusterOptions

ClusterOptions(workers=0).prepare("bigfs.flows.steps")
ClusterOptions(scheduler="tcp://127.0.0.1:1").prepare("bigfs.flows.steps")
print(psutil.Process().children())
"""


@pytest.mark.skipif(not clusters.CAN_FORK, reason="no worker is forked here")
def test_workers_have_what_was_prepared_when_they_start(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(PREPARED)
    answer = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert answer.stdout.split("\n")[0] == "(False, False) (True, True)", answer.stderr


def test_nothing_is_prepared_where_no_local_worker_starts():
    answer = subprocess.run([sys.executable, "-c", NOT_PREPARED], capture_output=True, text=True)
    assert answer.stdout.strip() == "[]", answer.stderr
