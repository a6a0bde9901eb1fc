"""What a log shows of the progress: when a step begins and ends, and a line every half minute."""

import json
import re
from datetime import datetime
from functools import partial
from importlib.util import find_spec

import pytest
from rich.console import Console

import bigfs
from bigfs import engine
from bigfs.engine import display


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    return now


def test_a_log_says_when_a_solver_begins_and_ends(capsys, text):
    with bigfs.progress():
        bigfs.SparGE(n_features_to_select=3).fit(*text)
    lines = [re.sub(r"^0:\d\d:\d\d ", "", line) for line in capsys.readouterr().err.splitlines()]
    assert "SparGE: begins" in lines
    assert re.fullmatch(r"SparGE: ends with upper .* gap .*", lines[-1])


@pytest.mark.skipif(find_spec("ipywidgets") is not None, reason="then there are bars")
def test_a_notebook_without_ipywidgets_has_lines(capsys, text, monkeypatch):
    monkeypatch.setattr("rich.console.Console", partial(Console, force_jupyter=True))
    with bigfs.progress():  # rich warned that ipywidgets is missing, and drew nothing
        bigfs.SparGE(n_features_to_select=3).fit(*text)
    assert "SparGE: begins" in capsys.readouterr().err


def test_a_log_has_a_line_every_half_minute_and_not_one_per_task(capsys, clock):
    with bigfs.progress():
        for done in range(1, 101):
            clock[0] += 1
            engine.show_progress("read", done, 100)
    said = ["0:00:01 read: begins"]
    said += [f"0:0{n // 60}:{n % 60:02} read: {n} of 100" for n in (32, 63, 94)]
    assert capsys.readouterr().err.splitlines() == [*said, "0:01:40 read: ends"]


def test_a_log_names_a_step_that_repeats_once(capsys, clock):
    with bigfs.progress():
        for _ in range(3):
            for done in (1, 2):
                engine.show_progress("scores", done, 2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["0:00:00 scores: begins", "0:00:00 scores: ends"]


def test_a_log_for_programs_has_an_object_per_line(capsys, clock, text):
    with bigfs.progress(as_json=True):
        for done in (1, 2, 3):
            clock[0] += 20
            engine.show_progress("read", done, 4)
        bigfs.SparGE(n_features_to_select=3).fit(*text)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(datetime.fromisoformat(line.pop("time")) for line in lines)
    assert lines[:2] == [
        {"step": "read", "event": "begins", "seconds": 20.0},
        {"step": "read", "event": "works", "seconds": 60.0, "done": 3, "total": 4},
    ]
    assert [line["event"] for line in lines if line["step"] == "SparGE"] == ["begins", "ends"]
    assert lines[-1]["gap"] >= 0
