"""The formulas of the pages: the delimiters of a norm, a set or an inner product have one size."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
mathml = runpy.run_path(str(DOCS / "formulas.py"))["mathml"]
STRETCHES = re.compile(r'<mo(?![^>]*stretchy="false")[^>]*>([‖|{}⟨⟩])</mo>')


@pytest.mark.parametrize(
    "formula",
    [r"\|W\|_F^2", r"\lVert w\rVert", r"\{a_i\}_{i \le n}", r"\langle u, v \rangle^2", r"|x|^2"],
)
@pytest.mark.parametrize("as_block", [False, True])
def test_no_delimiter_stretches_away_from_its_partner(formula, as_block):
    assert mathml(formula, as_block).count('stretchy="false"') == 2
    assert not STRETCHES.search(mathml(formula, as_block))


def test_brackets_around_a_fraction_still_stretch():
    assert "<mo>(</mo>" in mathml(r"\left(\frac{a}{b}\right)^2", True)


@pytest.mark.parametrize("as_block", [False, True])
def test_the_index_of_a_letter_with_an_accent_stands_beside_it(as_block):
    drawn = re.sub(r">\s+<", "><", mathml(r"\bar x_c + \sum_i^n i", as_block))
    assert drawn.startswith("<math")
    letter = '<mover accent="true"><mi>x</mi><mo stretchy="false">ˉ</mo></mover>'
    assert f"<msub>{letter}<mi>c</mi></msub>" in drawn


@pytest.mark.parametrize("formula", ["|x| y", r"\|x\| y"])
def test_a_bar_between_two_letters_is_no_operator(formula):
    assert mathml(formula, as_block=False).count('lspace="0" rspace="0">') == 2


@pytest.mark.parametrize(
    ("formula", "rows"),
    [
        (r"\|x - y\|^2 + \lambda |w|", ["‖x−y‖2", "λ|w|"]),
        (r"f = -\mu g(a, b) \le \{c = d\}", ["−μg(a,b)", "{c=d}"]),
    ],
)
def test_lines_end_outside_of_brackets(formula, rows):
    """Firefox ends a line between two parts of a formula, and never inside of a row."""
    drawn = ElementTree.fromstring(mathml(formula, as_block=True))
    texts = ["".join("".join(part.itertext()).split()) for part in drawn.findall("{*}mrow")]
    assert texts == rows


def test_norms_in_tables_are_no_bars():
    """In the row of a table a \\| is a |, and a norm is written as \\Vert."""
    for page in DOCS.rglob("*.md"):
        for line in page.read_text().splitlines():
            assert not (line.startswith("|") and re.search(r"\$[^$]*\\\|[^$]*\$", line)), (
                page,
                line,
            )


def test_pages_stretch_no_norm_and_no_set():
    """The renderer could not tell them from those that must not stretch."""
    for page in DOCS.rglob("*.md"):
        assert not re.search(r"\\(left|right)\s*\\[|{}lr]|\\begin\{cases", page.read_text()), page
