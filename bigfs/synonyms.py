"""Other names of methods. It imports nothing, so that a command finds its earlier runs at once."""

from __future__ import annotations

SYNONYMS = {
    "f-classif": "anova",
    "information-gain": "mutual-info",
    "relief-f": "relieff",
    "rsr": "jfs",
    "t-test": "t-score",
}


def canonical_name(method: str) -> str:
    """Return the name of a method by which `METHODS` lists it."""
    return SYNONYMS.get(method, method)
