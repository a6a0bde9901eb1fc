"""The cards of notebooks: well-formed, escaped, right, and without reading what they need not."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from bigfs import ANOVA, JGSC, Matrix, SparGE, cards, storage
from bigfs.result import Result, Status


class Page(HTMLParser):
    """The texts of a piece of HTML, and the tags that are open."""

    VOID = frozenset({"br", "input", "hr", "img", "link", "meta"})

    def __init__(self, html):
        super().__init__()
        self.texts, self.open, self.tags = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def parsed(html):
    page = Page(html)
    assert not page.open
    return page


def facts_of(html):
    """The facts of a card by their names."""
    texts = parsed(html).texts
    return dict(zip(texts[1::2], texts[2::2], strict=False))


def test_a_card_escapes_what_it_shows():
    html = cards.card("<b>", {"a & b": "<script>", "none": None}, cards.table(["<i>"], [["<u>"]]))
    page = parsed(html)
    assert page.texts == ["<b>", "a & b", "<script>", "<i>", "<u>"]
    assert {"b", "script", "i", "u"}.isdisjoint(page.tags)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567, "1,234,567"), (np.int64(5), "5"), (0.123456, "0.1235"), (True, "yes"), ("a", "a")],
)
def test_values_are_readable(value, text):
    assert cards.readable(value) == text


def test_a_curve_falls_as_its_values_do():
    html = cards.curve("gap", [1.0, 0.1, np.nan, 0.01, 0.0])
    points = html.split('points="')[1].split('"')[0].split()
    heights = [float(p.split(",")[1]) for p in points]
    assert len(heights) == 3
    assert np.diff(heights, 2) == pytest.approx(0, abs=0.2)  # on a logarithmic scale, a line
    assert heights == sorted(heights)  # pixels count downward
    assert cards.curve("gap", [1.0]) == ""
    parsed(html)


def test_card_of_a_matrix_reads_nothing(rng):
    X = Matrix.from_array(rng.random((30, 7)), tile_rows=10)
    assert repr(X) == "<Matrix 30 × 7: 3 tiles of rows, 1 tiles of columns>"
    shown = facts_of(X._repr_html_())
    assert X.passes == 0
    assert (shown["shape"], shown["tiles of rows"], shown["feature names"]) == ("30 × 7", "3", "no")
    assert "non-zeros" not in shown
    assert X.nnz == 210
    assert facts_of(X._repr_html_())["non-zeros"] == "210"


def test_card_of_a_result():
    history = [{"gap": 0.5, "upper": 2.0}, {"gap": 0.05, "upper": 1.5}]
    result = Result(None, Status.CONVERGED, history, {"passes": 7, "names": ["a"]})
    shown = facts_of(result._repr_html_())
    assert shown["status"] == str(Status.CONVERGED)
    assert (shown["steps"], shown["gap"], shown["passes"]) == ("2", "0.05", "7")
    assert "<svg" in result._repr_html_()
    assert "<svg" not in Result(None, Status.EXACT)._repr_html_()


def test_card_names_both_gaps_first():
    history = [{"gap": 0.0123, "upper": 2.0}]
    result = Result(None, Status.CONVERGED, history, {"passes": 7, "objective_gap": 0.0})
    shown = facts_of(result._repr_html_())
    assert list(shown)[2:4] == ["gap of the features", "gap of the relaxation"]
    assert shown["gap of the features"] == "0.00 %"
    assert shown["gap of the relaxation"] == "1.23 %"
    assert {"gap", "objective_gap"}.isdisjoint(result.facts())


def test_card_of_a_selector_lists_the_best_features(text):
    X, y = text
    frame = pd.DataFrame(X.toarray(), columns=[f"<{j}>" for j in range(80)])
    selector = SparGE(n_features_to_select=25)
    assert "of 80 features" not in selector._repr_html_()
    html = selector.fit(frame, y)._repr_html_()
    texts = parsed(html[html.index('<div style="border') :]).texts
    assert texts[0] == "25 of 80 features"
    first = texts.index("rank") + 3
    expected = [
        cell
        for rank, j in enumerate(selector.selected_[:20], 1)
        for cell in (str(rank), f"<{j}>", f"{selector.scores_[j]:.4g}")
    ]
    assert texts[first:] == expected
    with config_context(display="text"), pytest.raises(AttributeError):
        _ = selector._repr_html_


def test_card_of_an_unnamed_fit_and_of_codes(text):
    X, y = text
    assert (
        f"x{ANOVA(n_features_to_select=1).fit(X, y).selected_[0]}"
        in ANOVA(n_features_to_select=1).fit(X, y)._repr_html_()
    )
    assert "JGSC" in JGSC(n_features_to_select=2, dictionary=X.toarray()[::20]).fit(X)._repr_html_()


def test_card_of_a_corpus(tmp_path):
    rows = [f"{i % 12} 1:{i + 1} 3:2" for i in range(24)]
    (tmp_path / "<a>.svm").write_text("\n".join(rows) + "\n")
    corpus = storage.open(storage.stage(tmp_path / "<a>.svm", tmp_path / "a.zarr"))
    shown = facts_of(corpus._repr_html_())
    assert shown["shape"] == "24 × 3"
    assert shown["non-zeros"] == "48"
    assert shown["density"] == "66.667%"
    assert shown["classes"].startswith("12: ")
    assert shown["classes"].endswith(" and 4 more")
    assert "<a>.svm" in shown["source"]
    halves = storage.open(storage.stage("synthetic:newswire?rows=60", tmp_path / "n.zarr"))
    sizes = [int(np.sum(halves.split == half)) for half in ("train", "test")]
    assert facts_of(halves._repr_html_())["rows"] == f"{sizes[0]} train, {sizes[1]} test"
