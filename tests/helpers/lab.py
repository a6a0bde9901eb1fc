"""A Dask cluster over mutual TLS on hosts of its own, and a command on another."""

import contextlib
import sys

import numpy as np

from bigfs.flows.tls import environment as tls_environment
from bigfs.flows.tls import make_certificates
from bigfs.storage.runs.runs import Run
from tests.helpers.hosts import hosts
from tests.helpers.processes import environment, start, stop, until

WORKERS = ("worker1", "worker2")
# in the scheduler's log beside it: its workers, whenever they change
WATCH = """
import sys, time
from bigfs import engine
with engine.cluster(sys.argv[1], security="tls", timeout="60s"):
    before = None
    while True:
        threads = engine.executor.current_executor().threads()
        now = sorted(address.rpartition(":")[0] for address in threads)
        if now != before:
            print("workers:", *now, flush=True)
        before = now
        time.sleep(0.2)
"""
# what a service manager does: a worker that ended is started again
AGAIN = ["sh", "-c", 'while :; do "$@"; sleep 1; done', "again"]


class Lab:
    """A cluster on hosts of its own, and the command on another."""

    def __init__(self, running, home, command):
        self.hosts, self.home, self.command = running, home, command
        self.address = f"tls://{running.address['scheduler']}:8786"
        certificates = tls_environment(make_certificates(home / "tls"))
        self.env = environment(home, MALLOC_ARENA_MAX="1", **certificates)

    def start(self, host, command, log=None):
        log = self.home / f"{log or host}.log"
        return start(self.hosts.on(host, command), log, self.env, self.home)

    def run(self, name):
        """Start the command on the host `client`. Its log is NAME.log."""
        command = [*self.command, "--store", f"{name}.zarr", "--out", f"runs/{name}"]
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


@contextlib.contextmanager
def start_lab(home, command):
    """Start a scheduler and two workers of 1 GB, and make a host for runs by a command."""
    names = ("scheduler", *WORKERS, "client")
    with hosts(*names) as running, contextlib.ExitStack() as stack:
        made = Lab(running, home, command)
        dask = [sys.executable, "-m", "dask"]
        local = ["--dashboard-address", "127.0.0.1:0"]
        here = running.address["scheduler"]
        scheduler = [*dask, "scheduler", "--protocol", "tls", "--host", f"tls://{here}", *local]
        stack.callback(stop, made.start("scheduler", [*scheduler, "--port", "8786"]))
        watch = [sys.executable, "-c", WATCH, made.address]
        stack.callback(stop, made.start("scheduler", watch, log="watch"))
        for name in WORKERS:
            worker = [*AGAIN, *dask, "worker", made.address, *local, "--nthreads", "1"]
            worker += ["--host", f"tls://{running.address[name]}", "--memory-limit", "1GB"]
            stack.callback(stop, made.start(name, [*worker, "--local-directory", home]))
        made.wait_for_workers(*WORKERS)
        yield made
