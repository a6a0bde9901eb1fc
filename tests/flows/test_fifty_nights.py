"""Fifty nights in a row, and what goes wrong in some of them: of a folder that grows, by the
commands `run` and `prune`, and of a corpus to which each night is appended, by the flow `nightly`
on a server of Prefect. The clock of what a night leaves is set back by hand.
"""

import errno
import json
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from bigfs import storage
from bigfs.flows.options import ClusterOptions
from bigfs.flows.report.history import history
from bigfs.storage import atomic, integrity
from bigfs.storage.runs.runs import Run
from tests.helpers.commands import fails
from tests.helpers.processes import PREFECT_WARNS, environment, kill, start, until, write_corpus

pytestmark = [pytest.mark.process, pytest.mark.nightly, PREFECT_WARNS]

NIGHTS, KEPT, DAY = 50, 30, 86400
RUN = ["run", "corpus", "--method", "sparge-lda", "--features", "12", "--set", "tol=1e-8"]
RUN += ["--workers", "0", "--out", "runs/nightly"]
HOME = Path("runs/nightly")
STORES = Path(".bigfs")


def add_documents(night):
    """Write nine documents of three classes, of which each has frequent words of its own."""
    chosen = random.Random(night)
    for i in range(9):
        own = [f"own{i % 3}{chosen.randrange(5)}" for _ in range(6)]
        words = [f"word{chosen.randrange(40)}" for _ in range(30)]
        half = "test" if night % 3 == 2 else "train"
        file = Path(f"corpus/{half}/class{i % 3}/{night:02}-{i}.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(" ".join(own + words))


def size(*folders):
    return sum(f.stat().st_size for folder in folders for f in folder.rglob("*") if f.is_file())


def contents(*folders):
    files = [f for folder in folders for f in folder.rglob("*") if f.is_file()]
    return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def killed(tmp_path, there):
    """Start the run of a night, and kill it once a path is there."""
    process = start(
        [sys.executable, "-m", "bigfs", *RUN], tmp_path / "log", environment(tmp_path), tmp_path
    )
    until(lambda: any(tmp_path.glob(there)) or process.poll() is not None, there, every=0.001)
    os.kill(process.pid, signal.SIGSTOP)  # so that it does not end before it is killed
    assert process.poll() is None, (tmp_path / "log").read_text()
    kill(process)


def killed_in_staging(bigfs, tmp_path, _):
    killed(tmp_path, ".bigfs/.*.staging/new/X")


def killed_in_the_fit(bigfs, tmp_path, _):
    killed(tmp_path, "runs/.nightly/*/checkpoints/*.npz")


def full_disk(bigfs, tmp_path, monkeypatch):
    def write(operation, path):
        if operation == "write" and "X/data" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(atomic, "fault_point", write)
        fails(bigfs(*RUN), "is full")


def damaged_chunk(bigfs, tmp_path, _):
    """The run does nothing with such a store, and says what to do."""
    assert bigfs(*RUN)[0] == 0
    (store,) = STORES.glob(f"{Path(Run.open(HOME).metadata['parameters']['store']).name}")
    chunk = store / "uns/columns/0/data/c/0"
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    fails(bigfs(*RUN), "chunk 0 of array uns/columns/0/data is damaged", "remove it")
    store.rename(tmp_path / "damaged")


FAULTS = {10: killed_in_staging, 20: damaged_chunk, 30: full_disk, 40: killed_in_the_fit}


def test_fifty_nights(bigfs, tmp_path, monkeypatch):
    said, stores, runs = [], [], []
    for night in range(NIGHTS):
        add_documents(night)
        if night in FAULTS:
            FAULTS[night](bigfs, tmp_path, monkeypatch)
        status, _, err = bigfs(*RUN)
        assert status == 0, err
        run = Run.open(HOME)
        staged = next(step for step in run.metadata["stages"] if "store" in step)
        assert staged["reused"] is (night == 40)
        assert bool(run.metadata["resumed"]) is (night == 40)
        said.append([row["name"] for row in run.read_table("selected.csv")])

        assert bigfs("prune", "--yes")[0] == 0
        before = contents(STORES, Path("runs"))
        status, _, err = bigfs(*RUN)
        assert (status, err.strip()) == (
            0,
            "bigfs: runs/nightly has this result already (--fresh repeats it)",
        )
        assert contents(STORES, Path("runs")) == before  # nothing is done twice
        (store,) = STORES.glob("*.zarr")
        assert integrity.check(store).problems == []
        assert not [*STORES.glob(".*.staging"), *Path("runs").glob(".*-partial")]
        stores.append(size(STORES))
        runs.append(size(HOME))

    # one store, which grows with the folder, and a result for each night
    assert stores[-1] < 2 * stores[NIGHTS // 2]
    assert size(Path("runs")) <= sum(runs) + NIGHTS * len(atomic.WORDS)
    assert max(runs) < 2 * runs[0]
    assert_history(bigfs, said)

    # the results of the last thirty days
    for age, record in enumerate(reversed(results(bigfs))):
        made = Path(record["folder"], "run.json")
        os.utime(made, (made.stat().st_atime, made.stat().st_mtime - age * DAY))
    assert bigfs("prune", "--older-than", f"{KEPT}d", "--yes")[0] == 0
    assert size(Path("runs")) <= (KEPT + 1) * (max(runs) + len(atomic.WORDS))
    assert_history(bigfs, said[-KEPT:])
    assert bigfs(*RUN)[2].strip().startswith("bigfs: runs/nightly has this result already")


def results(bigfs):
    """The records of the nights that ended well."""
    records = json.loads(bigfs("history", HOME, "--json")[1])["runs"]
    return [record for record in records if record["error"] is None]


def assert_history(bigfs, said):
    """Each night is there once, in order, with what it chose."""
    records = results(bigfs)
    assert len({record["folder"] for record in records}) == len(records) == len(said)
    assert [r["made"] for r in records] == sorted(r["made"] for r in records)
    for record, names in zip(records, said, strict=True):
        chosen = Run.open(record["folder"]).read_table("selected.csv")
        assert [row["name"] for row in chosen] == names


# --- on a server ----------------------------------------------------------------------------------

STORE, ROWS = Path("corpus.zarr"), 60
AGING = Path("runs"), Path("corpus.graphs"), Path("corpus.counts")


def damage(pattern):
    """Damage the middle of a file, and return what puts it back."""
    file = next(file for file in sorted(Path().glob(pattern)) if file.is_file())
    whole, middle = file.read_bytes(), file.stat().st_size // 2
    file.write_bytes(whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 8]))
    return lambda: file.write_bytes(whole)


# files that are made again, and those that a night says are damaged until somebody puts them back
MADE_AGAIN = {
    5: "corpus.counts/*.npz",
    8: "corpus.graphs/*/*/c/*",
    10: "runs/nightly/run.json",
    13: "runs/nightly/selected.csv",
    15: "runs/nightly/model.npz",
    18: "runs/.nightly/*/run.json",
}
PUT_BACK = {20: "corpus.zarr/X/data/c/0", 23: "corpus.zarr/zarr.json", 35: "new/35.jsonl"}
OUTAGE = 28


def test_fifty_nights_on_a_server(bigfs, prefect):
    from prefect import settings
    from prefect.settings import temporary_settings

    from bigfs.flows.prefect_flows import nightly

    given = {"features": 12, "method": "sparge-lpp", "parameters": {"tol": 1e-3}}
    given |= {"engine": ClusterOptions(workers=0), "keep": f"{KEPT}d"}
    said, sizes = [], []
    for night in range(NIGHTS):
        new = f"new/{night:02}.jsonl"
        Path("new").mkdir(exist_ok=True)
        write_corpus(Path(new), seed=night, rows=ROWS)
        night_of = partial(nightly, new, str(STORE), str(HOME), **given, return_state=True)
        if night in MADE_AGAIN:
            damage(MADE_AGAIN[night])
        if night in PUT_BACK:
            put_back = damage(PUT_BACK[night])
            assert night_of().is_failed()
            assert history(HOME)[-1]["error"] is not None
            put_back()
        if night == OUTAGE:
            down = temporary_settings({settings.PREFECT_API_URL: "http://127.0.0.1:9/api"})
            with down, pytest.raises(RuntimeError, match="Failed to reach API"):
                night_of()
        state = night_of()
        assert state.is_completed(), (night, state.message)
        run, corpus = Run.open(HOME), storage.open(str(STORE))
        assert corpus.X.shape[0] == ROWS * (night + 1)
        assert run.metadata["content"] == corpus.spec["content"]
        said.append([row["name"] for row in run.read_table("selected.csv")])
        sizes.append(size(STORE))
        for file in [file for folder in AGING for file in folder.rglob("*")]:
            made = file.lstat()
            times = made.st_atime, made.st_mtime - DAY
            os.utime(file, times, follow_symlinks=False)

    # the corpus grows by what came, and a month of results, graphs and counts lies beside it
    assert sizes[-1] < 1.5 * NIGHTS * sizes[0]
    kept = [*Path("runs/.nightly").glob("2*/run.json")], [*Path("corpus.graphs").glob("[!.]*")]
    kept = *kept, [*Path("corpus.counts").glob("*.npz")]
    assert [len(paths) for paths in kept] == [KEPT, KEPT, KEPT]
    assert integrity.check(str(STORE)).problems == []
    assert_history(bigfs, said[-KEPT:])
