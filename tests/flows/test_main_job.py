"""The main job on generated text: what it finds, and that chunks and workers do not change a bit of
it.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bigfs import SparGE, engine, storage
from bigfs.flows.report import page as report
from tests.helpers import stages

pytestmark = pytest.mark.process

SOURCE = "synthetic:newswire?rows=1500&seed=1"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("main-job")


def selection(uri, **parameters):
    train = storage.open(uri).part("train")
    selector = SparGE(n_features_to_select=150, **parameters).fit(train.X, train.y)
    return selector.selected_, selector.scores_


@pytest.fixture(scope="module")
def whole(home):
    """The answer from one big tile, computed serially."""
    uri = storage.stage(SOURCE, home / "whole.zarr", tile_rows=5000)
    return uri, selection(uri)


def test_passes_over_a_store_are_kappa_plus_one(whole):
    train = storage.open(whole[0]).part("train")
    selector = SparGE(n_features_to_select=150).fit(train.X, train.y)
    assert train.X.passes == selector.result_.stats["cuts"] + 1
    assert selector.result_.history[-1]["gap"] <= 0.01


def test_chunks_and_workers_do_not_change_the_answer(home, whole):
    uri = storage.stage(SOURCE, home / "small.zarr", tile_rows=50)
    corpus = storage.open(uri)
    assert len(corpus.X.row_tiles) >= 30
    assert len(corpus.X.column_tiles) > 1
    answers = [selection(uri)]
    for workers in (1, 2):
        with engine.cluster(workers=workers, memory_limit="1GB"):
            answers.append(
                selection(
                    storage.stage(SOURCE, home / f"workers-{workers}.zarr", tile_rows=300 * workers)
                )
            )
            if workers == 2:
                answers.append(selection(uri))
    for selected, scores in answers:
        np.testing.assert_array_equal(selected, whole[1][0])
        np.testing.assert_array_equal(scores, whole[1][1])


@pytest.mark.parametrize("method", ["sparge-lda", "sparge-lpp", "fisher"])
def test_the_stages_make_a_whole_run(home, method, monkeypatch):
    monkeypatch.chdir(home)
    staged = stages.stage(SOURCE)
    before = [record for record in (staged, stages.build_graph(staged["store"], method)) if record]
    assert (len(before) == 2) == (method == "sparge-lpp")
    run = stages.select(
        staged["store"], f"runs/{method}", method=method, features=100, earlier=before
    )
    points = stages.evaluate(run)
    path = stages.finish(run)
    assert {p.method for p in points} == {method, "chi2", "all features"} | (
        {"anova"} if method != "fisher" else set()
    )
    assert all(0 < p.scores["accuracy"] <= 1 for p in points)
    about = json.loads((path / "run.json").read_text())
    assert about["converged"]
    assert [s["stage"] for s in about["stages"]][-2:] == ["select", "evaluate"]
    assert all(s["seconds"] >= 0 and s["peak_memory"]["driver"] > 0 for s in about["stages"])
    page = (path / "report.html").read_text()
    assert "informative features among" in page
    assert page.count("<svg") == (1 if method == "fisher" else 2)
    loaded = re.findall(r"""(?:src|href)=["']?([^"' >]+)|url\(["']?([^"')]+)|@import""", page)
    assert all("".join(address).startswith("#") for address in loaded)  # self-contained
    assert ("gap of the 100 features" in page) == method.startswith("sparge")
    assert ("gap of the relaxation" in page) == method.startswith("sparge")
    assert stages.stage(SOURCE)["reused"]


def test_report_svg_colors_follow_the_theme():
    """Every color of a plot is a variable of the page, and the page sets it in both themes."""
    history = [{"upper": 3.0, "lower": 1.0}, {"upper": 2.0, "lower": 1.5}]
    curves = [
        {"method": method, "n_features": m, "accuracy": 0.5 + m / 100}
        for method in ("fisher", "chi2", "all features")
        for m in (5, 10)
    ]
    about = {"parameters": {"method": "fisher"}, "curves": curves, "history": history}
    template = Path(report.__file__).with_name("page.html.j2").read_text()
    light, dark = template.split("prefers-color-scheme: dark", 1)
    for svg in report.pictures(about).values():
        colors = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg)) - {"none"}
        assert len(colors) > 3
        for color in colors:
            name = re.fullmatch(r"var\((--[\w-]+), #[0-9a-f]{6}\)", color)
            assert name, color
            assert f"{name[1]}:" in light
            assert f"{name[1]}:" in dark


def test_images_show_where_the_pixels_are(home, monkeypatch):
    monkeypatch.chdir(home)
    staged = stages.stage("synthetic:images?rows=300")
    run = stages.select(
        staged["store"],
        "runs/images",
        method="smr",
        features=100,
        parameters={"k": 2, "max_iter": 3},
        earlier=[staged],
    )
    page = (stages.finish(run) / "report.html").read_text()
    assert "selected pixels on the mean image" in page


def test_most_of_what_is_selected_was_planted(whole):
    planted = set(storage.open(whole[0]).spec["planted"])  # 1 % of the terms
    assert len(planted & set(whole[1][0].tolist())) >= 100
