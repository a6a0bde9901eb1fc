"""A command that is interrupted at any of its operations leaves the old result or the new one."""

import pytest

from benchmarks.interruptions import CASES, WAYS, interrupted

pytest.importorskip("h5py", reason="the extra `hdf5` holds h5py")
STAGE, APPEND, SELECT, RUN, EVALUATE = CASES


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_append_leaves_the_old_or_the_new_store(way):
    left = interrupted(APPEND, every=50, ways=(way,))[way]
    assert sum(left.values()) > 4
    assert left.keys() <= {"old", "new"}


def check(case, every):
    for left in interrupted(case, every=every).values():
        assert sum(left.values()) > 4
        assert left.keys() <= {"old", "new", "both"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "every"),
    [(STAGE, 25), (SELECT, 8), (EVALUATE, 6)],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_interrupted_command_leaves_the_old_or_the_new_files(case, every):
    check(case, every)


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_interrupted_at_many_operations_does_too(case):
    check(case, 10)
