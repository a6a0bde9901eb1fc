"""The power fails: what a command has published is whole, and the next command goes on."""

import subprocess
import sys

import pytest

from tests.helpers.disks import disk, needs_disk
from tests.helpers.processes import environment, kill, until, write_corpus

pytestmark = [pytest.mark.process, pytest.mark.nightly, needs_disk]

BIGFS = [sys.executable, "-m", "bigfs"]
APPEND = ["append", "b.svm", "a.zarr", "--workers", "0"]
RUN = ["run", "a.zarr", "--method", "anova", "--features", "5", "--workers", "0", "--out", "r"]


@pytest.fixture
def ext4(tmp_path):
    with disk(tmp_path) as made:
        yield made


@pytest.fixture
def bigfs(ext4, tmp_path):
    """Run a command on the disk: status, and what it printed."""
    env = environment(tmp_path)

    def call(*words):
        done = subprocess.run(
            ext4.on([*BIGFS, *words]), env=env, capture_output=True, text=True, timeout=200
        )
        return done.returncode, done.stdout + done.stderr

    call.env = env
    return call


@pytest.fixture
def store(ext4, bigfs):
    """A store that is on the disk for good."""
    write_corpus(ext4.path / "a.svm", seed=1)
    write_corpus(ext4.path / "b.svm", seed=2)
    status, said = bigfs("stage", "a.svm", "a.zarr")
    assert status == 0, said
    subprocess.run(["sync"], check=True)


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_that_nobody_flushed_are_lost(ext4, bigfs):
    """Else the other tests would show nothing."""
    (ext4.path / "plain").write_text("text")
    ext4.lose_power()
    assert ext4.empty_files() == ["plain"]


def test_a_store_is_whole(ext4, bigfs):
    write_corpus(ext4.path / "a.svm", seed=1)
    subprocess.run(["sync"], check=True)
    status, said = bigfs("stage", "a.svm", "a.zarr")
    assert status == 0, said
    before = contents(ext4.path / "a.zarr")
    ext4.lose_power()
    assert ext4.empty_files() == []
    assert contents(ext4.path / "a.zarr") == before
    assert bigfs("check", "a.zarr")[0] == 0
    assert "reused" in bigfs("stage", "a.svm", "a.zarr")[1]


def test_a_store_that_has_grown_is_whole(ext4, bigfs, store):
    assert bigfs(*APPEND)[0] == 0
    before = contents(ext4.path / "a.zarr")
    ext4.lose_power()
    assert ext4.empty_files() == []
    assert contents(ext4.path / "a.zarr") == before
    assert bigfs("check", "a.zarr")[0] == 0


def test_a_run_is_whole(ext4, bigfs, store):
    assert bigfs(*RUN)[0] == 0
    before = contents(ext4.path / "r")
    ext4.lose_power()
    assert ext4.empty_files() == []
    assert contents(ext4.path / "r") == before
    assert "has this result already" in bigfs(*RUN)[1]


@pytest.mark.parametrize(
    ("words", "sign"),
    [
        pytest.param(APPEND, ".a.zarr.*.staging/new", id="append begins"),
        pytest.param(APPEND, ".a.zarr.*.staging/new/zarr.json", id="append ends"),
        pytest.param(RUN, ".r/*/run.json", id="run begins"),
        pytest.param(RUN, ".r/*/.*report.html*", id="run ends"),
    ],
)
def test_in_the_middle_of_a_command_the_next_one_goes_on(ext4, bigfs, store, words, sign):
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(ext4.on([*BIGFS, *words]), env=bigfs.env, **pipes) as started:
        until(lambda: any(ext4.path.glob(sign)), sign, 200, every=0.001)
        ext4.stop()
        kill(started)
    ext4.start()
    status, said = bigfs(*words)
    assert status == 0, said
    assert bigfs("check", "a.zarr")[0] == 0
    assert not list(ext4.path.glob(".*.staging"))
    assert ext4.empty_files() == []
