"""Formulas as MathML, which browsers draw without a script from elsewhere."""

import re
from html import unescape
from xml.etree import ElementTree

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ENTITY = r"&(?!amp|lt|gt)\w+;"  # that HTML knows, and XML does not
ACCENTS = set("ˉ¯ˆ^~˜˙¨→")
OPERATOR, GROUP, SPACE, *SCRIPTS = (
    f"{{{NAMESPACE}}}{name}" for name in ("mo", "mrow", "mspace", "msub", "msup", "msubsup")
)
CLOSING = dict(zip("([{⟨⌊⌈|‖", ")]}⟩⌋⌉|‖", strict=True))
BREAKS = set("=≈∝≤≥<>∈→+−,")


def _group(formula):
    """Let Firefox end lines only at relations, sums and commas outside of brackets."""
    rows, opened = [[]], []
    for part in formula:
        sign = (part[0] if part.tag in SCRIPTS else part).text
        if opened and sign == opened[-1]:
            opened.pop()
        elif sign in CLOSING:
            opened.append(CLOSING[sign])
        unary = not rows[-1] and sign in ("+", "−")
        breaks = part.tag == OPERATOR and sign in BREAKS and not opened and not unary
        if breaks or part.tag == SPACE:
            rows += [part], []
        else:
            rows[-1].append(part)
    formula[:] = []
    for row in rows:
        (ElementTree.SubElement(formula, GROUP) if len(row) > 1 else formula).extend(row)


def mathml(tex, as_block):
    """Return a formula as MathML whose norms, sets and inner products have delimiters of one size.

    docutils lets ‖, { and ⟨ stretch, but not those that carry an exponent. Here only the ( and [ of
    \\left and \\right stretch. Without spaces, | and ‖ are no operators between letters. docutils
    also writes the index of a letter with an accent below it.
    """
    drawn = tex2mathml(tex, as_block=as_block)
    drawn = re.sub(
        r'<mo(?: class="mathopen")?>([|‖{}⟨⟩⌊⌋⌈⌉])</mo>', r'<mo stretchy="false">\1</mo>', drawn
    )
    drawn = re.sub(r'(stretchy="false")>([|‖])', r'\1 lspace="0" rspace="0">\2', drawn)
    ElementTree.register_namespace("", NAMESPACE)
    formula = ElementTree.fromstring(re.sub(ENTITY, lambda name: unescape(name[0]), drawn))
    for part in list(formula.iter(f"{{{NAMESPACE}}}munderover")):
        letter, index, sign = part
        if sign.text in ACCENTS:
            part.tag = f"{{{NAMESPACE}}}msub"
            accented = ElementTree.Element(f"{{{NAMESPACE}}}mover", accent="true")
            accented.extend([letter, sign])
            part[:] = [accented, index]
    _group(formula)
    return ElementTree.tostring(formula, encoding="unicode")


def _inline(self, node):
    self.body.append(mathml(node.astext(), as_block=False))
    raise SkipNode


def _block(self, node):
    self.body.append(f'<div class="math-block">{mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def setup(app):
    """Register the renderer."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(_inline, None), block_renderers=(_block, None)
    )
    return {"parallel_read_safe": True}
