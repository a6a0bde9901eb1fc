"""The page of the measured figures: every row says what, on what, when and by which command."""

import datetime
import sys
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as results

ROW = "| a fit | news20 | 1 s | peer 2 s | 2026-11-24 | `knn.py exact` |"


def test_the_page_has_nothing_to_complain_about():
    assert results.problems(results.PAGE.value.read_text(), datetime.date.max) == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROW, None),
        (ROW.replace("peer 2 s", ""), "5 cells in place of six"),
        (ROW.replace("| 1 s ", ""), "5 cells in place of six"),
        (ROW.replace("2026-11-24", "2026-11-24 0a1b2c3d"), None),
        (ROW.replace("2026-11-24", "today"), "'today'"),
        (ROW.replace("2026-11-24", "2027-01-01"), "has not come yet"),
        (ROW.replace("`", ""), "no command"),
        (ROW.replace("knn.py exact", "gone.py"), "gone.py is not there"),
        (ROW.replace("exact", "wrong"), "knn.py wrong is not there"),
        (ROW.replace("knn.py exact", "pytest tests/gone.py"), "gone.py is not there"),
        (ROW.replace("knn.py exact", "python -m benchmarks.papers DATA"), None),
        (ROW.replace("knn.py exact", "python -m benchmarks.choosing DATA"), None),
        (ROW.replace("knn.py exact", "python -m benchmarks.peers run DATA"), None),
        (ROW.replace("knn.py exact", "python -m benchmarks.gone DATA"), "gone.py is not there"),
    ],
)
def test_a_row_that_lacks_something_is_named(row, problem):
    found = results.problems(row, datetime.date(2026, 12, 1))
    assert [problem in line for line in found] == [True] * (problem is not None)


def test_a_page_that_grew_too_long_is_named():
    assert "301 lines" in results.problems("\n" * 301)[0]


def test_a_row_takes_the_place_of_its_last_measurement_or_comes_after_those_of_its_command():
    other = ROW.replace("knn.py exact", "knn.py large")
    page = "\n".join(["| what |", ROW, other, "end"])
    found = ["a fit | news20 | 2 s | –", "a fit | rcv1 | 3 s | –"]
    lines = results.written(page, "knn.py exact", found, "2026-11-30 0a1b2c3d").splitlines()
    assert lines[1] == "| a fit | news20 | 2 s | – | 2026-11-30 0a1b2c3d | `knn.py exact` |"
    assert lines[2] == "| a fit | rcv1 | 3 s | – | 2026-11-30 0a1b2c3d | `knn.py exact` |"
    assert lines[3:] == [other, "end"]


@pytest.fixture
def measured(tmp_path, monkeypatch, change):
    """A page whose command is a script that prints a row, and how it is measured."""
    page, script = tmp_path / "RESULTS.md", tmp_path / "knn.py"
    page.write_text(ROW + "\n")
    change(results.PAGE, page)
    monkeypatch.setattr(results, "words_of", lambda *given: [sys.executable, str(script)])
    monkeypatch.setattr(results.subprocess, "run", lambda *given, **more: GIT)
    monkeypatch.setattr(results.os, "getloadavg", lambda: (0.1, 0.0, 0.0))

    def measure(code):
        script.write_text(code)
        results.run("knn.py exact")
        return page.read_text()

    return measure


GIT = SimpleNamespace(stdout=b"")
PRINTS = f"print({ROW.split('| 1 s')[0]!r}.replace('|', 'row:', 1) + '| 9 s | –')"


def test_a_command_is_measured_and_its_rows_written(measured, capfd):
    assert "| a fit | news20 | 9 s | – |" in measured(PRINTS)


@pytest.mark.parametrize("code", ["print(1)", f"{PRINTS}; 1 / 0", f"{PRINTS}; exit(3)"])
def test_nothing_is_written_of_a_command_that_fails_or_prints_no_row(measured, capfd, code):
    with pytest.raises(SystemExit, match="nothing is written"):
        measured(code)
    assert results.PAGE.value.read_text() == ROW + "\n"


def test_nothing_is_measured_beside_other_work_or_with_changes(measured, monkeypatch):
    monkeypatch.setattr(results.os, "getloadavg", lambda: (2.0, 0.0, 0.0))
    with pytest.raises(SystemExit, match=r"load 2\.0"):
        measured(PRINTS)
    monkeypatch.setattr(GIT, "stdout", b"+ a line")
    with pytest.raises(SystemExit, match="commit them first"):
        measured(PRINTS)
    with pytest.raises(SystemExit, match="is no command of"):
        results.run("knn.py wrong")
