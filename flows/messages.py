"""What the program says on stderr, beside its results."""

from __future__ import annotations

import logging
import sys

from bigfs.engine.display import json_line

log = logging.getLogger("bigfs.flows")
# whether `inform` only logs, and whether lines on stderr are JSON objects
notes = {"silent": False, "json": False}


def inform(text: str, about: str = "bigfs") -> None:
    """Print a line of this program on stderr, and log it, so that Prefect shows it too."""
    if not notes["silent"]:
        say(text, about=about)
    log.info(text)


def say(text: str, level: str = "info", about: str = "bigfs") -> None:
    """Print a line of this program on stderr, as text or as a JSON object."""
    line = json_line(level=level, message=text) if notes["json"] else f"{about}: {shown(text)}"
    print(line, file=sys.stderr, flush=True)


def shown(text: str) -> str:
    """Return a text from outside as a terminal may show it: what is not printed is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Waits(logging.Handler):
    """Says what the packages warn of by their logs, such as a lock that another process holds."""

    def emit(self, record: logging.LogRecord) -> None:
        if not notes["silent"]:
            say(record.getMessage(), record.levelname.lower())
