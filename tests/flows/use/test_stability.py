"""`bigfs stability` writes what `bigfs.stability` counts."""

import csv
import json

import numpy as np
import pytest

from bigfs import ANOVA, stability, storage
from tests.helpers.commands import fails
from tests.helpers.stores import write_svmlight

COMMAND = ("--method", "anova", "--features", "5", "--subsamples", "6", "--workers", "0")


@pytest.fixture
def store(tmp_path):
    return storage.stage(write_svmlight(tmp_path / "a.svm", 60), tmp_path / "a.zarr")


def test_table_holds_the_frequencies_of_the_chosen(bigfs, store):
    for _ in range(2):  # it replaces its own
        status, out, _ = bigfs("stability", store, "s.csv", *COMMAND, "--json")
    assert status == 0
    corpus = storage.open(store)
    expected = stability(ANOVA(n_features_to_select=5), corpus.X, corpus.y, n_subsamples=6)
    with open("s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = np.zeros(corpus.X.shape[1])
    for row in rows:
        found[int(row["index"])] = float(row["frequency"])
        assert row["name"] == corpus.feature_names[int(row["index"])]
    np.testing.assert_array_equal(found, expected.frequencies)
    frequencies = [float(row["frequency"]) for row in rows]
    assert frequencies == sorted(frequencies, reverse=True)
    assert frequencies[-1] > 0
    assert json.loads(out)["stability"] == expected.index
    _, out, _ = bigfs("stability", store, "s.csv", *COMMAND)
    assert f"stability {expected.index:.3f}" in out


def test_pairs_say_the_bound_on_false_choices(bigfs, store):
    status, out, _ = bigfs("stability", store, "s.csv", *COMMAND, "--pairs", "--json")
    assert status == 0
    corpus = storage.open(store)
    selector = ANOVA(n_features_to_select=5)
    expected = stability(selector, corpus.X, corpus.y, n_subsamples=6, pairs=True)
    with open("s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        frequency = float(row["frequency"])
        assert frequency == expected.frequencies[int(row["index"])]
        bound = f"{expected.false_choices(frequency)}" if frequency > 0.5 else ""
        assert row["false_choices"] == bound
    n = np.count_nonzero(expected.frequencies >= 0.9)
    assert any(
        f"{n} features are in 90% of the halves" in line for line in json.loads(out)["pairs"]
    )
    assert bigfs("stability", store, "s.csv", *COMMAND)[0] == 0  # it replaces its own
    message = "give an even --subsamples and no --share"
    fails(bigfs("stability", store, "s.csv", *COMMAND, "--pairs", "--share", "0.4"), message)


def test_bad_requests_are_one_clear_line(bigfs, store, tmp_path):
    (tmp_path / "mine.csv").write_text("mine")
    fails(bigfs("stability", store, "mine.csv", *COMMAND), "mine.csv is in the way")
    fails(bigfs("stability", store, "s.csv", "--share", "1", *COMMAND), "--share must be between")
    fails(bigfs("stability", store, "s.csv", *COMMAND[2:], "--method", "jgsc"), "has no stability")
    fails(bigfs("stability", "nowhere", "s.csv", *COMMAND), "nowhere")
    assert not (tmp_path / "s.csv").exists()
