"""Counts beside a store: what was scored is found again, and damage is told."""

import os

import numpy as np

from bigfs.storage.runs.counts import counts_of


def test_counts_add_up_over_files_and_are_apart_by_key(tmp_path):
    store = str(tmp_path / "news.zarr")
    counts = counts_of(store, "one")
    assert counts.load() == {}
    first = {"a": np.arange(6.0).reshape(3, 2), "b": np.ones((3, 2))}
    counts.save(first)
    counts_of(store, "one").save({"c": np.zeros((3, 2))})
    counts_of(store, "two").save({"a": np.full(4, 7.0)})
    found = counts_of(store, "one").load()
    assert set(found) == {"a", "b", "c"}
    for name, expected in first.items():
        np.testing.assert_array_equal(found[name], expected)
    assert [*counts_of(store, "two").load()] == ["a"]
    assert sorted(os.listdir(tmp_path)) == ["news.counts"]
    assert all(name.endswith(".npz") for name in os.listdir(tmp_path / "news.counts"))


def test_a_damaged_file_is_made_again(tmp_path, caplog):
    counts = counts_of(str(tmp_path / "news.zarr"), "key")
    counts.save({"b": np.ones(3)})
    counts.save({"a": np.ones(3)})
    for content in (b"", b"PK"):
        file = next((tmp_path / "news.counts").iterdir())
        file.write_bytes(content)
        assert len(counts.load()) == 1
        assert f"{file.name} is damaged" in caplog.text
        counts.save({"c": np.ones(3)})


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path, monkeypatch):
    assert counts_of("memory://bucket/news.zarr", "key") is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root
    assert counts_of(str(tmp_path / "news.zarr"), "key") is None
