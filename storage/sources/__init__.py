"""The formats that a corpus can come in, and which one a path is."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from storage.errors import SourceError
from storage.sources.base import Source, head
from storage.sources.svmlight import Svmlight
from storage.sources.synthetic import PREFIX, Synthetic
from storage.sources.text import Text

FORMATS: dict[str, type[Source]] = {"synthetic": Synthetic, "text": Text, "svmlight": Svmlight}  # in the order in which they are tried


def find(source: str | Path, *, format: str | None = None, **options: Any) -> Source:
    """The source behind a path.

    Parameters
    ----------
    source : a file or a folder, or ``synthetic:NAME`` for a generated corpus.
    format : one of `FORMATS`; default: guessed from the content.
    options : of the format, for example ``zero_based`` of svmlight.

    Raises
    ------
    SourceError : no such path, an unknown format or option, or a content that no format knows.
    """
    if format is not None and format not in FORMATS:
        raise SourceError(f"unknown format {format!r}: the known ones are {', '.join(FORMATS)}")
    if str(source).startswith(PREFIX):
        format = Synthetic.format
    elif not Path(source).exists():
        raise SourceError(f"{source} does not exist: give the path of a file or a folder")
    kind: Any = FORMATS[format] if format else _guess(Path(source))
    known = list(inspect.signature(kind).parameters)[1:]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise SourceError(f"{kind.format} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return kind(str(source), **options)


def _guess(path: Path) -> type[Source]:
    start = head(path)
    for kind in FORMATS.values():
        if kind.sniff(path, start):
            return kind
    raise SourceError(f"the format of {path} is not one of {', '.join(FORMATS)}: name it with format=")
