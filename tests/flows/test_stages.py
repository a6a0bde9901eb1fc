"""The stages as plain functions: what they accept and what they refuse."""

import errno
import json
import os

import pytest

from bigfs import SPEC, storage
from bigfs.flows import steps
from bigfs.flows.evaluation import selection
from bigfs.storage.errors import StoreError
from bigfs.storage.runs.runs import Run
from tests.helpers import stages
from tests.helpers.stores import write_svmlight


def write_documents(path, splits):
    """JSON Lines of two classes of four words each, with the given splits in turn.

    Returns its path.
    """
    words = (["goal", "team", "match", "score"], ["bank", "rate", "share", "market"])
    rows = [
        {
            "text": " ".join([*words[i % 2], f"word{i % 7}"]),
            "label": i % 2,
            "split": splits[i % len(splits)],
        }
        for i in range(24)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_a_source_whose_rows_all_say_train_has_no_test_half(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus = storage.open(storage.stage(write_documents(tmp_path / "all.jsonl", ["train"])))
    assert not corpus.has_test_half
    assert selection.training_part(corpus).X.shape == corpus.X.shape
    run = stages.select(corpus.uri, "r", method="anova", features=4)
    assert {p.n_features for p in stages.evaluate(run)} >= {4}
    assert (stages.finish(run) / "report.html").exists()


def test_a_source_with_both_halves_is_selected_on_one(tmp_path):
    corpus = storage.open(
        storage.stage(
            write_documents(tmp_path / "both.jsonl", ["train", "train", "train", "test"]),
            tmp_path / "s.zarr",
        )
    )
    assert corpus.has_test_half
    assert selection.training_part(corpus).X.shape[0] == 18


def test_a_source_without_training_rows_is_refused(tmp_path):
    corpus = storage.open(
        storage.stage(write_documents(tmp_path / "rest.jsonl", ["test"]), tmp_path / "s.zarr")
    )
    with pytest.raises(StoreError, match="has no rows of split 'train'; it has test"):
        selection.training_part(corpus)


# --- a full disk ----------------------------------------------------------------------------------


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with a selection, at work."""
    monkeypatch.chdir(tmp_path)
    store = storage.stage(write_documents(tmp_path / "all.jsonl", ["train"]))
    return stages.select(store, "r", method="anova", features=4)


def test_evaluation_without_room_for_its_report_leaves_the_finished_run_as_it_was(run, monkeypatch):
    stages.evaluate(run)
    path = stages.finish(run)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr("bigfs.flows.report.page.write_report", full_disk)
        with pytest.raises(OSError, match="No space left"):
            steps.evaluate_again(str(path), {})
    after = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    assert after == before
    steps.evaluate_again(str(path), {})
    assert (path / "curves.csv").read_bytes() == before["curves.csv"]
    assert {file.name for file in path.iterdir()} == set(before)


def test_selection_without_room_for_its_figures_leaves_no_run(run, monkeypatch):
    def note(self, write=Run.update_metadata, **figures):
        if "stages" in figures:
            full_disk()
        write(self, **figures)

    monkeypatch.setattr(Run, "update_metadata", note)
    with pytest.raises(OSError, match="No space left"):
        stages.select(run.metadata["parameters"]["store"], "other", method="anova", features=4)
    assert not os.path.exists(".other")


def test_methods_of_one_graph_share_the_stored_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_svmlight(tmp_path / "corpus.svm", 60)
    store = stages.stage(str(source))["store"]
    methods = ("laplacian", "spec", "lsdf", "sselect")
    made = [stages.build_graph(store, method) for method in methods]
    assert [record["reused"] for record in made] == [False, True, True, True]
    run = stages.select(store, "r", method="spec", features=5, earlier=made[1:2])
    corpus = storage.open(store)
    expected = SPEC(n_features_to_select=5).fit(corpus.X).selected_
    assert run.selected.tolist() == expected.tolist()
    stages.finish(run)


def test_class_weights_go_by_the_names_of_the_classes(tmp_path):
    """JSON has no other keys than texts. The second class is the number 1 in the store."""
    rows = [
        {"text": f"word{i % 5} {'goal' if i % 2 else 'bank'}", "label": "sport" if i % 2 else "law"}
        for i in range(12)
    ]
    (tmp_path / "c.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    corpus = storage.open(storage.stage(tmp_path / "c.jsonl", tmp_path / "c.zarr"))
    for method, weights, expected in (
        ("sparge-lda", {"sport": 3.0}, {1: 3.0}),
        ("sparge-lda", {1: 3.0}, {1: 3.0}),
        ("sparge-lda", None, None),
        ("sparge-lda-cv", {"law": 2.0}, {0: 2.0}),
    ):
        selector = selection.selector_for(corpus, method, 2, {"class_weight": weights})
        assert selector.class_weight == expected
    with pytest.raises(ValueError, match=r"'sports', which is no class of .*: its classes are law"):
        selection.selector_for(corpus, "sparge-lda", 2, {"class_weight": {"sports": 3.0}})
    weighed = selection.selector_for(corpus, "sparge-lda", 2, {"class_weight": {"sport": 3.0}})
    assert weighed.fit(corpus.X, corpus.y).result_.converged
