"""The page of the measured figures: every row says what, on what, when and by which command."""

import datetime

import pytest

from benchmarks import results_page

ROW = "| a fit | news20 | 1 s | asked 2 s | 2026-11-24 | `knn.py exact` |"


def test_the_page_has_nothing_to_complain_about():
    assert results_page.problems(results_page.PAGE.read_text(), datetime.date.max) == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ROW, None),
        (ROW.replace("asked 2 s", ""), "5 cells in place of six"),
        (ROW.replace("| 1 s ", ""), "5 cells in place of six"),
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
    found = results_page.problems(row, datetime.date(2026, 12, 1))
    assert [problem in line for line in found] == [True] * (problem is not None)


def test_a_page_that_grew_too_long_is_named():
    assert "301 lines" in results_page.problems("\n" * 301)[0]
