"""The scheduler, two workers and the command on hosts of their own, over mutual TLS. A link or a
host fails while the run works: it ends with the serial answer or in one line, and goes on after.
"""

import subprocess
import sys
import time

import pytest

from bigfs.storage.runs.runs import Run
from tests.helpers.hosts import needs_hosts
from tests.helpers.lab import WORKERS, start_lab
from tests.helpers.processes import environment

pytestmark = [pytest.mark.process, pytest.mark.nightly, needs_hosts]

ROWS = 20_000
RUN = [sys.executable, "-m", "bigfs", "run", f"synthetic:phrases?rows={ROWS}"]
RUN += ["--features", "100", "--against", "anova"]


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """The run in one process, without a cluster."""
    home = tmp_path_factory.mktemp("serial")
    command = [*RUN, "--store", "s.zarr", "--out", "run", "--workers", "0"]
    subprocess.run(command, cwd=home, env=environment(home), check=True, capture_output=True)
    return Run.open(home / "run")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with start_lab(tmp_path_factory.mktemp("lab"), RUN) as running:
        yield running


# --- in this order: hosts that have died stay so --------------------------------------------------


def test_links_with_a_delay_and_losses(lab, answer):
    try:
        for name in lab.hosts.address:
            lab.hosts.set(name, delay=0.025, loss=0.0025)  # of each end: 100 ms both ways, 1 %
        lab.ends_well("slow", lab.run("slow"), answer)
    finally:
        for name in lab.hosts.address:
            lab.hosts.set(name, delay=0, loss=0)


@pytest.mark.parametrize("host", ["worker1", "scheduler"])
def test_a_link_that_comes_back_soon(lab, answer, host):
    running = lab.run(f"soon-{host}")
    lab.wait_for_work(f"soon-{host}", running)
    with lab.hosts.cut(host):
        time.sleep(10)  # a cut that is shorter than what Dask waits for a connection
        assert running.poll() is None, lab.said(f"soon-{host}")
    lab.ends_well(f"soon-{host}", running, answer)
    lab.wait_for_workers(*WORKERS)


def test_a_worker_that_is_cut_off_for_long_comes_back(lab, answer):
    running = lab.run("without")
    lab.wait_for_work("without", running)
    with lab.hosts.cut("worker1"):
        lab.ends_well("without", running, answer)
        lab.wait_for_workers("worker2")
        time.sleep(20)  # the worker that is cut off has to find out by itself
    lab.wait_for_workers(*WORKERS)


@pytest.mark.parametrize("host", ["scheduler", "client"])
def test_the_scheduler_or_the_client_cut_off_for_long(lab, answer, host):
    running = lab.run(f"long-{host}")
    lab.wait_for_work(f"long-{host}", running)
    with lab.hosts.cut(host):
        said = "the connection to the Dask cluster was lost"
        lab.ends_in_a_line(f"long-{host}", running, said)
    lab.wait_for_workers(*WORKERS)
    lab.ends_well(f"long-{host}", lab.run(f"long-{host}"), answer)


def test_hosts_that_die(lab, answer):
    running = lab.run("dying")
    lab.wait_for_work("dying", running)
    lab.hosts.kill("worker1")
    lab.ends_well("dying", running, answer)
    running = lab.run("alone")
    lab.wait_for_work("alone", running)
    lab.hosts.kill("worker2")
    lab.ends_in_a_line("alone", running, "no workers left: start some and repeat the command")
