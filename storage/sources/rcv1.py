"""RCV1's labels, which lie in a file of their own."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.lazy import pd
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import Rows
from bigfs.storage.sources.files import open_decompressed, source_errors
from bigfs.storage.sources.joined import JoinedRows
from bigfs.types import IntArray


@dataclass(eq=False)
class Topics(JoinedRows):
    """Rows labeled by the number of their document, and a file of lines "topic document 1"."""

    format = "topics"
    qrels: str

    def __post_init__(self) -> None:
        super().__post_init__()
        self.target = "multilabel"

    def fingerprint(self) -> str:
        return fingerprint_of("topics", super().fingerprint(), identity_of([self.qrels]))

    def absolute(self) -> Self:
        source = super().absolute()
        source.qrels = os.path.abspath(self.qrels)
        return source

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        # workers see scratch, but maybe not the source
        ready.qrels = str(Path(scratch) / f"topics-{self.fingerprint()}")
        shutil.copyfile(self.qrels, ready.qrels)
        return ready

    def read(self, piece: tuple[int, Any]) -> Rows:
        rows = super().read(piece)
        topics = _read_topics(self.qrels)
        document = rows.samples["label"].dictionary_decode().to_numpy().astype(np.int64)
        first, last = (
            np.searchsorted(topics.document, document, side) for side in ("left", "right")
        )
        if (first == last).any():
            raise SourceError(
                f"{self.qrels} has no topic for document "
                f"{document[int(np.argmax(first == last))]} of {self.path}"
            )
        labels = [
            sorted(topics.names[t] for t in topics.topic[a:b])
            for a, b in zip(first, last, strict=True)
        ]
        told = {"label": labels, "name": document.astype(str).tolist()}
        columns = {role: samples.read(role, values, rows.place) for role, values in told.items()}
        return rows._replace(samples={**rows.samples, **columns})


class TopicTable(NamedTuple):
    """The file of topics, sorted by document."""

    document: IntArray
    topic: IntArray
    names: list[str]


@lru_cache(maxsize=1)
def _read_topics(qrels: str) -> TopicTable:
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
