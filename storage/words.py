"""The words of a text: at least two word characters of Python, and the marks among them.

The marks that are written over or behind a letter belong to its word, as Unicode has it: vowel
signs of Indic scripts, accents without a letter, and joiners. Python's `re` ends a word there.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache

LAST_PLANE = 0x20000  # behind the last plane that has marks, but for selectors
MARKS = ("Mn", "Mc")  # the categories of the marks that belong to a word
JOINERS = (0x200C, 0x200D)  # of the letters of a word
SELECTORS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))  # of the form of an emoji
VERSION = 2  # of what a token is: another one finds other terms in the same texts
# letters of scripts whose words have no blanks between them: Thai and its kin, kana, Chinese
UNSPACED = re.compile(r"[\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


@cache
def marks() -> list[int]:
    """Return the marks and joiners that belong to a word, increasing."""
    found = {c for c in range(LAST_PLANE) if unicodedata.category(chr(c)) in MARKS}
    return sorted({*found, *JOINERS}.difference(SELECTORS))


@cache
def token_pattern() -> re.Pattern[str]:
    """Return what a token is. A process builds it once."""
    runs = itertools.groupby(enumerate(marks()), key=lambda pair: pair[1] - pair[0])
    ends = ([c for _, c in run] for _, run in runs)
    ranges = "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in ends)
    return re.compile(rf"[\w{ranges}]{{2,}}")
