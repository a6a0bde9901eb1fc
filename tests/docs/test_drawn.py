"""The formulas of the pages in Chromium: the two delimiters of a pair have one height.

A formula inside a line fits a phone.
"""

import html
import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
mathml = runpy.run_path(str(DOCS / "formulas.py"))["mathml"]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
BLOCKS = [
    ("$$", tex)
    for tex in (
        r"\|W\|_F^2",
        r"\{a_i\}_{i \le n}^2",
        r"\langle u, v \rangle^2",
        r"|x|^2 + |\frac{a}{b}|^2",
        r"\left(\frac{a}{b}\right)^2",
        r"\left[\sum_{i=1}^n x_i\right]^2",
        r"(a + \frac{b}{c})^{-1/2}",
        r"\lfloor \frac{a}{b} \rfloor^2",
    )
]
MEASURE = """
document.body.textContent = JSON.stringify([...document.querySelectorAll('div')].map(div => [
  div.querySelector('math').getBoundingClientRect().width,
  [...div.querySelectorAll('mo')]
    .filter(mo => '()[]{}|‖⟨⟩⌊⌋'.includes(mo.textContent))
    .map(mo => [mo.textContent, mo.getBoundingClientRect().height])]))
"""
# the page's own fonts: without one of them nothing stretches
[STYLE] = re.findall(r"^math {.*}$", (DOCS / "_static" / "bigfs.css").read_text(), flags=re.M)
FONTS = re.findall(r'"([^"]+)"', STYLE)
PHONE = 368  # pixels of a line on a screen of 400
CLOSING = dict(zip("([{⟨⌊|‖", ")]}⟩⌋|‖", strict=True))


def formulas():
    """The formulas of the pages, each with the dollars around it, without those of code."""
    for page in sorted(DOCS.rglob("*.md")):
        if not {"_build", "auto_examples"} & set(page.relative_to(DOCS).parts):
            text = re.sub(r"^ *```.*?^ *```|`[^`\n]+`", "", page.read_text(), flags=re.S | re.M)
            yield from re.findall(r"(\$\$?)([^$]+)\1", text)


def can_stretch():
    """Whether Chromium and a font for formulas are here."""
    if CHROMIUM is None or shutil.which("fc-list") is None:
        return False
    known = subprocess.run(["fc-list"], capture_output=True, text=True, check=True).stdout
    return any(font in known for font in FONTS)


def uneven(delimiters):
    """The pairs whose heights differ by more than a pixel; what opens and never closes is none."""
    opened = []
    for sign, height in delimiters:
        if opened and sign == CLOSING[opened[-1][0]]:
            first, before = opened.pop()
            if abs(height - before) > 1:
                yield first + sign, before, height
        elif sign in CLOSING:
            opened.append((sign, height))


def drawn(texs, folder, draw=mathml):
    """The width of each formula, and its delimiters with their heights."""
    page = folder / "formulas.html"
    divs = "".join(f"<div>{draw(tex, as_block=dollars == '$$')}</div>" for dollars, tex in texs)
    page.write_text(
        f'<meta charset="utf-8"><style>{STYLE}</style><body>{divs}<script>{MEASURE}</script>'
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    options.append(f"--user-data-dir={folder / 'profile'}")
    done = subprocess.run(
        [CHROMIUM, *options, page.as_uri()], capture_output=True, text=True, check=True
    )
    [heights] = re.findall(r"<body[^>]*>(.*?)</body>", done.stdout, flags=re.S)
    return json.loads(html.unescape(heights))


@pytest.mark.process
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium draws MathML, and is not installed")
def test_both_delimiters_of_a_pair_have_one_height(tmp_path):
    texs = [*BLOCKS, *dict.fromkeys(formulas())]
    assert len(texs) > 100
    for (dollars, tex), (width, delimiters) in zip(texs, drawn(texs, tmp_path), strict=True):
        assert not list(uneven(delimiters)), tex
        assert dollars == "$$" or width <= PHONE, tex


@pytest.mark.process
@pytest.mark.skipif(not can_stretch(), reason="no font that stretches is installed")
def test_what_docutils_makes_alone_is_uneven(tmp_path):
    from docutils.utils.math.latex2mathml import tex2mathml

    measured = drawn(BLOCKS, tmp_path, tex2mathml)
    assert any(list(uneven(delimiters)) for _, delimiters in measured)
