"""Sources made of others: a corpus of several files, and rows with labels in a separate file."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from bigfs.types import IntArray
from storage.errors import SourceError
from storage.fingerprint import fingerprint_of, identity_of
from storage.sources.base import MatrixSource, Rows, open_decompressed, source_errors


class Joined(MatrixSource):
    """Matrices with the same columns, one below the other, each with its split or None."""

    format = "joined"

    def __init__(
        self,
        path: str,
        parts: Sequence[tuple[MatrixSource, str | None]],
        *,
        n_features: int | None = None,
        sample_shape: tuple[int, int] | None = None,
    ) -> None:
        self.path, self.parts = path, list(parts)
        self.target = parts[0][0].target
        self.n_features, self.sample_shape = n_features, sample_shape

    def fingerprint(self) -> str:
        return fingerprint_of(
            self.format,
            self.n_features,
            self.sample_shape,
            [(part.fingerprint(), split) for part, split in self.parts],
        )

    def absolute(self) -> Self:
        source = copy.copy(self)  # whose own path is a name
        source.parts = [(part.absolute(), split) for part, split in self.parts]
        return source

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        ready.parts = []
        for k, (part, split) in enumerate(self.parts):
            folder = Path(scratch) / f"part-{k}"  # two parts may unpack under one name
            folder.mkdir(parents=True, exist_ok=True)
            ready.parts.append((part.prepare(folder), split))
        return ready

    def with_memory_limit(self, room: int) -> Self:
        source = super().with_memory_limit(room)
        source.parts = [(part.with_memory_limit(room), split) for part, split in self.parts]
        return source

    def pieces(self, size: int) -> list[tuple[int, Any]]:
        return [(k, piece) for k, (part, _) in enumerate(self.parts) for piece in part.pieces(size)]

    def weight(self, piece: tuple[int, Any]) -> int:
        return self.parts[piece[0]][0].weight(piece[1])

    def read(self, piece: tuple[int, Any]) -> Rows:
        part, split = self.parts[piece[0]]
        rows = part.read(piece[1])
        return rows if split is None else rows._replace(split=np.full(rows.X.shape[0], split))


class Topics(MatrixSource):
    """RCV1: rows labeled by the number of their document, and a file with the topics of each.

    Parameters
    ----------
    rows : MatrixSource
        The documents.
    qrels : str
        The file of topics, plain or compressed. Each line has a topic, a document and a 1.
    """

    format = "topics"
    target = "multilabel"

    def __init__(self, rows: MatrixSource, qrels: str) -> None:
        self.rows, self.qrels, self.path, self.n_features = rows, qrels, rows.path, rows.n_features

    def fingerprint(self) -> str:
        return fingerprint_of(self.format, self.rows.fingerprint(), identity_of([self.qrels]))

    def absolute(self) -> Self:
        source = copy.copy(self)
        source.rows, source.qrels = self.rows.absolute(), os.path.abspath(self.qrels)
        return source

    def prepare(self, scratch: Path) -> Self:
        ready = copy.copy(self)
        ready.rows = self.rows.prepare(scratch)
        # workers see scratch, but maybe not the source
        ready.qrels = str(Path(scratch) / f"topics-{self.fingerprint()}")
        shutil.copyfile(self.qrels, ready.qrels)
        return ready

    def with_memory_limit(self, room: int) -> Self:
        source = super().with_memory_limit(room)
        source.rows = self.rows.with_memory_limit(room)
        return source

    def pieces(self, size: int) -> list[Any]:
        return self.rows.pieces(size)

    def weight(self, piece: Any) -> int:
        return self.rows.weight(piece)

    def read(self, piece: Any) -> Rows:
        rows = self.rows.read(piece)
        topics = _read_topics(self.qrels)
        document = np.asarray(rows.y, dtype=np.int64)
        first, last = (
            np.searchsorted(topics.document, document, side) for side in ("left", "right")
        )  # sides
        labels = [
            tuple(sorted(topics.names[t] for t in topics.topic[a:b]))
            for a, b in zip(first, last, strict=True)
        ]
        if () in labels:
            raise SourceError(
                f"{self.qrels} has no topic for document "
                f"{document[labels.index(())]} of {self.path}"
            )
        return rows._replace(y=labels, names=document.astype(str))


class TopicTable(NamedTuple):
    """The file of topics, sorted by document."""

    document: IntArray
    topic: IntArray
    names: list[str]


@lru_cache(maxsize=1)
def _read_topics(qrels: str) -> TopicTable:
    import pandas as pd

    with (
        source_errors(f"{qrels} must hold lines of topic, document and 1"),
        open_decompressed(qrels) as file,
    ):
        table = pd.read_csv(
            file,
            sep=" ",
            header=None,
            names=["topic", "document", "one"],
            dtype={"topic": str, "document": np.int64},
        )
    names, topic = np.unique(table["topic"].to_numpy(dtype=str), return_inverse=True)
    order = np.argsort(table["document"].to_numpy(), kind="stable")
    return TopicTable(table["document"].to_numpy()[order], topic[order], names.tolist())
