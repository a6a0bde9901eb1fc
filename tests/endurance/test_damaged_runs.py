"""Damaged files of a run: whoever reads a run gives what it gave before, or ends in one line.

Each file of a run is damaged in each way, and each command that reads runs is called. The same
command as at first mends a run, or says in one line what to do.
"""

import json
import os
import shutil
from pathlib import Path

import pytest

from bigfs.storage.runs.runs import Run, record_failure
from tests.helpers.daily import daily
from tests.helpers.stores import write_svmlight

SERIAL = ["--workers", "0"]
RUN = ["run", "s.zarr", "--method", "fisher", *SERIAL]
READERS = {
    "history": ["history", "r", "--json"],
    "predict": ["predict", "r", "rows.svm", "p.csv", *SERIAL],
    "export": ["export", "r", "m.skops"],
    "transform": ["transform", "r", "s.zarr", "x.npz"],
    "evaluate": ["evaluate", "r", "--sizes", "2", *SERIAL],
    "again": [*RUN, "--out", "r", "--features", "3", "--sizes", "1,3"],
}
WRITTEN = {"predict": "p.csv", "transform": "x.npz"}
FILES = ["run.json", "selected.csv", "scores.npy", "classes.csv", "curves.csv", "model.npz"]
FILES += ["report.html", "../failures.jsonl", "../.made-by-bigfs"]


def flipped(place):
    def damage(file, _):
        content = bytearray(file.read_bytes())
        content[int(place * (len(content) - 1))] ^= 64
        file.write_bytes(content)

    return damage


def cut(place):
    def damage(file, _):
        content = file.read_bytes()
        file.write_bytes(content[: int(place * len(content))])

    return damage


def without_a_line(file, _):
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))


def swapped(file, other):
    shutil.copy(other, file)


def lengthened(file, _):
    file.write_bytes(file.read_bytes() + b"1,2,3\n")


def zeroed(file, _):
    file.write_bytes(bytes(file.stat().st_size))


def deleted(file, _):
    file.unlink()


def a_folder(file, _):
    file.unlink()
    file.mkdir()


def a_loop(file, _):
    file.unlink()
    file.symlink_to(file.name)


DAMAGES = {f"flipped at {place}": flipped(place) for place in (0, 0.3, 0.6, 0.9, 1)}
DAMAGES |= {f"cut at {place}": cut(place) for place in (0, 0.5, 0.99)}
DAMAGES |= {
    way.__name__: way
    for way in (without_a_line, swapped, lengthened, zeroed, deleted, a_folder, a_loop)
}
CASES = [(file, damage) for file in FILES for damage in DAMAGES]
DAILY = [
    ("run.json", "swapped"),
    ("selected.csv", "without_a_line"),
    ("scores.npy", "flipped at 1"),
    ("model.npz", "zeroed"),
    ("report.html", "cut at 0.5"),
    ("../failures.jsonl", "flipped at 0.6"),
]


class Home:
    """A folder with two runs that can be had again, and what each reader says of the first one."""

    def __init__(self, folder):
        self.kept, self.work = folder / "kept", folder / "work"
        self.whole = {}

    def make(self, bigfs):
        self.work.mkdir()
        os.chdir(self.work)
        write_svmlight(self.work / "rows.svm", rows=40)
        assert bigfs("stage", "rows.svm", "s.zarr", *SERIAL)[0] == 0
        assert bigfs(*RUN, "--out", "r", "--features", "3", "--sizes", "1,3")[0] == 0
        assert bigfs(*RUN, "--out", "other", "--features", "2", "--sizes", "2")[0] == 0
        for name in ("r", "other"):
            record_failure(name, f"{name} failed")
        shutil.copytree(self.work, self.kept, symlinks=True)

    def restore(self):
        for path in self.work.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self.kept, self.work, symlinks=True, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def home(made, bigfs, monkeypatch):
    """The folder of the runs, which is the current one."""
    if not made.work.exists():
        made.make(bigfs)
    monkeypatch.chdir(made.work)
    return made


def values_of(run):
    known = {name: run.metadata[name] for name in ("status", "curves", "parameters", "content")}
    return known | {
        "selected": run.selected.tolist(),
        "scores": run.scores.tolist(),
        "tables": [run.read_table(name) for name in ("selected.csv", "classes.csv", "curves.csv")],
        "model": run.model().linear.coef.tolist(),
        "report": run.holds("report.html"),
    }


def told(bigfs, reader):
    """Return what a command gives, or None if it ends in one line."""
    status, out, err = bigfs(*READERS[reader])
    assert "Traceback" not in err
    if status:
        assert err.splitlines()[-1].startswith("bigfs: "), err
        return None
    if reader in WRITTEN:
        return Path(WRITTEN[reader]).read_bytes()
    if reader == "history":
        return json.loads(out)["runs"]
    run = Run.open("r")
    if reader == "export":  # whose file holds names that are made anew
        return run.model().linear.coef.tolist()
    return run.metadata["curves"] if reader == "evaluate" else values_of(run)


def failure_of(home, name):
    return f"{name} failed (in {home.work})"


@pytest.mark.parametrize(("file", "damage"), daily(CASES, *DAILY))
def test_readers_of_a_damaged_run_give_the_same_or_one_line(home, bigfs, file, damage):
    for reader in READERS:
        home.restore()
        if reader not in home.whole:
            home.whole[reader] = told(bigfs, reader)
            assert home.whole[reader] is not None
            home.restore()
        DAMAGES[damage](Path(f".r/{os.readlink('r')[3:]}", file), Path("other", file))
        given = told(bigfs, reader)
        if reader == "history" and given is not None:
            assert sum(row["folder"] is not None for row in given) == 1
            odd = [row["error"] for row in given if row not in home.whole[reader]]
            if file == "../failures.jsonl" and damage == "swapped":
                assert odd == [failure_of(home, "other")]  # a line stands for itself
            else:
                assert all("is damaged" in why or "is missing" in why for why in odd), odd
        else:
            assert given in (None, home.whole[reader]), reader
