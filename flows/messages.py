"""The messages of the program on stderr."""

from __future__ import annotations

import logging
import shlex
import sys

from bigfs.engine.display import json_line

log = logging.getLogger("bigfs.flows")
# whether `inform` only logs, and whether lines on stderr are JSON objects
notes = {"silent": False, "json": False}

# the flags of options whose names are not enough
FLAGS = {
    "features": ("--features", "-n"),
    "method": ("--method", "-m"),
    "out": ("--out", "-o"),
    "workers": ("--workers", "-w"),
    "lists": ("--list", "--lists"),
    "metrics": ("--metric", "--metrics"),
    "selectors": ("--with",),
}


def inform(text: str, about: str = "bigfs") -> None:
    """Print a line of this program on stderr, and log it, so that Prefect shows it too."""
    if not notes["silent"]:
        say(text, about=about)
    log.info(text)


def say(text: str, level: str = "info", about: str = "bigfs") -> None:
    """Print a line of this program on stderr, as text or as a JSON object."""
    line = json_line(level=level, message=text) if notes["json"] else f"{about}: {printable(text)}"
    print(line, file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return a text from outside as a terminal may show it, with unprintable characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Waits(logging.Handler):
    """Says what the packages warn of by their logs, such as a lock that another process holds."""

    def emit(self, record: logging.LogRecord) -> None:
        if not notes["silent"]:
            say(record.getMessage(), record.levelname.lower())


def repeat_command(command: str, source: tuple[str, str] = ("", ""), **options: str) -> str:
    """Return a command of bigfs with another source and other options, as a line to type.

    It has no --out, which names the result of the command as it was. For a program that is not
    the command line it is the options alone.
    """
    flags = {name: FLAGS.get(name, (f"--{name.replace('_', '-')}",)) for name in options}
    added = [word for name, value in options.items() for word in (flags[name][0], value)]
    words = shlex.split(command)
    if "bigfs" not in words[:3]:
        return shlex.join(added or [source[1]])
    start = words.index("bigfs") + 1
    left, kept = iter(words[start:]), words[:start]
    dropped = {flag for names in (*flags.values(), FLAGS["out"]) for flag in names}
    for word in left:
        if word.partition("=")[0] not in dropped:
            kept.append(source[1] if word == source[0] else word)
        elif "=" not in word:
            next(left, None)  # its value
    return shlex.join([*kept, *added])
