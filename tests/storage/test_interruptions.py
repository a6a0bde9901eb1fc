"""A command that is interrupted at any of its operations leaves the old result or the new one."""

import pytest

from benchmarks.interruptions import CASES, WAYS, interrupted

pytest.importorskip("h5py", reason="the extra `hdf5` holds h5py")
STAGE, APPEND, *RUNS = CASES


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_append_leaves_the_old_or_the_new_store(way):
    left = interrupted(APPEND, every=50, ways=(way,))[way]
    assert sum(left.values()) > 4
    assert left.keys() <= {"old", "new"}


@pytest.mark.slow
@pytest.mark.parametrize("case", [STAGE, *RUNS], ids=lambda case: case.name)
def test_an_interrupted_command_leaves_the_old_or_the_new_files(case):
    for left in interrupted(case, every=10).values():
        assert sum(left.values()) > 4
        assert left.keys() <= {"old", "new", "both"}
