"""Records with named fields, of which some say what a sample is: what JSON Lines, CSV and Parquet
share.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Self

from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.sources import labels as label_rules
from storage.sources.base import Document, Label, Source, decompress, is_compressed, shortened


class Fields(Source):
    """Records of a file.

    Parameters ---------- text, label, split, name : the fields that hold them. Only the text must
    be there; a label may be a text, a number
        or a list (multi-label); one that is null, empty or missing is unlabelled; split holds train
        or test.
    unlabelled : the label that also means "none".
    """

    def __init__(
        self,
        path: str,
        *,
        text: str = "text",
        label: str = "label",
        split: str = "split",
        name: str = "id",
        unlabelled: str | None = None,
    ) -> None:
        self.path = self.plain = path  # plain: the decompressed file
        self.text, self.label, self.split, self.name, self.unlabelled = (
            text,
            label,
            split,
            name,
            unlabelled,
        )

    def files(self) -> list[Path]:
        return [Path(self.path)]

    def fingerprint(self) -> str:
        settings = {
            k: v for k, v in vars(self).items() if k not in ("path", "plain", "folder", "room")
        }
        return fingerprint_of(self.format, identity_of(self.files()), sorted(settings.items()))

    def unpacked(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        if Path(self.path).is_file() and is_compressed(self.path):
            ready.plain = str(Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}.plain")
            decompress(self.path, Path(ready.plain))
        return ready

    def document(self, text: Any, label: Any, split: Any, name: Any, place: object) -> Document:
        """`place` is only written out in an error."""
        if not isinstance(text, str):
            raise SourceError(f"{place}: {self.text} must be a text; got {type(text).__name__}")
        return Document(
            _characters(text),
            self.labelled(label, place),
            self.half(split, place),
            self.called(name),
        )

    def called(self, name: Any) -> str:
        return "" if name is None else _characters(str(name))

    def labelled(self, label: Any, place: object) -> Label:
        return label_rules.one(label, self.unlabelled, place)

    def half(self, split: Any, place: object) -> str | None:
        if split not in (None, "", "train", "test"):
            raise SourceError(
                f"{place}: {self.split} must be train or test; got {shortened(split)}"
            )
        return split or None


def _characters(text: str) -> str:
    """The text with a ? for each lone half of a surrogate pair, which is no character and has no
    bytes in UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Cut(Fields):
    """A file that is cut by bytes."""

    def length(self) -> int:
        length = Path(self.plain).stat().st_size
        if not length:
            raise SourceError(f"{self.path} is empty")
        return length

    def weight(self, piece: tuple[int, int]) -> int:
        return piece[1] - piece[0]
