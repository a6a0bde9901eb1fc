"""`bigfs run` killed at random moments in each of its stages, and given again.

python benchmarks/kills.py --kills 40 --seed 0

Each time the driver or a worker gets SIGKILL or SIGTERM. Then the same command is given again: it
must select the same features as a run that nobody killed, and leave the same files and no process.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import typer
from shared import clean_environment, row

STAGES = ("stage", "graph", "select", "evaluate", "report")
SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM}
# seconds: between looks, of a run, and for processes to end
POLL, LONGEST, GRACE = 0.002, 900.0, 60.0


class Case(NamedTuple):
    """Whom to kill, how, and in which stage."""

    stage: str
    victim: str  # "driver" or "worker"
    signal: str


class Outcome(NamedTuple):
    """What a kill left, and what the same command gave afterwards."""

    hit: str  # the stage in which the signal came
    first: int | None  # exit status of the run that got the signal
    again: int | None
    same: bool
    processes: list[str]  # alive after a minute
    files: list[str]  # more or fewer than an undisturbed run leaves

    def well(self) -> bool:
        return self.again == 0 and self.same and not self.processes and not self.files


class Bench:
    """A folder in which runs work, and what an undisturbed one gave."""

    def __init__(self, home: Path, source: str, workers: int) -> None:
        self.home, self.work, self.temporary = home, home / "work", home / "tmp"
        self.mark = uuid.uuid4().hex
        marks = {"TMPDIR": str(self.temporary), "BIGFS_BENCHMARK": self.mark}
        self.env = clean_environment(home, **marks)
        words = f"run {source} --method sparge-lpp --features 100 --workers {workers}"
        words += " --out runs/r --set tol=1e-3"
        self.command = [sys.executable, "-m", "bigfs", *words.split()]
        self.seconds: Counter[str] = Counter()
        self.clear("stage")
        process = self.start()
        began, last = time.monotonic(), self.stage()
        while process.poll() is None:
            now, time_now = self.stage(), time.monotonic()
            self.seconds[last] += time_now - began
            began, last = time_now, now
            time.sleep(POLL)
        if process.returncode:
            raise SystemExit(f"the undisturbed run failed:\n{(home / 'log').read_text()}")
        self.left_by(process, GRACE)
        self.expected, self.files = self.selected(), self.listing()

    def start(self) -> subprocess.Popen[bytes]:
        with (self.home / "log").open("wb") as log:
            settings = {"stdout": log, "stderr": log, "start_new_session": True}
            return subprocess.Popen(self.command, cwd=self.work, env=self.env, **settings)

    def stage(self) -> str:
        """The stage that a run is in, by what it has left so far."""
        partial = next(self.work.glob("runs/.r/*/"), self.work / "runs" / ".r" / "none")
        done = {
            "stage": any(self.work.glob(".bigfs/*.zarr")),
            "graph": any(self.work.glob(".bigfs/*.graphs/*.zarr")),
            "select": (partial / "scores.npy").exists(),
            "evaluate": (partial / "curves.csv").exists(),
            "report": (self.work / "runs" / "r").exists(),
        }
        if done["report"]:
            return "done"
        began = {
            "stage": any(path.suffix != ".lock" for path in self.work.glob(".bigfs/*")),
            "graph": any(self.work.glob(".bigfs/*.graphs/.*.staging")),
        }
        stage = next(name for name in STAGES if not done[name])
        return stage if began.get(stage, partial.exists()) else "start-up"

    def clear(self, stage: str) -> None:
        """Take away what `stage` and the stages after it left."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.work / "runs", ignore_errors=True)
        if stage == "stage":
            shutil.rmtree(self.work / ".bigfs", ignore_errors=True)
        if stage == "graph":
            for folder in self.work.glob(".bigfs/*.graphs"):
                shutil.rmtree(folder)

    def selected(self) -> bytes | None:
        file = self.work / "runs" / "r" / "selected.csv"
        return file.read_bytes() if file.exists() else None

    def listing(self) -> set[str]:
        """All that runs left, but for what stores hold, which have checksums."""
        paths = [path for root in (self.work, self.temporary) for path in root.rglob("*")]
        names = [path.relative_to(self.home) for path in paths]
        return {str(name) for name in names if not re.search(r"\.zarr/", str(name))}

    def processes(self) -> list[psutil.Process]:
        """All processes that carry this benchmark's mark."""
        mine = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                marked = process.environ().get("BIGFS_BENCHMARK") == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    mine.append(process)
        return mine

    def left_by(self, run: subprocess.Popen[bytes], seconds: float) -> list[str]:
        """Processes that outlive their run by `seconds`; they are ended."""
        run.wait()
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.2)
        names = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                names.append(" ".join(process.cmdline())[:80])
                process.kill()
        return names


def workers_of(driver: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The driver's Dask workers."""
    children = psutil.Process(driver.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def strike(bench: Bench, run: subprocess.Popen[bytes], case: Case, moment: float) -> str | None:
    """Wait for a moment of the stage and kill; the stage that was hit, None if the run was over."""
    while bench.stage() != case.stage and run.poll() is None:
        time.sleep(POLL)
    until = time.monotonic() + moment
    while bench.stage() == case.stage and time.monotonic() < until:
        time.sleep(POLL)
    with contextlib.suppress(psutil.Error):
        workers = workers_of(run) if case.victim == "worker" else [psutil.Process(run.pid)]
        hit = bench.stage()
        if workers and run.poll() is None and hit != "done":
            random.choice(workers).send_signal(SIGNALS[case.signal])
            return hit
    return None


def killed(bench: Bench, case: Case, chosen: random.Random) -> Outcome:
    """Kill a run, then give the same command again."""
    for attempt in range(20):
        bench.clear(case.stage)
        run = bench.start()
        # earlier after each miss: a stage may be shorter than it was undisturbed
        moment = chosen.uniform(0, bench.seconds[case.stage]) * 0.7**attempt
        hit = strike(bench, run, case, moment)
        status = run.wait(LONGEST)
        left = bench.left_by(run, GRACE)
        if hit == case.stage:
            break
    else:
        raise SystemExit(f"the stage {case.stage} is too short to be hit: give a larger --source")
    again = bench.start()
    again.wait(LONGEST)
    left += bench.left_by(again, GRACE)
    same, files = bench.selected() == bench.expected, sorted(bench.listing() ^ bench.files)
    return Outcome(str(hit), status, again.returncode, same, left, files)


def cases(first: int, kills: int) -> Iterator[Case]:
    every = itertools.cycle(itertools.product(("driver", "worker"), SIGNALS, STAGES))
    for victim, name, stage in itertools.islice(every, first, kills):
        yield Case(stage, victim, name)


def main(
    kills: int = 40,
    seed: int = 0,
    source: str = "synthetic:newswire?rows=6000&seed=1",
    workers: int = 2,
    first: int = 0,
) -> None:
    """Twenty kills are one of each kind. `first` leaves out those that were done before."""
    home, chosen = Path(tempfile.mkdtemp(prefix="bigfs-kills-")), random.Random(seed)
    outcomes: list[tuple[Case, Outcome]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that it ends what it started
    try:
        bench = Bench(home, source, workers)
        print("undisturbed:", {name: round(bench.seconds[name], 1) for name in STAGES}, flush=True)
        for case in cases(first, kills):
            outcome = killed(bench, case, chosen)
            outcomes.append((case, outcome))
            said = "well" if outcome.well() else outcome
            print(f"{len(outcomes)}/{kills} {' '.join(case)}: {said}", flush=True)
        bad = sum(not outcome.well() for _, outcome in outcomes)
        figure = f"{kills - bad} of {kills} the same features, no process and no file left"
        row("bigfs run, killed and given again", source, figure, "", f"kills.py --seed {seed}")
        sys.exit(f"{bad} of {kills} kills left something or changed the answer" if bad else 0)
    finally:
        if "bench" in locals():
            for process in bench.processes():
                with contextlib.suppress(psutil.Error):
                    # a tracker ends by itself, after it has unlinked the semaphores of its run
                    if "resource_tracker" not in " ".join(process.cmdline()):
                        process.kill()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
