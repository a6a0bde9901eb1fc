import json
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from storage.runs import Run, RunError


class State(NamedTuple):
    W: np.ndarray
    sets: tuple
    graph: sp.csr_array
    step: int
    gap: float
    missing: None


STATE = State(np.arange(6.0).reshape(2, 3), (np.array([3, 1]), np.array([2])), sp.csr_array(np.eye(3)), 4, 0.25, None)


def test_a_run_gets_its_name_when_it_is_whole(tmp_path):
    run = Run.begin(tmp_path / "a", {"method": "anova", "m": np.int64(3)})
    run.write_table("selected.csv", ["rank", "index", "name", "score"], [[1, 7, "wheel, spare", 0.5], [2, 2, "ünïcode", 0.25]])
    run.write_scores([0.1, 0.5])
    run.note(status="done", gap=np.float64(0.01))
    assert not (tmp_path / "a").exists()
    run.finish()
    again = Run.open(tmp_path / "a")
    assert again.about["parameters"] == {"method": "anova", "m": 3}
    assert again.about["gap"] == 0.01
    np.testing.assert_array_equal(again.selected, [7, 2])
    assert again.read_table("selected.csv")[0]["name"] == "wheel, spare"
    np.testing.assert_array_equal(again.scores, [0.1, 0.5])
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_finished_run_is_replaced_by_the_next_of_its_name(tmp_path):
    for mark in (1, 2):
        run = Run.begin(tmp_path / "a", {"m": 3})
        run.note(mark=mark)
        run.finish()
    assert Run.open(tmp_path / "a").about["mark"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_checkpoints_keep_every_kind_of_field_and_survive_the_process(tmp_path):
    checkpoint = Run.begin(tmp_path / "a", {"m": 3}).checkpoint("store", 1)
    assert checkpoint.load("SparGE") is None
    checkpoint.save("SparGE", STATE, [{"gap": 0.5}])
    fields, history = Run.begin(tmp_path / "a", {"m": 3}).checkpoint("store", 1).load("SparGE")
    state = State(*fields)
    np.testing.assert_array_equal(state.W, STATE.W)
    np.testing.assert_array_equal(state.sets[1], [2])
    np.testing.assert_array_equal(state.graph.toarray(), np.eye(3))
    assert (state.step, state.gap, state.missing) == (4, 0.25, None)
    assert history == [{"gap": 0.5}]


def test_other_parameters_or_another_store_start_clean(tmp_path):
    Run.begin(tmp_path / "a", {"m": 3}).checkpoint("store", 1).save("SparGE", STATE, [])
    assert Run.begin(tmp_path / "a", {"m": 3}).checkpoint("store", 2).load("SparGE") is None
    assert Run.begin(tmp_path / "a", {"m": 4}).checkpoint("store", 1).load("SparGE") is None


def test_a_failed_run_leaves_nothing_but_usable_checkpoints(tmp_path):
    Run.begin(tmp_path / "a", {}).abandon()
    assert list(tmp_path.iterdir()) == []
    run = Run.begin(tmp_path / "a", {})
    run.checkpoint().save("SparGE", STATE, [])
    run.abandon()
    assert [p.name for p in tmp_path.iterdir()] == ["a.partial"]


def test_what_is_not_a_run_is_said_plainly(tmp_path):
    with pytest.raises(RunError, match=r"no run\.json"):
        Run.open(tmp_path / "nothing")
    (tmp_path / "notes").mkdir()
    with pytest.raises(RunError, match="no run directory: give another --out"):
        Run.begin(tmp_path / "notes", {})
    run = Run.begin(tmp_path / "b", {})
    run.finish()
    (tmp_path / "b" / "run.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(RunError, match="newer bigfs"):
        Run.open(tmp_path / "b")
    (tmp_path / "b" / "run.json").write_text('{"ver')
    with pytest.raises(RunError, match="damaged"):
        Run.open(tmp_path / "b")


def test_a_damaged_checkpoint_is_named(tmp_path):
    checkpoint = Run.begin(tmp_path / "a", {}).checkpoint()
    checkpoint.save("SparGE", STATE, [])
    file = next((tmp_path / "a.partial" / "checkpoints").iterdir())
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(RunError, match=r"checkpoint .* is damaged"):
        checkpoint.load("SparGE")
