"""Cards: what a notebook shows for a corpus, a matrix, a result or a fitted selector.

A card is a piece of HTML without scripts and without links. It has the colors of the page around
it, so that it suits a light and a dark one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import fields
from html import escape
from typing import Any

import numpy as np

LINE = "1px solid rgba(128, 128, 128, 0.35)"
CELL = "text-align: left; padding: 0.15em 1em 0.15em 0"
WIDTH, HEIGHT = 240, 48  # of a curve, in pixels
MOST_SHOWN, LONGEST = 6, 80  # entries and characters of a value at a prompt


def brief(thing: Any) -> str:
    """Return a dataclass or a named tuple in one line, with arrays by their shape."""
    names = getattr(thing, "_fields", None) or [field.name for field in fields(thing)]
    parts = (f"{name}={_short(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({', '.join(parts)})"


def _short(value: Any) -> str:
    """Return the repr of a value if that takes little of a line, else its kind and size."""
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"<{kind} {' × '.join(map(str, value.shape))} {value.dtype}>"
    if hasattr(value, "_fields"):  # a named tuple of arrays
        return f"<{kind}>"
    if isinstance(value, Sized) and len(value) > MOST_SHOWN and not isinstance(value, str):
        return f"<{kind} of {len(value):,}>"
    text = repr(value)
    if len(text) <= LONGEST and "\n" not in text:
        return text
    return f"<{kind} of {len(value):,}>" if isinstance(value, Sized) else f"<{kind}>"


def card(title: str, facts: Mapping[str, Any], *parts: str) -> str:
    rows = "".join(
        f'<tr><th style="{CELL}; font-weight: normal; opacity: 0.65">{escape(name)}</th>'
        f'<td style="{CELL}">{escape(readable(value))}</td></tr>'
        for name, value in facts.items()
        if value is not None
    )
    return (
        f'<div style="border: {LINE}; border-radius: 6px; padding: 0.6em 1em; margin: 0.3em 0; '
        f'max-width: 46em; overflow-x: auto"><strong>{escape(title)}</strong>'
        f'<table style="border-collapse: collapse; margin: 0.4em 0">{rows}</table>'
        f"{''.join(parts)}</div>"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as HTML. Its cells are escaped."""
    head = "".join(f'<th style="{CELL}; border-bottom: {LINE}">{escape(h)}</th>' for h in header)
    cells = (
        "".join(f'<td style="{CELL}">{escape(readable(value))}</td>' for value in row)
        for row in rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<table style="border-collapse: collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def curve(label: str, values: Sequence[float]) -> str:
    """Return a logarithmic line through positive values as an SVG, empty with fewer than two."""
    heights = np.asarray(values, dtype=np.float64)
    heights = heights[np.isfinite(heights) & (heights > 0)]
    if len(heights) < 2:
        return ""
    heights = np.log(heights)
    x = np.linspace(2, WIDTH - 2, len(heights))
    y = HEIGHT - 4 - (HEIGHT - 8) * (heights - heights.min()) / (np.ptp(heights) or 1)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return (
        f'<div style="opacity: 0.65">{escape(label)}</div><svg width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(label)}"><polyline points="{points}" fill="none" '
        f'stroke="currentColor" stroke-width="1.5"/></svg>'
    )


def readable(value: Any) -> str:
    """Return a value as text: whole numbers with commas, others with four digits."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return str(value)


def shape_text(shape: tuple[int, int]) -> str:
    return f"{shape[0]:,} × {shape[1]:,}"
