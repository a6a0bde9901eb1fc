"""Advice in messages: the command that installs an extra, and names like one that is unknown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import distributions
from urllib.request import url2pathname


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for how bigfs was installed."""
    # a checkout may hold an egg-info in addition to what pip wrote
    texts = (one.read_text("direct_url.json") for one in distributions(name="bigfs"))
    origin = json.loads(next(filter(None, texts), "{}"))
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install -e '{url2pathname(url.removeprefix('file://'))}[{extra}]'"
    return f"pip install 'bigfs[{extra}]{f' @ {url}' if url else ''}'"


def closest(name: str, known: Iterable[str]) -> str:
    """Return ``": did you mean …?"`` with the names that are like an unknown one, or ``""``."""
    found = get_close_matches(name, list(known))
    return f": did you mean {' or '.join(found)}?" if found else ""
