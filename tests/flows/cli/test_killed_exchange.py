"""A process was killed between the two renames that replace a store: whatever command opens the
store next finds the old one.
"""

import os
import shutil

import pytest

from bigfs.storage import atomic
from tests.helpers.processes import write_corpus

HERE = ("--workers", "0")
ANOVA = ("--method", "anova", "--features", "5", *HERE)
COMMANDS = [
    ("info", "a.zarr"),
    ("check", "a.zarr", *HERE),
    ("stage", "a.svm", "a.zarr", *HERE),
    ("append", "b.svm", "a.zarr", *HERE),
    ("select", "a.zarr", "--out", "chosen", *ANOVA),
    ("run", "a.zarr", "--out", "again", *ANOVA),
    ("evaluate", "r", "--sizes", "3", *HERE),
    ("stability", "a.zarr", "often.csv", "--subsamples", "2", *ANOVA),
    ("graph", "a.zarr", "-k", "3", *HERE),
    ("predict", "r", "a.zarr", "guesses.csv", *HERE),
    ("transform", "r", "a.zarr", "chosen.npz"),
    ("audit", "a.zarr", "r", "--out", "audited", *HERE),
    ("compare", "a.zarr", "--out", "compared", "--methods", "anova", "--sizes", "3", *HERE),
]


@pytest.mark.nightly
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_every_command_that_opens_the_store_finds_it(bigfs, tmp_path, words):
    for seed, name in enumerate("ab"):
        write_corpus(tmp_path / f"{name}.svm", seed)
    assert bigfs("run", "a.svm", "--store", "a.zarr", "--out", "r", *ANOVA)[0] == 0
    atomic.write_marker(tmp_path / ".a.zarr.0123456789abcdef.staging")
    shutil.move("a.zarr", ".a.zarr.0123456789abcdef.staging/old")
    status, _, err = bigfs(*words)
    assert status == 0, err
    assert os.path.exists("a.zarr")
