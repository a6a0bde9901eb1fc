"""Each rename, write, flush and deletion of a command fails once in turn, and what is left opens.

python benchmarks/interruptions.py [--commands stage,append] [--every 1]
python benchmarks/interruptions.py --system-calls [--most 12]

Three ways: the operation raises EIO, SIGINT comes at it, or the process is dead from it on (every
later operation fails too). After each the result must be the old or the new one, whole, and the
same command given again must succeed. With --system-calls strace lets the calls of the real command
fail (`rename`, `fsync`, `unlink`) or kills it there. Only the calls of this module's hook are
counted without strace: `bigfs.storage.atomic.before`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import typer

from bigfs import engine, storage
from bigfs.storage import atomic
from bigfs.storage.format import manifest, verified
from bigfs.storage.runs.runs import Run

ROOT = Path(__file__).parent.parent
WAYS = ("error", "interrupt", "kill")
CALLS = ("rename", "fsync", "unlink")


class Killed(BaseException):
    """The process is gone: no later operation happens either."""


class Hook:
    """Fail the operation of a number. Without a number it counts only."""

    def __init__(self, number: int = 0, way: str = "") -> None:
        self.number, self.way, self.count = number, way, 0
        self.renames: list[int] = []

    def __call__(self, operation: str, path: atomic.Place) -> None:
        self.count += 1
        if operation == "rename":
            self.renames.append(self.count)
        if self.way == "kill" and self.count >= self.number > 0:
            raise Killed(f"{operation} {path}")
        if self.count == self.number:
            if self.way == "error":
                raise OSError(errno.EIO, f"{operation} was let fail", str(path))
            os.kill(os.getpid(), signal.SIGINT)


@contextlib.contextmanager
def hooked(hook: Hook) -> Iterator[None]:
    original, atomic.before = atomic.before, hook
    try:
        yield
    finally:
        atomic.before = original


# --- what a command leaves ------------------------------------------------------------------------


def store_state(uri: str) -> str:
    """Return the content of a store that opens and checks, or "" where there is none."""
    for kept in (verified.root, verified.array, manifest.checksums_of):
        kept.cache_clear()
    engine.clear_cache()
    if not manifest.exists(uri) and not os.path.lexists(uri):
        return ""
    report = storage.check(uri)
    if report.problems:
        raise ValueError(report.problems[0])
    return str(storage.open(uri).spec["content"])


def run_state(out: str) -> str:
    """Return what a whole run selected and measured, or "" where there is none."""
    try:
        run = Run.open(out)
    except ValueError:
        if os.path.lexists(out):
            raise
        return ""
    chosen, request = run.selected, run.metadata["parameters"]
    if len(chosen) != request["features"] or len(run.scores) < len(chosen):
        raise ValueError("selected.csv and run.json are of two runs")
    points = [(row["method"], row["n_features"]) for row in run.metadata.get("curves", [])]
    if points:
        rows = [(row["method"], int(row["n_features"])) for row in run.read_table("curves.csv")]
        if rows != points:
            raise ValueError("curves.csv and run.json are of two runs")
    if not (Path(out) / "report.html").stat().st_size:
        raise ValueError("the report is empty")
    return f"{chosen.tolist()} {points}"


def file_state(file: str) -> str:
    """Return the selection in an AnnData file that is whole."""
    import h5py

    with h5py.File(file) as root:
        hashlib.sha256(root["X/data"][:].tobytes())  # it can be read
        var = root["var"]
        return str(var["bigfs_rank"][:].tolist()) if "bigfs_rank" in var else "none"


class Case(NamedTuple):
    """A command, what it needs, and what it changes."""

    name: str
    prepare: Callable[[], None]
    words: tuple[str, ...]
    state: Callable[[], tuple[str, ...]]


def bigfs(*words: str) -> int:
    """Call the command line in this process, in silence. Returns its status."""
    from bigfs.flows import run as runs
    from bigfs.flows.cli import app as cli

    runs.FIRST_WAIT = 0.0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return cli.app(list(words), standalone_mode=False) or 0


SERIAL = ("--workers", "0")
ANOVA = ("--method", "anova", *SERIAL)


def write_sources() -> None:
    rng = np.random.default_rng(0)
    for name, rows in (("rows.svm", 60), ("more.svm", 20)):
        lines = []
        for i in range(rows):
            values = rng.random(12) + (np.arange(12) == i % 3)
            entries = " ".join(f"{j + 1}:{value:.3f}" for j, value in enumerate(values))
            lines.append(f"{i % 3} {entries}\n")
        Path(name).write_text("".join(lines))


def write_cells() -> None:
    import h5py

    write_sources()
    X = np.random.default_rng(1).random((40, 9)).astype(np.float32)
    with h5py.File("cells.h5ad", "w") as root:
        root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        group = root.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        group.attrs["shape"] = X.shape
        group["data"], group["indices"] = X.ravel(), np.tile(np.arange(9, dtype=np.int32), 40)
        group["indptr"] = np.arange(0, 361, 9, dtype=np.int32)
        for name, n in (("obs", 40), ("var", 9)):
            frame = root.create_group(name)
            frame.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0"})
            frame.attrs["_index"] = "_index"
            texts = [f"{name}{i}" for i in range(n)]
            frame.create_dataset("_index", data=texts, dtype=h5py.string_dtype())
            frame["_index"].attrs.update(
                {"encoding-type": "string-array", "encoding-version": "0.2.0"}
            )
            frame.attrs.create("column-order", [], dtype=h5py.string_dtype())
        root["obs"]["label"] = np.arange(40) % 3 + X[:, 0]
        root["obs"]["label"].attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        root["obs"].attrs.create("column-order", ["label"], dtype=h5py.string_dtype())
    bigfs("stage", "cells.h5ad?label=label", "c.zarr", *SERIAL)
    method = ("--method", "f-regression", *SERIAL)
    bigfs("select", "c.zarr", "--out", "r", "--features", "2", *method, "--into", "cells.h5ad")


def write_store() -> None:
    write_sources()
    bigfs("stage", "rows.svm", "s.zarr", *SERIAL)


def write_run() -> None:
    write_store()
    bigfs("run", "rows.svm", "--store", "s.zarr", "--out", "r", "--features", "3", *ANOVA)


INTO = "select c.zarr --out r --features 4 --into cells.h5ad --method f-regression --fresh"
RUN = "run rows.svm --store s.zarr --out r --features 5 --fresh --method anova"
STORE, RUNS = partial(store_state, "s.zarr"), partial(run_state, "r")
CASES = tuple(
    Case(name, prepare, (*words.split(), *SERIAL), lambda states=states: tuple(s() for s in states))
    for name, prepare, words, states in (
        ("stage", write_sources, "stage rows.svm s.zarr", (STORE,)),
        ("append", write_store, "append more.svm s.zarr", (STORE,)),
        ("select --into", write_cells, INTO, (RUNS, partial(file_state, "cells.h5ad"))),
        ("run", write_run, RUN, (STORE, RUNS)),
        ("evaluate", write_run, "evaluate r --sizes 2", (RUNS,)),
    )
)


# --- a command that is interrupted ----------------------------------------------------------------


class Place:
    """A folder with what a command needs, which can be had again."""

    def __init__(self, case: Case, home: Path) -> None:
        self.case, self.work, self.kept = case, home / "work", home / "kept"
        self.work.mkdir()
        os.chdir(self.work)
        case.prepare()
        shutil.copytree(self.work, self.kept, symlinks=True)
        self.old = case.state()
        hook = Hook()
        with hooked(hook):
            bigfs(*case.words)
        self.points, self.renames, self.new = hook.count, hook.renames, case.state()
        assert self.old != self.new, f"{case.name} changes nothing: {self.old}"

    def restore(self) -> None:
        for path in self.work.iterdir():  # the folder itself is the current one
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.kept, self.work, dirs_exist_ok=True, symlinks=True)

    def judge(self) -> str:
        """Return "old", "new", "both" for results of which some are new, or "neither: why"."""
        try:
            state = self.case.state()
        except (ValueError, OSError, KeyError) as error:
            return f"neither: {error}"
        kinds = {
            "old" if got == old and got != new else "new" if got == new else "neither"
            for got, old, new in zip(state, self.old, self.new, strict=True)
            if old != new or got != new
        }
        return kinds.pop() if len(kinds) == 1 else "neither" if "neither" in kinds else "both"

    def interrupt(self, number: int, way: str) -> str:
        """Let an operation fail, and return what is left. The command must then succeed."""
        self.restore()
        with hooked(Hook(number, way)), contextlib.suppress(BaseException):
            bigfs(*self.case.words)
        left = self.judge()
        try:
            status = bigfs(*self.case.words)
        except Exception as error:  # whatever it fails by is reported
            return f"{left}, and the same command again fails: {error}"
        after = self.judge()
        return left if (status, after) == (0, "new") else f"{left}, and then {after} ({status})"


def interrupted(
    case: Case, every: int = 1, ways: tuple[str, ...] = WAYS
) -> dict[str, Counter[str]]:
    """Return how many interruptions of a command left what, by their way."""
    current = Path.cwd()
    with tempfile.TemporaryDirectory() as home:
        try:
            place = Place(case, Path(home))
            numbers = sorted({*range(1, place.points + 1, every), *place.renames})
            return {way: Counter(place.interrupt(n, way) for n in numbers) for way in ways}
        finally:
            os.chdir(current)


# --- the real thing -------------------------------------------------------------------------------


def traced(case: Case, most: int) -> Iterator[tuple[str, Counter[str]]]:
    """Yield the call, the fault and what was left, for calls of the command in a process."""
    current = Path.cwd()
    command = [sys.executable, "-m", "bigfs", *case.words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as home:
        try:
            place = Place(case, Path(home))
            log = Path(home) / "log"

            def trace(call: str, *given: str) -> str:
                place.restore()
                strace = ["strace", "-f", "-o", str(log), "-e", f"trace={call}", *given]
                subprocess.run([*strace, *command], env=env, capture_output=True, check=False)
                return log.read_text(errors="replace")

            for call in CALLS:
                # -f counts each thread by itself, and the first one calls most
                text = trace(call)
                count = max(
                    Counter(re.findall(rf"^(\d+) +{call}\(", text, re.M)).values(), default=0
                )
                chosen = sorted({round(n) for n in np.linspace(1, count, min(most, count))})
                for fault in ("error=EIO", "error=EIO:signal=KILL"):
                    left: Counter[str] = Counter()
                    for number in chosen:
                        text = trace(call, "-e", f"inject={call}:{fault}:when={number}")
                        if "INJECTED" not in text and "killed by SIGKILL" not in text:
                            continue
                        judged = place.judge()
                        again = subprocess.run(command, env=env, capture_output=True, check=False)
                        after = place.judge()
                        left[
                            judged
                            if (again.returncode, after) == (0, "new")
                            else f"{judged}, and then {after} ({again.stderr.decode().strip()})"
                        ] += 1
                    yield f"{call} {fault}", left
        finally:
            os.chdir(current)


def main(commands: str = "", every: int = 1, system_calls: bool = False, most: int = 12) -> None:
    """Commands by their names; each n-th operation and all renames; or the most calls of a kind."""
    if system_calls and shutil.which("strace") is None:
        raise SystemExit("strace is not on this machine: install it, or leave --system-calls out")
    wanted = commands.split(",") if commands else [case.name for case in CASES]
    failed = False
    for case in (case for case in CASES if case.name in wanted):
        found = dict(traced(case, most)) if system_calls else interrupted(case, every)
        for way, left in found.items():
            print(f"{case.name}, {way}: {sum(left.values())} points, {dict(left)}", flush=True)
            failed |= any(kind not in ("old", "new", "both") for kind in left)
    raise SystemExit(failed)


if __name__ == "__main__":
    typer.run(main)
