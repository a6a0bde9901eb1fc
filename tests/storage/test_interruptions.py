"""A command that is interrupted at any of its operations leaves the old result or the new one."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.interruptions import CASES, WAYS, interrupted
from bigfs import storage
from bigfs.storage.format import shards
from tests.helpers.daily import daily

pytest.importorskip("h5py", reason="the extra `hdf5` holds h5py")
STAGE, APPEND, SELECT, *_ = CASES


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_append_leaves_the_old_or_the_new_store(way):
    left = interrupted(APPEND, every=80, ways=(way,))[way]
    assert sum(left.values()) > 4
    assert left.keys() <= {"old", "new"}


def check(case, every):
    for left in interrupted(case, every=every).values():
        assert sum(left.values()) > 4
        assert left.keys() <= {"old", "new", "both"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "every"),
    daily([(STAGE, 40), (SELECT, 60)], (STAGE, 40)),
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupted_command_leaves_the_old_or_the_new_files(case, every):
    check(case, every)


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_interrupted_at_many_operations_does_too(case):
    check(case, 10)


def write_store_with_shards():
    rng = np.random.default_rng(0)
    for name, rows in (("rows.svm", 1500), ("more.svm", 800)):
        lines = (
            f"{i % 3} " + " ".join(f"{j + 1}:{v:.3f}" for j, v in enumerate(rng.random(12) + 0.1))
            for i in range(rows)
        )
        Path(name).write_text("\n".join(lines) + "\n")
    storage.stage("rows.svm", "s.zarr", tile_rows=40)


@pytest.mark.nightly
def test_an_interrupted_append_to_shards_leaves_the_old_or_the_new_store(monkeypatch):
    monkeypatch.setattr(shards, "FILES", 2)
    monkeypatch.setattr(shards, "MOST_CHUNKS", 4)
    case = APPEND._replace(name="append to shards", prepare=write_store_with_shards)
    for left in interrupted(case, every=80).values():
        assert sum(left.values()) > 4
        assert left.keys() <= {"old", "new"}
