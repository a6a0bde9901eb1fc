"""Records with named fields: what JSON Lines, CSV and Parquet share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.sources import labels as label_rules
from storage.sources.base import (
    Document,
    Label,
    PlainFile,
    Rows,
    TextSource,
    shorten,
)

ROLES = {"label": "label", "split": "split", "name": "id"}  # their fields, if nobody names others


@dataclass(eq=False)
class RecordFile(PlainFile):
    """A file of records, plain or compressed."""

    path: str
    _: KW_ONLY
    # the fields with the label (a text, a number or a list), "train" or "test", and the sample's
    # name. By default they are those of `ROLES` where there are such fields
    label: str | None = None
    split: str | None = None
    name: str | None = None
    unlabeled: str | None = None  # a label that also means "none", as null and "" do

    def __post_init__(self) -> None:
        self.plain = self.path
        given = {role: getattr(self, role) for role in ROLES}
        # the fields that must be there, because somebody named them
        self.named = {role: field for role, field in given.items() if field}
        for role, default in ROLES.items():
            setattr(self, role, default if given[role] is None else given[role])

    @property
    def roles(self) -> tuple[str, str, str]:
        """The fields of the label, the split and the name."""
        return self.label or "", self.split or "", self.name or ""

    def files(self) -> list[Path]:
        return [Path(self.path)]

    def settings(self) -> dict[str, Any]:
        """Return what the fingerprint depends on, by the names of earlier versions."""
        roles = {role: getattr(self, role) for role in ROLES}
        return roles | {"unlabelled": self.unlabeled}

    def fingerprint(self) -> str:
        identity = identity_of(self.files())
        return fingerprint_of(self.format, identity, sorted(self.settings().items()))

    def read_name(self, name: Any) -> str:
        return "" if name is None else _without_surrogates(str(name))

    def read_label(self, label: Any, place: object) -> Label:
        return label_rules.as_label(label, self.unlabeled, place)

    def read_split(self, split: Any, place: object) -> str | None:
        if split not in (None, "", "train", "test"):
            raise SourceError(f"{place}: {self.split} must be train or test; got {shorten(split)}")
        return split or None

    def rows(
        self,
        X: sp.csr_array,
        labels: Sequence[Label],
        splits: Sequence[str | None],
        names: Sequence[str],
    ) -> Rows:
        """Return rows with what is known of all of them."""
        return Rows(
            X,
            label_rules.pack_labels(labels, self.path) if labels else None,
            np.array(splits, dtype=str) if splits and all(splits) else None,
            np.array(names) if any(names) else None,
        )


@dataclass(eq=False, kw_only=True)
class TextRecords(RecordFile, TextSource):
    """Records with a text."""

    text: str = "text"  # the field with the text, which every record must have

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"text": self.text}

    def document(self, text: Any, label: Any, split: Any, name: Any, place: object) -> Document:
        """Return the document of a record. `place` is written out in an error only."""
        if not isinstance(text, str):
            raise SourceError(f"{place}: {self.text} must be a text; got {type(text).__name__}")
        return Document(
            _without_surrogates(text),
            self.read_label(label, place),
            self.read_split(split, place),
            self.read_name(name),
        )


def _without_surrogates(text: str) -> str:
    """Replace each lone half of a surrogate pair by a ?, as it has no bytes in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
