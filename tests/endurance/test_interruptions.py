"""A command that is interrupted at any of its operations leaves the old result or the new one.

Each rename, write, flush and deletion fails once in turn: by an error, by Ctrl-C, SIGTERM or a
cancel of Prefect, because the disk is full from there on, or because the process is dead from there
on. The same command given again must succeed.
"""

import contextlib
import errno
import io
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from prefect.exceptions import TerminationSignal

from bigfs import engine, storage
from bigfs.flows import run as runs
from bigfs.flows.cli import app
from bigfs.storage import atomic
from bigfs.storage.format import manifest, shards, verified
from bigfs.storage.runs.runs import Run
from tests.helpers.anndata import write_anndata
from tests.helpers.daily import daily

SERIAL = ("--workers", "0")
ROWS = {"rows.svm": 60, "more.svm": 20}
STOPS = {"interrupt": signal.SIGINT, "terminate": signal.SIGTERM}
WAYS = ("error", "kill", "full", "cancel", *STOPS)


class Killed(BaseException):
    """The process is gone: no later operation happens either."""


class Hook:
    """Fail the operation of a number. Number 0 counts only."""

    def __init__(self, number=0, way=""):
        self.number, self.way, self.count, self.renames = number, way, 0, []

    def __call__(self, operation, path):
        self.count += 1
        if operation == "rename":
            self.renames.append(self.count)
        is_past = self.count >= self.number > 0
        if self.way == "kill" and is_past:
            raise Killed(f"{operation} {path}")
        if self.way == "full" and is_past and operation != "delete":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if self.count == self.number and self.way == "error":
            raise OSError(errno.EIO, f"{operation} was let fail", str(path))
        if self.count == self.number and self.way == "cancel":
            raise TerminationSignal(signal.SIGTERM)
        if self.count == self.number and self.way in STOPS:
            os.kill(os.getpid(), STOPS[self.way])


def bigfs(*words, hook=None):
    """Call a command in this process, in silence, and return its status."""
    with contextlib.ExitStack() as stack:
        for redirect in (contextlib.redirect_stdout, contextlib.redirect_stderr):
            stack.enter_context(redirect(io.StringIO()))
        if hook is not None:
            patched = stack.enter_context(pytest.MonkeyPatch.context())
            patched.setattr(atomic, "fault_point", hook)
            stack.enter_context(runs.FIRST_WAIT.during(0.0))
        return app.app(list(words), standalone_mode=False) or 0


# --- what a command leaves: nothing, or the content of what opens and is whole --------------------


def store_state():
    for kept in (verified.root, verified.array, manifest.checksums_of):
        kept.cache_clear()
    engine.clear_cache()
    if not manifest.exists("s.zarr") and not os.path.lexists("s.zarr"):
        return ""  # to look for a store completes an exchange that stopped half way
    assert not storage.check("s.zarr").problems
    return str(storage.open("s.zarr").spec["content"])


def run_state():
    if not os.path.lexists("r"):
        return ""
    run = Run.open("r")
    assert len(run.selected) == run.metadata["parameters"]["features"] <= len(run.scores)
    points = [(row["method"], row["n_features"]) for row in run.metadata.get("curves", [])]
    if points:
        rows = run.read_table("curves.csv")
        assert points == [(row["method"], int(row["n_features"])) for row in rows]
    assert Path("r/report.html").stat().st_size
    return f"{run.selected.tolist()} {points}"


def file_state():
    with h5py.File("cells.h5ad") as root:
        var = root["var"]
        return str(var["bigfs_rank"][:].tolist()) if "bigfs_rank" in var else "none"


# --- commands -------------------------------------------------------------------------------------


def write_sources(factor=1):
    rng = np.random.default_rng(0)
    for name, rows in ROWS.items():
        X = rng.random((factor * rows, 12)) + (
            np.arange(12) == np.arange(factor * rows)[:, None] % 3
        )
        lines = (
            f"{i % 3} " + " ".join(f"{j + 1}:{v:.3f}" for j, v in enumerate(row))
            for i, row in enumerate(X)
        )
        Path(name).write_text("\n".join(lines) + "\n")


def write_store():
    write_sources()
    bigfs("stage", "rows.svm", "s.zarr", *SERIAL)


def write_store_with_shards():
    write_sources(factor=25)
    storage.stage("rows.svm", "s.zarr", tile_rows=40)


def write_run():
    write_store()
    choice = ("--features", "3", "--method", "anova")
    bigfs("run", "rows.svm", "--store", "s.zarr", "--out", "r", *choice, *SERIAL)


def write_cells():
    def text(group, name, values):
        group.create_dataset(name, data=values, dtype=h5py.string_dtype())
        group[name].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})

    X = sp.csr_array(np.random.default_rng(1).random((40, 9)).astype(np.float32))
    with h5py.File("cells.h5ad", "w") as root:
        write_anndata(root, X, "csr_matrix", text)
    bigfs("stage", "cells.h5ad?label=label", "c.zarr", *SERIAL)
    chosen = ("--features", "2", "--method", "anova", "--into", "cells.h5ad")
    bigfs("select", "c.zarr", "--out", "r", *chosen, *SERIAL)


class Case(NamedTuple):
    """A command, what it needs, and what tells its results."""

    words: str
    prepare: object
    states: tuple


INTO = "select c.zarr --out r --features 4 --into cells.h5ad --method anova --fresh"
RUN = "run rows.svm --store s.zarr --out r --features 5 --fresh --method anova"
CASES = {
    "stage": Case("stage rows.svm s.zarr", write_sources, (store_state,)),
    "append": Case("append more.svm s.zarr", write_store, (store_state,)),
    "append to shards": Case("append more.svm s.zarr", write_store_with_shards, (store_state,)),
    "select --into": Case(INTO, write_cells, (run_state, file_state)),
    "run": Case(RUN, write_run, (store_state, run_state)),
    "evaluate": Case("evaluate r --sizes 2", write_run, (run_state,)),
}


def verdict_of(case, old, new):
    """Return "old", "new" or "both": all results are of one state, or some are new."""
    found = [state() for state in case.states]
    assert all(one in two for one, two in zip(found, zip(old, new, strict=True), strict=True))
    kinds = {"new" if f == n else "old" for f, o, n in zip(found, old, new, strict=True) if o != n}
    return kinds.pop() if len(kinds) == 1 else "both"


def interrupt(case, every, way):
    """Return what is left of a command that is interrupted at each of some operations, counted."""
    case.prepare()
    kept = Path.cwd().with_name("kept")
    shutil.copytree(".", kept, symlinks=True)
    old, hook, words = [state() for state in case.states], Hook(), (*case.words.split(), *SERIAL)
    assert bigfs(*words, hook=hook) == 0
    new, left = [state() for state in case.states], Counter()
    assert old != new
    for number in sorted({*range(1, hook.count + 1, every), *hook.renames}):
        for path in Path.cwd().iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(kept, ".", dirs_exist_ok=True, symlinks=True)
        with contextlib.suppress(BaseException):
            bigfs(*words, hook=Hook(number, way))
        left[verdict_of(case, old, new)] += 1
        assert bigfs(*words, hook=Hook()) == 0, number
        assert verdict_of(case, old, new) == "new", number
    return left


EVERY = {"append": 80, "stage": 40, "select --into": 60}  # of `make test`
TRIED = [(name, way, EVERY[name]) for name in EVERY for way in ("error", "interrupt", "kill")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way", "every"),
    [
        *daily(TRIED, ("append", "kill", 80), ("stage", "error", 40)),
        *daily([(name, way, 10) for name in CASES for way in WAYS]),
    ],
)
def test_an_interrupted_command_leaves_the_old_or_the_new_result(
    name, way, every, tmp_path, monkeypatch, change, request
):
    kept = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as that of the command line
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, kept))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    if name == "append to shards":
        change(shards.FILES, 2)
        change(shards.MOST_CHUNKS, 4)
        every = 80
    left = interrupt(CASES[name], every, way)
    assert left.total() > 4
    if len(CASES[name].states) == 1:
        assert left.keys() <= {"old", "new"}
