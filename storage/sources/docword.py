"""UCI's bags of words: ``docword.NAME.txt`` with the counts, and ``vocab.NAME.txt`` beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.sources import checks
from bigfs.storage.sources.base import shorten
from bigfs.storage.sources.files import open_decompressed
from bigfs.storage.sources.matrixmarket import MatrixMarket

HEADER = ("documents", "words", "counts")  # a line each


class Docword(MatrixMarket):
    """Lines of a document, a word and a count, all from 1, after three lines with the numbers of
    documents, words and counts."""

    format = "docword"

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return path.name.startswith("docword.")

    @property
    def vocabulary(self) -> Path:
        """The file with a word per line, which need not be there."""
        path = Path(self.path)
        name = path.name.replace("docword.", "vocab.", 1)
        suffix = path.suffix if path.suffix != ".txt" else ""
        return path.with_name(name.removesuffix(suffix))

    def fingerprint(self) -> str:
        words = identity_of([self.vocabulary]) if self.vocabulary.exists() else None
        return fingerprint_of(super().fingerprint(), words)

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        if self.vocabulary.exists():
            words = self.vocabulary.read_text(encoding="utf-8").splitlines()
            if len(words) != ready.n_features:
                raise SourceError(
                    f"{self.vocabulary} holds {len(words)} words, and {self.path} has "
                    f"{ready.n_features}"
                )
            ready.feature_names = words
        return ready

    def _header(self) -> tuple[str, str, str, tuple[int, int], int, int]:
        with open_decompressed(self.path) as file:
            lines = [file.readline(1 << 10).strip() for _ in HEADER]
        for number, (line, what) in enumerate(zip(lines, HEADER, strict=True), 1):
            if not line.isdigit():
                raise SourceError(
                    f"{self.path}, line {number}: the number of {what} was expected; got "
                    f"{shorten(line.decode('utf-8', 'replace'))}"
                )
        n, d, count = map(int, lines)
        shape: Any = checks.require_shape(n, d, self.path)
        return "coordinate", "integer", "general", shape, count, len(HEADER)
