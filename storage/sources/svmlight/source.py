"""svmlight (LIBSVM) files, cut by byte ranges. Compressed ones are decompressed first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.sources import checks
from bigfs.storage.sources import labels as label_rules
from bigfs.storage.sources.base import (
    MatrixSource,
    PlainFile,
    Rows,
    head,
    line_number,
)

NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# a line that is meant as svmlight; the parser reports what is wrong in it
LINE = re.compile(rb"\s*[^\s:]*(?:\s+qid:\d+)?(?:\s+[^\s:]+:\S+)+\s*(?:#.*)?")
ZERO = re.compile(rb"(?m)^[^#\n]*?(?:^|[ \t])0+:")
HEAD = 1 << 22
MESSAGES = (
    "",
    "a label must be a number, or numbers joined by commas",
    "an entry must be index:value with a whole index",
    "indices must increase along a line",
    "a value must be a finite number",
    checks.MUST_FIT,
    "indices begin at 1: say zero_based=True if this file counts from 0",
)


@dataclass
class Svmlight(PlainFile, MatrixSource):
    """One sample per line: ``label[,label…] [qid:n] index:value … [# comment]``."""

    format = "svmlight"
    path: str
    # None takes 0 if the first 4 MB hold an index 0, else 1. An index 0 further on is an error then
    zero_based: bool | None = None
    n_features: int | None = None  # d, by default the largest index
    # None takes "multilabel" if lines have several labels or none, "class" if all are whole numbers
    target: str | None = None
    unlabeled: str | None = None  # the number that means "none", such as 0 or -1

    def __post_init__(self) -> None:
        self.plain = self.path
        try:
            self.none = (
                np.nan if self.unlabeled is None else label_rules.parse_number(str(self.unlabeled))
            )
        except ValueError:
            raise SourceError(
                f"svmlight labels are numbers: unlabeled={self.unlabeled!r} must be a number"
            ) from None

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        lines = [line for line in head.splitlines()[:51] if line.strip()[:1] not in (b"", b"#")]
        lines = lines[:-1] or lines  # the head may end inside the last line
        return 2 * sum(LINE.fullmatch(line) is not None for line in lines) > len(lines)

    def fingerprint(self) -> str:
        settings = self.zero_based, self.n_features, self.target, self.unlabeled
        return fingerprint_of("svmlight", identity_of([self.path]), *settings)

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        if ready.zero_based is None:
            ready.zero_based = ZERO.search(head(Path(ready.plain), HEAD)) is not None
        return ready

    def read(self, piece: tuple[int, int]) -> Rows:
        from bigfs.storage.sources.svmlight import kernel  # compiled at its first use

        start, raw = self.read_lines(piece)
        code, where, labels, counts, unsure_labels, indptr, indices, values, unsure = kernel.parse(
            np.frombuffer(raw, dtype=np.uint8),
            0 if self.zero_based else 1,
            *kernel.count(np.frombuffer(raw, dtype=np.uint8)),
        )
        if code:
            raise SourceError(self._error_message(code, start, raw, where))
        for entry, begin in unsure:  # too close to the middle between two float32 numbers
            value = float(_number_at(raw, begin))
            if not checks.fits_float32(np.array([value])).all():
                raise SourceError(self._error_message(5, start, raw, begin))
            values[entry] = value
        numbers = {
            label: label_rules.parse_number(_number_at(raw, begin))
            for label, begin in unsure_labels
        }
        for label, begin in unsure_labels:
            if numbers[label] in (np.inf, -np.inf):
                raise SourceError(self._error_message(1, start, raw, begin))
        width = int(indices.max()) + 1 if len(indices) else 0
        if self.n_features is not None and width > self.n_features:
            raise SourceError(
                f"{self.path} has an index {width - bool(self.zero_based)}, but "
                f"n_features={self.n_features}: raise n_features"
            )
        X = sp.csr_array((values, indices, indptr), shape=(len(counts), width))
        return Rows(X, self._packed_labels(labels, numbers, counts))

    def _error_message(self, code: int, start: int, raw: bytes, where: int) -> str:
        line = line_number(self.plain, start) + raw.count(b"\n", 0, where)
        token = re.match(rb"[^\s#]*", raw[where : where + 40])
        came = token[0].decode("latin-1") if token else ""
        return f"{self.path}, line {line}: {MESSAGES[code]}; got {came!r}"

    def _packed_labels(self, labels: Any, exact: dict[int, int | float], counts: Any) -> Any:
        """Return the labels as `Rows.y` holds them. `exact` replaces some inexact floats."""
        single = self.target != "multilabel" and (counts == 1).all()
        if single and all(
            isinstance(v, float) or abs(v) <= label_rules.MAX_EXACT
            for v in (*exact.values(), self.none)
        ):
            labels[list(exact)] = list(exact.values())
            return np.where(labels == self.none, np.nan, labels)
        numbers: list[Any] = [int(v) if v.is_integer() else v for v in labels.tolist()]
        for label, value in exact.items():
            numbers[label] = value
        if single:
            return [None if v == self.none else v for v in numbers]
        cuts = np.cumsum([0, *counts])
        return [
            tuple(v for v in numbers[a:b] if v != self.none)
            for a, b in zip(cuts, cuts[1:], strict=False)
        ]


def _number_at(raw: bytes, begin: int) -> str:
    return re.match(NUMBER, raw[begin : begin + 9999])[0].decode("ascii")  # type: ignore[index]  # it is one
