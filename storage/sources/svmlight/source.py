"""svmlight (LIBSVM) files, cut by byte ranges. Compressed ones are decompressed first."""

from __future__ import annotations

import itertools
import logging
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
from bigfs.storage.sources.base import MatrixSource, PlainFile, Rows, line_number, shorten
from bigfs.storage.sources.files import head
from bigfs.storage.sources.obs import as_obs

log = logging.getLogger("bigfs.storage")

NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# a token behind the label of a line that is meant as svmlight. The parser says what is wrong in it
ENTRY = re.compile(rb"[^\s:]+:\S+")
SIZES = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*\n")  # the first line of XMC's format
ZERO = re.compile(rb"(?m)^[^#\n]*?(?:^|[ \t])0+:")
HEAD = 1 << 22
MESSAGES = (
    "",
    "a label must be a number, or numbers joined by commas",
    "an entry must be index:value with a whole index",
    "an index comes twice in a line",
    "a value must be a finite number",
    checks.MUST_FIT,
    "indices begin at 1: say zero_based=true if this file counts from 0",
    "qid: must be followed by a whole number below 10¹²",
    "it may begin with label:weight (XGBoost) or with an entry: write the label alone, put a blank "
    "before a line without a label, or give labels=none if no line has one",
)


@dataclass
class Svmlight(PlainFile, MatrixSource):
    """One sample per line: ``label[,label…] [qid:n] index:value … [# comment]``."""

    format = "svmlight"
    path: str
    # None takes 0 if the first 4 MB hold an index 0, else 1. An index 0 further on is an error then
    zero_based: bool | None = None
    n_features: int | None = None  # d, by default the largest index
    # None takes "multilabel" if a line has several labels, "class" if all are whole numbers
    target: str | None = None
    unlabeled: str | None = None  # the number that means "none", such as 0 or -1
    group: str | None = None  # "qid" keeps the query of each line as its group
    labels: str | None = None  # "none" if the lines have no labels and begin with an entry

    def __post_init__(self) -> None:
        if self.target not in (None, "class", "real", "multilabel"):
            raise SourceError(
                f"target must be class, real or multilabel; got {shorten(self.target)}"
            )
        if self.labels not in (None, "none"):
            raise SourceError(f"labels of svmlight may be none; got {shorten(self.labels)}")
        self.guessed = ("zero_based",) if self.zero_based is None else ()
        if self.group not in (None, "qid"):
            raise SourceError(f"the group of svmlight is qid; got group={shorten(self.group)}")
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
        if SIZES.match(head):
            return True
        lines = [line for line in head.splitlines()[:51] if line.strip()[:1] not in (b"", b"#")]
        lines = lines[:-1] or lines  # the head may end inside the last line
        return 2 * sum(map(_is_line, lines)) > len(lines)

    def fingerprint(self) -> str:
        settings = (
            self.zero_based,
            self.n_features,
            self.target,
            self.unlabeled,
            self.group,
            self.labels,
        )
        return fingerprint_of("svmlight", identity_of([self.path]), *settings)

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        start = head(Path(ready.plain), HEAD)
        if sizes := SIZES.match(start):
            raise SourceError(
                f"{self.path} begins with the numbers of samples, features and labels of the XMC "
                f"format ({b' '.join(sizes.groups()).decode()}): remove its first line, as by "
                f"tail -n +2, and give zero_based=true&target=multilabel"
            )
        if ready.zero_based is None:
            ready.zero_based = ZERO.search(start) is not None
        if self.group is None and b" qid:" in start:
            log.info("%s: qid: is not kept; group=qid keeps it as the group", self.path)
        return ready

    def read(self, piece: tuple[int, int]) -> Rows:
        from bigfs.storage.sources.svmlight import kernel  # compiled at its first use

        start, raw = self.read_lines(piece)
        (code, where, labels, counts, unsure_labels, queries, *entries) = kernel.parse(
            np.frombuffer(raw, dtype=np.uint8),
            0 if self.zero_based else 1,
            self.labels is None,
            *kernel.count(np.frombuffer(raw, dtype=np.uint8)),
        )
        indptr, indices, values, is_sorted, unsure = entries
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
        if not is_sorted:
            X.sort_indices()
            twice = np.flatnonzero(np.diff(X.indices) == 0) + 1
            inside = np.setdiff1d(twice, X.indptr)
            if len(inside):
                row = int(np.searchsorted(X.indptr, inside[0], side="right")) - 1
                line = _line_of_row(raw, row) + line_number(self.plain, start)
                column = int(X.indices[inside[0]]) + (not self.zero_based)
                raise SourceError(f"{self.path}, line {line}: {MESSAGES[3]}; got {column} twice")
        obs = {}
        if self.group is not None:
            if len(lacks := np.flatnonzero(queries < 0)):
                line = _line_of_row(raw, int(lacks[0])) + line_number(self.plain, start)
                raise SourceError(f"{self.path}, line {line}: no qid:, and group=qid asks for one")
            obs["group"] = as_obs("group", queries.tolist(), lambda i: f"{self.path}: row {i}")
        return Rows(X, self._packed_labels(labels, numbers, counts), obs=obs)

    def _error_message(self, code: int, start: int, raw: bytes, where: int) -> str:
        line = line_number(self.plain, start) + raw.count(b"\n", 0, where)
        token = re.match(rb"[^\s#]*", raw[where : where + 40])
        came = token[0].decode("latin-1") if token else ""
        return f"{self.path}, line {line}: {MESSAGES[code]}; got {came!r}"

    def _packed_labels(self, labels: Any, exact: dict[int, int | float], counts: Any) -> Any:
        """Return the labels as `Rows.y` holds them. `exact` replaces some inexact floats."""
        single = self.target != "multilabel" and (counts <= 1).all()
        is_labeled = counts > 0
        if single and all(
            isinstance(v, float) or abs(v) <= label_rules.MAX_EXACT
            for v in (*exact.values(), self.none)
        ):
            labels[list(exact)] = list(exact.values())
            of_rows = np.full(len(counts), np.nan)
            of_rows[is_labeled] = np.where(labels == self.none, np.nan, labels)
            return of_rows
        numbers: list[Any] = [int(v) if v.is_integer() else v for v in labels.tolist()]
        for label, value in exact.items():
            numbers[label] = value
        if single:
            told = iter(None if v == self.none else v for v in numbers)
            return [next(told) if labeled else None for labeled in is_labeled]
        cuts = np.cumsum([0, *counts])
        return [
            tuple(v for v in numbers[a:b] if v != self.none)
            for a, b in zip(cuts, cuts[1:], strict=False)
        ]


def _is_line(line: bytes) -> bool:
    """Return whether a line is meant as svmlight: a label, and pairs behind it up to a comment."""
    label, *entries = line.partition(b"#")[0].split() or [b""]
    if ENTRY.fullmatch(label):  # a line without a label
        entries = [label, *entries]
    return bool(entries) and all(map(ENTRY.fullmatch, entries))


def _line_of_row(raw: bytes, row: int) -> int:
    """Return the number of the line, from 0, of a row of a piece."""
    lines = enumerate(raw.split(b"\n"))
    samples = (i for i, line in lines if line.partition(b"#")[0].strip())
    return next(itertools.islice(samples, row, None))


def _number_at(raw: bytes, begin: int) -> str:
    return re.match(NUMBER, raw[begin : begin + 9999])[0].decode("ascii")  # type: ignore[index]  # it is one
