"""Commands of four clients at random moments on one folder, of which many are killed.

Afterwards every store checks, every run opens, no store that a run names is gone, and each command
succeeds where nobody disturbs it. A schedule is drawn from its seed, which the name of its test
holds. BIGFS_SCHEDULES is their number.
"""

import os
import random
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from bigfs import storage
from bigfs.storage.runs.runs import Run, names_below, results_of
from tests.helpers.processes import environment

CLIENTS, COMMANDS = 4, 6
SCHEDULES = int(os.environ.get("BIGFS_SCHEDULES", "40"))
LONGEST = 200.0  # seconds of a command, after which it hangs
MODULES = ["bigfs.flows.cli.app", "bigfs.flows.cli.corpus", "bigfs.flows.steps"]
MODULES += ["bigfs.flows.report.page", "tests.endurance.test_schedules"]
SERIAL = ["--workers", "0"]
STORES = ("a.zarr", "stores/b.zarr")
RUNS = ("runs/r0", "runs/r1", "r2")
SOURCES = {"rows.svm": 60, "more.svm": 20, "last.svm": 30}


class Command(NamedTuple):
    """What a client calls, and whether and where it is killed."""

    words: list[str]
    signal: int = 0
    operation: int = 0  # the number of the write, sync, rename or deletion at which it is
    moment: float = 0.0  # or the time in seconds after the start


def write_source(name, seed):
    """Write a source of three classes, whole or not at all."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(SOURCES[name]):
        values = rng.random(12) + (np.arange(12) == i % 3)
        lines.append(f"{i % 3} " + " ".join(f"{j + 1}:{v:.3f}" for j, v in enumerate(values)))
    Path(f"{name}.new").write_text("\n".join(lines) + "\n")
    os.replace(f"{name}.new", name)


def draw_words(chosen):
    """Return the words of a random command."""
    store, out = chosen.choice(STORES), chosen.choice(RUNS)
    chooser = ["--method", chosen.choice(["anova", "rlsr", "sparge-lpp"])]
    chooser += ["--features", str(chosen.randint(2, 4)), *chosen.choice([[], ["--fresh"]])]
    source = chosen.choice([store, "rows.svm"])
    more = chosen.choice(["more.svm", "last.svm"])
    return chosen.choice(
        [
            ["stage", "rows.svm", store, *SERIAL],
            ["append", more, store, *SERIAL],
            ["run", source, "--out", out, *chooser, *SERIAL],
            ["run", source, "--out", out, *chooser, *SERIAL],
            ["select", store, "--out", out, *chooser, *SERIAL],
            ["graph", store, "-k", chosen.choice("34"), *SERIAL],
            ["evaluate", out, "--sizes", chosen.choice("12"), *SERIAL],
            ["prune", "--yes", *chosen.choice([[], ["--older-than", "0h"]])],
            ["prune", "--yes", "--older-than", "0h", "stores"],
            ["write", "rows.svm", str(chosen.randrange(5))],
        ]
    )


def draw(seed):
    """Return what each client calls, one after another."""
    chosen = random.Random(seed)
    clients = []
    for _ in range(CLIENTS):
        commands = []
        for _ in range(COMMANDS):
            kill = chosen.choice([0, 0, signal.SIGKILL, signal.SIGTERM])
            number, moment = int(2 ** chosen.uniform(0, 8)), chosen.uniform(0, 0.6)
            way = (number, 0.0) if chosen.random() < 0.7 else (0, moment)
            commands.append(Command(draw_words(chosen), kill, *way))
        clients.append(commands)
    for commands, store in zip(clients, STORES, strict=False):
        commands[0] = Command(["stage", "rows.svm", store, *SERIAL])
    return clients


def call(command, home, log):
    """Call a command in this process, which is its own."""
    from bigfs.flows import cli
    from bigfs.flows import run as runs
    from bigfs.storage import atomic

    os.chdir(home)
    os.environ.update(environment(home / "home", XDG_CACHE_HOME=str(home / "home")))
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    count = 0

    def fault_point(operation, path):
        nonlocal count
        count += 1
        if count == command.operation:
            os.kill(os.getpid(), command.signal)

    if command.signal and command.operation:
        atomic.fault_point = fault_point
    runs.FIRST_WAIT.value = 0.05
    if command.words[0] == "write":
        return write_source(command.words[1], int(command.words[2]))
    sys.argv = ["bigfs", *command.words]
    return cli.main()


class Ended(NamedTuple):
    """A command, its exit status, and what it said."""

    command: Command
    status: int
    said: str

    def is_plain(self):
        """Return whether it succeeded, was killed, or failed in one line."""
        lines = [line for line in self.said.splitlines() if line.startswith("bigfs: ")]
        if "Traceback" in self.said or "Warning" in self.said:
            return False
        if self.status in (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM):
            return True
        return self.status == 1 and bool(lines)


class Clients:
    """Processes that call commands side by side in a folder."""

    def __init__(self, home):
        self.home, self.logs = home / "work", home / "logs"
        self.home.mkdir()
        self.logs.mkdir()
        self.count = 0
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(MODULES)

    def start(self, command):
        log = self.logs / str(self.count)
        self.count += 1
        process = self.context.Process(target=call, args=(command, self.home, log))
        process.start()
        return process, log, command, time.monotonic()

    def finish(self, process, log, command, _):
        process.join()
        return Ended(command, process.exitcode, log.read_text() if log.exists() else "")

    def call(self, *words):
        """Call a command that nobody disturbs."""
        process, *more = self.start(Command(list(words)))
        process.join(LONGEST)
        if process.is_alive():
            process.kill()
        return self.finish(process, *more)

    def call_all(self, clients):
        """Call the commands of all clients, each client's one after another."""
        waiting = [list(commands) for commands in clients]
        running = {i: self.start(commands.pop(0)) for i, commands in enumerate(waiting)}
        ended = []
        try:
            self.finish_all(running, waiting, ended)
        finally:
            for process, *_ in running.values():
                process.kill()
        return ended

    def finish_all(self, running, waiting, ended):
        """Kill commands at their moments, and start the next ones, until none is left."""
        while running:
            for i, (process, log, command, began) in list(running.items()):
                process.join(0.005)
                age = time.monotonic() - began
                assert age < LONGEST, f"{command} hangs"
                if process.is_alive():
                    if command.moment and command.signal and age >= command.moment:
                        os.kill(process.pid, command.signal)
                        running[i] = process, log, command._replace(moment=0.0), began
                    continue
                ended.append(self.finish(*running.pop(i)))
                if waiting[i]:
                    running[i] = self.start(waiting[i].pop(0))


def stores_in(home):
    """Return the stores that have their own names."""
    roots = [path.parent for path in home.rglob("zarr.json")]
    whole = [root for root in roots if not (root.parent / "zarr.json").exists()]
    paths = [root for root in whole if root.suffix == ".zarr" and ".graphs/" not in str(root)]
    hidden = [path for path in paths if path.name[:1] != "."]
    return [path for path in hidden if not any(p in paths for p in path.parents)]


def faults_of(home):
    """Yield what is not whole in a folder."""
    for store in stores_in(home):
        try:
            problems = storage.check(str(store)).problems
        except ValueError as error:
            problems = [str(error)]
        yield from (f"{store}: {problem}" for problem in problems)
    for name in names_below(home):
        for folder in results_of(name):
            try:
                run = Run.open(folder)
                selected, scores = run.selected, run.scores
                assert len(selected) <= len(scores) == 12
                if "curves" in run.metadata:
                    rows = [
                        (row["method"], int(row["n_features"]))
                        for row in run.read_table("curves.csv")
                    ]
                    points = [(row["method"], row["n_features"]) for row in run.metadata["curves"]]
                    assert rows == points
                if (run.path / "model.npz").exists():
                    run.model()
                if folder == results_of(name)[-1]:
                    storage.open(run.store)
            except (ValueError, OSError, AssertionError) as error:
                yield f"{folder}: {type(error).__name__} {error}"


def assert_equal_to_fresh(clients):
    """Compare the latest runs with fresh ones of the same content."""
    for name in names_below(clients.home):
        if not results_of(name):
            continue
        run = Run.open(name)
        if storage.open(run.store).spec["content"] != run.metadata["content"]:
            continue  # it has grown
        asked = run.metadata["parameters"]
        words = ["select", run.store, "--out", str(clients.home.parent / "fresh" / name.name)]
        words += ["--method", asked["method"], "--features", str(asked["features"]), *SERIAL]
        ended = clients.call(*words, "--fresh")
        assert ended.status == 0, ended
        fresh = Run.open(words[3])
        assert run.selected.tolist() == fresh.selected.tolist()
        np.testing.assert_array_equal(run.scores, fresh.scores)


def run_schedule(seed, place):
    """Run a schedule and return how its commands ended."""
    clients = Clients(place)
    os.chdir(clients.home)
    for i, source in enumerate(SOURCES):
        write_source(source, i)
    ended = clients.call_all(draw(seed))
    odd = [one for one in ended if not one.is_plain()]
    assert not odd, odd[0]
    assert not list(faults_of(clients.home))
    assert_equal_to_fresh(clients)
    for store in STORES:
        assert (again := clients.call("stage", "rows.svm", store, *SERIAL)).status == 0 or (
            "which has changed since" in again.said
        ), again
    for out in RUNS:
        words = ["run", "rows.svm", "--out", out, "--method", "rlsr", "--features", "3", "--fresh"]
        assert (again := clients.call(*words, *SERIAL)).status == 0, again
    assert not list(faults_of(clients.home))
    for folder in (".", "stores"):
        assert clients.call("prune", "--yes", "--older-than", "0h", folder).status == 0
    assert not list(faults_of(clients.home))
    assert not [place for kind in ("staging", "kept") for place in clients.home.rglob(f".*.{kind}")]
    return ended


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_commands_that_are_killed_side_by_side_leave_all_whole(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = run_schedule(seed, tmp_path)
    assert len(ended) == CLIENTS * COMMANDS
