"""A run that replaces another result of its question keeps it, and nothing else."""

import pytest
from bigfs.storage import atomic
from bigfs.storage.runs.earlier import kept_folder
from bigfs.storage.runs.runs import Run

PARAMETERS = {"store": "a.zarr", "method": "anova", "features": 1, "parameters": {}}


def finish(out, key, second, **changes):
    run = Run.begin(out, PARAMETERS | changes)
    run.write_table("selected.csv", ["rank", "index", "name", "score"], [(1, 0, key, 2.0)])
    run.update_metadata(key=key, made=f"2026-11-25T03:00:{second:02}+01:00", status="converged")
    return run.finish()


def kept(out):
    return sorted(path.name for path in kept_folder(out).glob("*") if path.is_dir())


def test_each_night_is_kept_whole_and_marked(tmp_path):
    out = tmp_path / "nightly"
    for second, key in enumerate("abc"):
        finish(out, key, second, store=f"{key}.zarr")
    assert Run.open(out).read_table("selected.csv")[0]["name"] == "c"
    assert kept(out) == ["2026-11-25T03-00-00", "2026-11-25T03-00-01"]
    for name, key in zip(kept(out), "ab", strict=True):
        folder = kept_folder(out) / name
        assert Run.open(folder).read_table("selected.csv")[0]["name"] == key
        assert atomic.is_marked(folder)
    assert not atomic.is_marked(out)


@pytest.mark.parametrize("changes", [{"method": "chi2"}, {"features": 2}])
def test_another_question_and_the_same_result_are_not_kept(tmp_path, changes):
    out = tmp_path / "r"
    finish(out, "a", 0)
    finish(out, "a", 1)  # --fresh, on the same data
    finish(out, "b", 2, **changes)
    assert kept(out) == []


def test_a_kill_before_the_exchange_keeps_the_result_once(tmp_path, monkeypatch):
    out = tmp_path / "r"
    finish(out, "a", 0)
    publish = atomic.publish

    def dies(new, target, work=None):
        if target == out:
            raise KeyboardInterrupt
        publish(new, target, work)

    monkeypatch.setattr(atomic, "publish", dies)
    with pytest.raises(KeyboardInterrupt):
        finish(out, "b", 1)
    assert Run.open(out).metadata["key"] == "a"
    monkeypatch.setattr(atomic, "publish", publish)
    finish(out, "b", 2)
    assert kept(out) == ["2026-11-25T03-00-00"]
    assert Run.open(out).metadata["key"] == "b"
