"""The report of a comparison: its picture and its page."""

import re

import pytest

from bigfs.flows.comparison.files import COMPARISON
from bigfs.flows.comparison.report import LAYOUTS, comparison_page, picture
from bigfs.result import ALL

SIZES = [10, 50, 100]


def comparison(n_methods, failed=("bad",)):
    rows = [
        {
            "rank": i + 1,
            "method": f"method-{i}",
            "mean": 0.9 - 0.01 * i,
            "status": "finished",
            "error": "",
            "seconds": 1.0,
            "processor_seconds": 2.0,
            "peak_memory": None,
            "passes": 3,
            "points": [
                {"n_features": m, "accuracy": 0.9 - 0.01 * i, "redundancy": 0.1, "overlap": 0.5}
                | {"stability": 0.7, "repeat_overlap": 0.6}
                | ({"wins": 1, "defeats": 9, "p_value": 0.02, "p_holm": 0.04} if i else {})
                for m in SIZES
            ],
        }
        for i in range(n_methods)
    ]
    rows += [{"rank": None, "method": name, "error": "no <luck>", "points": []} for name in failed]
    return {
        "corpus": {
            "source": "a & b.jsonl",
            "name": "b",
            "n": 1200,
            "d": 5000,
            "nnz": 9,
            "split": {"train": 1000, "test": 200},
        },
        "metrics": ["accuracy"],
        "test": "sign",
        "repeats": "4 random halves of the training samples",
        "sizes": SIZES,
        "best": "method-0" if n_methods else None,
        "rows": rows,
        ALL: {"n_features": 5000, "accuracy": 0.95},
        "evaluation": "Linear SVM.",
        "seconds": 5.0,
        "versions": dict.fromkeys(("bigfs", "dask", "numpy", "scipy", "scikit-learn"), "1"),
    }


def test_page_holds_every_method_and_loads_nothing():
    page = comparison_page(comparison(8), COMPARISON)
    assert page.count("<svg") == 2
    for i in range(8):
        assert page.count(f">method-{i}<") >= 4  # twice in pictures, twice in tables
    assert "a &amp; b.jsonl: 1,200 samples (1,000 train, 200 test)" in page
    assert "bad: no &lt;luck&gt;" in page
    assert "0.890*" in page
    assert "0.900*" not in page
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "prefers-color-scheme: dark" in page


def test_page_without_a_finished_method_says_why():
    page = comparison_page(comparison(0), COMPARISON)
    assert "bad: no &lt;luck&gt;" in page
    assert "<svg" not in page


@pytest.mark.parametrize("layout", LAYOUTS)
def test_picture_names_each_curve_in_colors_of_the_page(layout):
    svg = picture(comparison(8), layout)
    names = re.findall(r">(method-\d|all 5,000 features)</text>", svg)
    assert sorted(names) == sorted([*(f"method-{i}" for i in range(8)), "all 5,000 features"])
    colors = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg))
    assert not colors, "the dark page cannot replace these"
    assert picture(comparison(8), layout) == svg
