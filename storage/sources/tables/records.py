"""Records with named fields: what JSON Lines, CSV and Parquet share."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Self

from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.sources import labels as label_rules
from storage.sources.base import Document, Label, Source, decompress, is_compressed, shorten

ROLES = {"label": "label", "split": "split", "name": "id"}  # their fields, if nobody names others


class RecordFile(Source):
    """A file of records.

    Parameters
    ----------
    path : str
        The file, plain or compressed.
    text : str, default="text"
        Name of the field with the text, which every record must have.
    label : str or None, default=None
        Name of the field with the label: text, a number or a list (multi-label). A sample is
        unlabeled if it is null, empty or missing. None takes "label" where there is such a field.
    split : str or None, default=None
        Name of the field with "train" or "test". None takes "split" where there is such a field.
    name : str or None, default=None
        Name of the field with the name of the sample. None takes "id" where there is such a field.
    unlabeled : str or None, default=None
        A label that also means "none".
    """

    def __init__(
        self,
        path: str,
        *,
        text: str = "text",
        label: str | None = None,
        split: str | None = None,
        name: str | None = None,
        unlabeled: str | None = None,
    ) -> None:
        self.path = self.plain = path  # plain: the decompressed file
        given = {"label": label, "split": split, "name": name}
        self.label, self.split, self.name = (
            ROLES[role] if field is None else field for role, field in given.items()
        )
        self.text, self.unlabeled = text, unlabeled
        # the fields that must be there, because somebody named them
        self.named = {role: field for role, field in given.items() if field}

    def files(self) -> list[Path]:
        return [Path(self.path)]

    def fingerprint(self) -> str:
        settings = {
            k: v
            for k, v in vars(self).items()
            if k not in ("path", "plain", "folder", "memory_limit", "memory_per_byte", "named")
        }
        settings["unlabelled"] = settings.pop("unlabeled")  # as earlier versions hashed it
        return fingerprint_of(self.format, identity_of(self.files()), sorted(settings.items()))

    def absolute(self) -> Self:
        source = super().absolute()
        source.plain = source.path
        return source

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        if Path(self.path).is_file() and is_compressed(self.path):
            ready.plain = str(Path(scratch) / f"{Path(self.path).stem}-{self.fingerprint()}.plain")
            decompress(self.path, Path(ready.plain))
        return ready

    def document(self, text: Any, label: Any, split: Any, name: Any, place: object) -> Document:
        """Return the document of a record. `place` is written out in an error only."""
        if not isinstance(text, str):
            raise SourceError(f"{place}: {self.text} must be a text; got {type(text).__name__}")
        return Document(
            _characters(text),
            self.read_label(label, place),
            self.read_split(split, place),
            self.read_name(name),
        )

    def read_name(self, name: Any) -> str:
        return "" if name is None else _characters(str(name))

    def read_label(self, label: Any, place: object) -> Label:
        return label_rules.as_label(label, self.unlabeled, place)

    def read_split(self, split: Any, place: object) -> str | None:
        if split not in (None, "", "train", "test"):
            raise SourceError(f"{place}: {self.split} must be train or test; got {shorten(split)}")
        return split or None


def _characters(text: str) -> str:
    """Replace each lone half of a surrogate pair by a ?, as it has no bytes in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class ByteRangeFile(RecordFile):
    """A file of records that is cut into byte ranges."""

    def length(self) -> int:
        length = Path(self.plain).stat().st_size
        if not length:
            raise SourceError(f"{self.path} is empty")
        return length

    def weight(self, piece: tuple[int, int]) -> int:
        return piece[1] - piece[0]
