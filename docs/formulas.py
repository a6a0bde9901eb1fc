"""Formulas as MathML, which browsers draw without a script from elsewhere."""

import re

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml


def mathml(tex, as_block):
    """Return a formula as MathML whose norms, sets and inner products have delimiters of one size.

    docutils lets ‖, { and ⟨ stretch, but not those that carry an exponent. Here only the ( and [ of
    \\left and \\right stretch.
    """
    drawn = tex2mathml(tex, as_block=as_block)
    return re.sub(r"<mo>([‖{}⟨⟩⌊⌋⌈⌉])</mo>", r'<mo stretchy="false">\1</mo>', drawn)


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
