"""The jobs of docs/guide/jobs.md: their commands, on files of that kind of 1/1000 of the size."""

import csv
import json

import pytest
import scipy.sparse as sp
import zarr

from benchmarks.journeys import JOBS, steps_of

pytestmark = pytest.mark.slow

# a thousandth of what the users of the page have
ROWS = {"latents": 10_000, "cells": 2_000, "texts": 10_000, "vectors": 8_800, "clicks": 40_000}


@pytest.fixture
def done(bigfs, tmp_path):
    """Run a job in this process, in an empty folder, with words replaced. Gives the folder."""

    def run(job, **replaced):
        JOBS[job].make(tmp_path, ROWS[job])
        for program, *words in steps_of(job, workers=0, memory_limit="1GB"):
            if program == "python":
                exec(words[1], {"__name__": "__main__"})
                continue
            status, _, err = bigfs(*(replaced.get(word, word) for word in words))
            assert status == 0, err
        return tmp_path

    return run


def selected(run):
    with (run / "selected.csv").open() as file:
        return [row["name"] for row in csv.DictReader(file)]


def record(run):
    return json.loads((run / "run.json").read_text())


def test_latents(done):
    home = done("latents")
    compared = json.loads((home / "probes" / "compare.json").read_text())
    assert compared["evaluation"].startswith("Logistic regression")
    assert "no doc_id is in both parts" in compared["evaluation"]
    rows = {row["method"]: row for row in compared["rows"]}
    assert {method: row["status"] for method, row in rows.items()} == dict.fromkeys(
        ("anova", "sparge-lda"), "finished"
    )
    assert rows["anova"]["passes"] <= 1
    assert rows["sparge-lda"]["passes"] <= 12
    for row in rows.values():  # 80 of the latents stand for concepts
        assert row["points"][-1]["auc"] > 0.98


def test_cells(done):
    home = done("cells")
    genes = selected(home / "panel")
    assert len(genes) == 300
    assert {"GENE1000", "GENE1001"} <= set(genes)
    assert sum(gene.startswith("MARKER") for gene in genes) == 298
    assert not any(gene.startswith("RPL") for gene in genes)
    run = record(home / "panel")
    assert run["stats"]["passes"] <= 6
    assert run["measured"]["roles"] == {"group": "donor_id"}
    var = zarr.open_group(home / "atlas.zarr", mode="r")["var"]
    columns = {"feature_name", "bigfs_selected", "highly_variable", "highly_variable_nbatches"}
    assert columns <= set(var.attrs["column-order"])
    # the last command wrote its choice over that of the panel
    assert var["bigfs_selected"][:].sum() == var["highly_variable"][:].sum() == 2000
    assert record(home / "hvg")["stats"]["passes"] == 1


@pytest.mark.nightly
def test_texts(done):
    home = done("texts")
    differ, together = selected(home / "differ"), selected(home / "together")
    own = {f"word{j}" for j in range(40)}
    assert 50 < len(differ) < 1000
    # another term may have come first in a column of hashes
    assert sum(own.issuperset(name.split()) for name in differ[:50]) >= 45
    assert max(len(name.split()) for name in differ) == 3
    assert len(together) == 50
    assert sum(own.issuperset(name.split()) for name in together) >= 45
    assert record(home / "differ")["stats"]["passes"] <= 1
    assert record(home / "together")["stats"]["passes"] <= 25


@pytest.mark.nightly
def test_vectors(done):
    # as many features as the page says would take most of the time of all jobs
    home = done("vectors", **{"4000": "500"})
    assert set(selected(home / "intents")) == {f"token{j}" for j in range(200)}
    assert record(home / "intents")["stats"]["passes"] <= 6
    assert record(home / "smaller")["stats"]["passes"] <= 20
    assert record(home / "smaller")["stats"]["objective_gap"] < 0.05
    assert sp.load_npz(home / "smaller.npz").shape == (8800, 500)


@pytest.mark.nightly
def test_clicks(done):
    home = done("clicks")
    telling = {f"C{j}=v20000{click}" for j in range(1, 6) for click in (0, 1)}
    assert set(selected(home / "ads")[:10]) == telling
    run = record(home / "ads")
    assert run["measured"]["roles"] == {"time": "day"}
    assert run["stats"]["passes"] <= 40
    assert max(point["auc"] for point in run["curves"] if point["method"] == "l1-svm") > 0.99
