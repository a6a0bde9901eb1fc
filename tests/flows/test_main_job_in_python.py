"""`bigfs.run`: the main job as a function."""

import pytest

import bigfs
from bigfs.storage.runs.runs import Run
from tests.helpers.processes import write_corpus

SERIAL = {"workers": 0}


def test_it_is_the_run_of_the_command(bigfs_command, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl", seed=3)
    given = {"scoring": {"against": ["chi2"]}, "engine": SERIAL}
    found = bigfs.run(corpus, "ANOVA", 5, out=tmp_path / "r", **given)
    words = ("-m", "anova", "-n", 5, "--against", "chi2", "-w", 0, "--no-prefect")
    assert bigfs_command("run", corpus, "-o", "other", *words)[0] == 0
    other = Run.open(tmp_path / "other")
    assert found.selected.tolist() == other.selected.tolist()
    assert found.metadata["curves"] == other.metadata["curves"]
    assert found.metadata["key"] == other.metadata["key"]
    assert "has this result already" in bigfs_command("run", corpus, "-o", "r", *words)[2]
    again = bigfs.run(corpus, "anova", 5, out=tmp_path / "r", **given)
    assert again.metadata == found.metadata


@pytest.fixture
def bigfs_command(request):
    return request.getfixturevalue("bigfs")


def test_wrong_options_are_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, said in (
        ({"method": "nope"}, "unknown method 'nope'"),
        ({"out": "s3://bucket/r"}, "is a URL"),
        ({"scoring": {"speed": 1}}, "speed"),
        ({}, "nowhere does not exist"),
    ):
        with pytest.raises((ValueError, OSError), match=said):
            bigfs.run("nowhere", **given)
    assert not list(tmp_path.glob("*.zarr"))
