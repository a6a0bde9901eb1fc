"""The stages as plain functions: what they accept and what they refuse."""

import json

import pytest

import storage
from flows import stages
from storage.errors import StoreError


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
    assert stages.training_part(corpus).X.shape == corpus.X.shape
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
    assert stages.training_part(corpus).X.shape[0] == 18


def test_a_source_without_training_rows_is_refused(tmp_path):
    corpus = storage.open(
        storage.stage(write_documents(tmp_path / "rest.jsonl", ["test"]), tmp_path / "s.zarr")
    )
    with pytest.raises(StoreError, match="has no rows of split 'train'; it has test"):
        stages.training_part(corpus)
