"""The scheduler, two workers and the command on hosts of their own, over mutual TLS. A link or a
host fails while the run works: it ends with the serial answer or in one line, and goes on after.
"""

import contextlib
import subprocess
import sys
import time

import numpy as np
import pytest

from flows.tls import environment as tls_environment
from flows.tls import make_certificates
from storage.runs.runs import Run
from tests.helpers.hosts import hosts, needs_hosts
from tests.helpers.processes import environment, start, stop, until

pytestmark = [pytest.mark.process, pytest.mark.nightly, needs_hosts]

ROWS = 20_000
WORKERS = ("worker1", "worker2")
RUN = [sys.executable, "-m", "flows", "run", f"synthetic:phrases?rows={ROWS}"]
RUN += ["--features", "100", "--against", "anova"]
# in the scheduler's log beside it: its workers, whenever they change
WATCH = """
import sys, time
from bigfs import engine
with engine.cluster(sys.argv[1], security="tls", timeout="60s"):
    before = None
    while True:
        now = sorted(address.rpartition(":")[0] for address in engine.clusters.worker_threads())
        if now != before:
            print("workers:", *now, flush=True)
        before = now
        time.sleep(0.2)
"""
# what a service manager does: a worker that ended is started again
AGAIN = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "again"]


class Lab:
    """A cluster on hosts of its own, and the command on another."""

    def __init__(self, running, home):
        self.hosts, self.home = running, home
        self.address = f"tls://{running.address['scheduler']}:8786"
        self.env = environment(home, **tls_environment(make_certificates(home / "tls")))

    def start(self, host, command, log=None):
        log = self.home / f"{log or host}.log"
        return start(self.hosts.on(host, command), log, self.env, self.home)

    def run(self, name):
        """Start the command on the host `client`. Its log is NAME.log."""
        command = [*RUN, "--store", f"{name}.zarr", "--out", f"runs/{name}"]
        command += ["--scheduler", self.address, "--tls", "tls"]
        return self.start("client", command, log=name)

    def said(self, name):
        return (self.home / f"{name}.log").read_text()

    def wait_for_work(self, name, running):
        """Wait until the first tasks of a run are on the workers."""
        until(
            lambda: "read: begins" in self.said(name) or running.poll() is not None,
            "the first step",
        )
        assert running.poll() is None, self.said(name)

    def wait_for_workers(self, *names, seconds=200):
        """Wait until the scheduler knows these workers, and no others."""
        wanted = " ".join(sorted(f"tls://{self.hosts.address[name]}" for name in names))
        until(
            lambda: self.said("watch").rpartition("workers: ")[2].strip() == wanted,
            f"workers on {names}",
            seconds,
        )

    def ends_well(self, name, running, answer, seconds=200):
        assert running.wait(seconds) == 0, self.said(name)
        found = Run.open(self.home / "runs" / name)
        np.testing.assert_array_equal(found.selected, answer.selected)
        np.testing.assert_array_equal(found.scores, answer.scores)

    def ends_in_a_line(self, name, running, words, seconds=200):
        assert running.wait(seconds) == 1, self.said(name)
        *_, last = self.said(name).splitlines()
        assert last.startswith("bigfs: ")
        assert words in last
        assert "Traceback" not in self.said(name)
        assert not (self.home / "runs" / name).exists()


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """The run in one process, without a cluster."""
    home = tmp_path_factory.mktemp("serial")
    command = [*RUN, "--store", "s.zarr", "--out", "run", "--workers", "0"]
    subprocess.run(command, cwd=home, env=environment(home), check=True, capture_output=True)
    return Run.open(home / "run")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    names = ("scheduler", *WORKERS, "client")
    with hosts(*names) as running, contextlib.ExitStack() as stack:
        made = Lab(running, tmp_path_factory.mktemp("lab"))
        dask = [sys.executable, "-m", "dask"]
        local = ["--dashboard-address", "127.0.0.1:0"]
        here = running.address["scheduler"]
        command = [*dask, "scheduler", "--protocol", "tls", "--host", f"tls://{here}", *local]
        stack.callback(stop, made.start("scheduler", [*command, "--port", "8786"]))
        watch = [sys.executable, "-c", WATCH, made.address]
        stack.callback(stop, made.start("scheduler", watch, log="watch"))
        for name in WORKERS:
            command = [*AGAIN, *dask, "worker", made.address, *local, "--nthreads", "1"]
            command += ["--host", f"tls://{running.address[name]}", "--memory-limit", "1GB"]
            command += ["--local-directory", made.home]
            stack.callback(stop, made.start(name, command))
        made.wait_for_workers(*WORKERS)
        yield made


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
        time.sleep(10)
        assert running.poll() is None, lab.said(f"soon-{host}")
    lab.ends_well(f"soon-{host}", running, answer)
    lab.wait_for_workers(*WORKERS)


def test_a_worker_that_is_cut_off_for_long_comes_back(lab, answer):
    running = lab.run("without")
    lab.wait_for_work("without", running)
    with lab.hosts.cut("worker1"):
        lab.ends_well("without", running, answer)
        lab.wait_for_workers("worker2")
        time.sleep(20)
    lab.wait_for_workers(*WORKERS)


@pytest.mark.parametrize("host", ["scheduler", "client"])
def test_the_scheduler_or_the_client_cut_off_for_long(lab, answer, host):
    running = lab.run(f"long-{host}")
    lab.wait_for_work(f"long-{host}", running)
    with lab.hosts.cut(host):
        time.sleep(60)
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
