"""Tallies beside a store: what was scored is found again, and damage is told."""

import os

import numpy as np

from bigfs.storage.runs.tallies import tallies_of


def test_tallies_add_up_over_files_and_are_apart_by_key(tmp_path):
    store = str(tmp_path / "news.zarr")
    tallies = tallies_of(store, "one")
    assert tallies.load() == {}
    first = {"a": np.arange(6.0).reshape(3, 2), "b": np.ones((3, 2))}
    tallies.save(first)
    tallies_of(store, "one").save({"c": np.zeros((3, 2))})
    tallies_of(store, "two").save({"a": np.full(4, 7.0)})
    found = tallies_of(store, "one").load()
    assert set(found) == {"a", "b", "c"}
    for name, tally in first.items():
        np.testing.assert_array_equal(found[name], tally)
    assert [*tallies_of(store, "two").load()] == ["a"]
    assert sorted(os.listdir(tmp_path)) == ["news.tallies"]
    assert all(name.endswith(".npz") for name in os.listdir(tmp_path / "news.tallies"))


def test_a_damaged_tally_is_made_again(tmp_path, caplog):
    tallies = tallies_of(str(tmp_path / "news.zarr"), "key")
    tallies.save({"b": np.ones(3)})
    tallies.save({"a": np.ones(3)})
    for content in (b"", b"PK"):
        file = next((tmp_path / "news.tallies").iterdir())
        file.write_bytes(content)
        assert len(tallies.load()) == 1
        assert f"{file.name} is damaged" in caplog.text
        tallies.save({"c": np.ones(3)})


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path, monkeypatch):
    assert tallies_of("memory://bucket/news.zarr", "key") is None
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the tests may run as root
    assert tallies_of(str(tmp_path / "news.zarr"), "key") is None
