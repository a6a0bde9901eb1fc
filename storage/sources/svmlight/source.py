"""svmlight (LIBSVM) files, cut by byte ranges. Compressed ones are decompressed first."""

from __future__ import annotations

import io
import itertools
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of, identity_of
from bigfs.storage.lazy import pa
from bigfs.storage.sources import checks, samples
from bigfs.storage.sources.arrays import identity_of_lists, read_list, read_names
from bigfs.storage.sources.base import MatrixSource, PlainFile, Rows, line_number, shorten
from bigfs.storage.sources.files import head

log = logging.getLogger("bigfs.storage")

NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# a token behind the label of a line that is meant as svmlight. The parser says what is wrong in it
is_entry = re.compile(rb"[^\s:]+:\S+").fullmatch
SIZES = re.compile(rb"\s*(\d+)\s+(\d+)\s+(\d+)\s*\n")  # the first line of XMC's format
ZERO = re.compile(rb"(?m)^[^#\n]*?(?:^|[ \t])0+:")
HEAD = Setting(1 << 22)
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
    """One sample per line: ``label[,label…] [qid:n] index:value … [# comment]``.

    The first line may hold the numbers of samples, features and labels, as XMC's files have it.
    """

    format = "svmlight"
    allows_single = True
    path: str
    # None takes 0 if the first 4 MB hold an index 0, else 1. An index 0 further on is an error then
    zero_based: bool | None = None
    n_features: int | None = None  # d, by default the largest index
    # None takes "multilabel" if a line has several labels, "class" if all are whole numbers
    target: str | None = None
    unlabeled: str | None = None  # the number that means "none", such as 0 or -1
    group: str | None = None  # "qid" keeps the query of each line as its group
    labels: str | None = None  # "none" if the lines have no labels and begin with an entry
    # the names of the columns and of the samples: files with one per line, or lists
    names: Any = None
    sample_names: Any = None
    of_samples = ("sample_names",)
    # of each piece, the number of its first sample. The names lie in a file on scratch
    firsts: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    names_file: str = field(default="", init=False, repr=False)
    begin: int = field(default=0, init=False, repr=False)  # of the first sample

    def __post_init__(self) -> None:
        if self.labels not in (None, "none"):
            raise SourceError(f"labels of svmlight may be none; got {shorten(self.labels)}")
        self.guessed = ("zero_based",) if self.zero_based is None else ()
        if self.group not in (None, "qid"):
            raise SourceError(f"the group of svmlight is qid; got group={shorten(self.group)}")
        self.plain = self.path
        samples.require_target(self.target)
        if self.unlabeled is not None:
            samples.require_number(self.unlabeled, self.path)

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
        lists = identity_of_lists(names=self.names, sample_names=self.sample_names)
        return fingerprint_of("svmlight", identity_of([self.path]), *settings, *lists)

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        start = head(Path(ready.plain), HEAD.value)
        if sizes := SIZES.match(start):  # XMC's, which counts labels and indices from 0
            ready.begin, d = sizes.end(), int(sizes[2])
            ready.zero_based = True if ready.zero_based is None else ready.zero_based
            ready.target, ready.n_features = ready.target or "multilabel", ready.n_features or d
        if ready.zero_based is None:
            ready.zero_based = ZERO.search(start) is not None
        if self.group is None and b" qid:" in start:
            message = (
                "%s: the query of each line (qid:) is left out: group=qid keeps it as its group"
            )
            log.warning(message, self.path)
        if self.names is not None:
            of = f"columns of {self.path}"
            ready.feature_names = read_names(self.names, self.n_features, of)
            ready.n_features = len(ready.feature_names)
        ready.names_file = str(Path(scratch) / f"{Path(self.path).name}-{self.fingerprint()}.names")
        return ready

    def pieces(self, size: int) -> list[tuple[int, int]]:
        pieces = super().pieces(size)
        pieces[0] = max(pieces[0][0], self.begin), pieces[0][1]
        if self.sample_names is not None:
            n = 0
            for piece in pieces:
                self.firsts[piece[0]] = n
                n += sum(1 for _ in _lines_of_samples(self.read_lines(piece)[1]))
            names = read_list(self.sample_names, "sample_names", n, f"samples of {self.path}")
            samples.write(self.names_file, {"name": samples.read("name", names, "row {}".format)})
        return pieces

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
        # too close to the middle between two float32 numbers, or whole numbers that lose digits
        exact = {entry: float(_number_at(raw, begin)) for entry, begin in unsure}
        for (_, begin), value in zip(unsure, exact.values(), strict=True):
            if not checks.fits_float32(np.array([value])).all():
                raise SourceError(self._error_message(5, start, raw, begin))
        if exact:
            values = values.astype(np.float64)
            values[list(exact)] = list(exact.values())
        numbers = {
            label: samples.parse_number(_number_at(raw, begin)) for label, begin in unsure_labels
        }
        for label, begin in unsure_labels:
            if numbers[label] in (np.inf, -np.inf):
                raise SourceError(self._error_message(1, start, raw, begin))
        width = int(indices.max()) + 1 if len(indices) else 0
        if self.n_features is not None and width > self.n_features:
            given = "n_features" if self.names is None else "names"
            raise SourceError(
                f"{self.path} has an index {width - bool(self.zero_based)}, but "
                f"{given}={'' if self.names is None else 'gives '}{self.n_features}: "
                f"{'raise' if self.names is None else 'complete'} {given}"
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

        def place(i: int) -> str:
            return f"{self.path}, line {_line_of_row(raw, i) + line_number(self.plain, start)}"

        columns = {"label": self._label_column(labels, numbers, counts, place)}
        if self.group is not None:
            if len(lacks := np.flatnonzero(queries < 0)):
                raise SourceError(f"{place(int(lacks[0]))}: no qid:, and group=qid asks for one")
            columns["group"] = samples.read("group", queries, place)
        if self.sample_names is not None:
            names = samples.open_columns(self.names_file)["name"]
            columns["name"] = names.slice(self.firsts[piece[0]], len(counts))
        return Rows(X, columns, None, place)

    def _error_message(self, code: int, start: int, raw: bytes, where: int) -> str:
        line = line_number(self.plain, start) + raw.count(b"\n", 0, where)
        token = re.match(rb"[^\s#]*", raw[where : where + 40])
        came = token[0].decode("latin-1") if token else ""
        return f"{self.path}, line {line}: {MESSAGES[code]}; got {came!r}"

    def _label_column(
        self, labels: Any, exact: dict[int, int | float], counts: Any, place: samples.Place
    ) -> Any:
        """Return the labels of lines, by their counts. `exact` replaces some inexact floats.

        Lines with at most one label have no lists of them, unless the target is multi-label.
        """
        values: Any = labels
        if any(isinstance(v, int) and abs(v) > samples.MAX_EXACT for v in exact.values()):
            values = labels.tolist()
            for label, value in exact.items():
                values[label] = value
        else:
            labels[list(exact)] = list(exact.values())
        if self.target == "multilabel" or counts.max(initial=0) > 1:
            ends = samples.from_numpy(np.append(0, np.cumsum(counts)))
            flat = samples.read("label", values, place)
            values = pa.LargeListArray.from_arrays(ends, flat)
        elif not counts.all():
            at = np.where(counts > 0, np.cumsum(counts) - 1, -1)
            flat = samples.read("label", values, place)
            values = flat.take(samples.from_numpy(at, at < 0))
        return samples.read("label", values, place, self.label_rules)


def _is_line(line: bytes) -> bool:
    """Return whether a line is meant as svmlight: a label, and pairs behind it up to a comment."""
    label, *entries = line.partition(b"#")[0].split() or [b""]
    if is_entry(label):  # a line without a label
        entries = [label, *entries]
    return bool(entries) and all(map(is_entry, entries))


def _line_of_row(raw: bytes, row: int) -> int:
    """Return the number of the line, from 0, of a row of a piece."""
    return next(itertools.islice(_lines_of_samples(raw), row, None))


def _lines_of_samples(raw: bytes) -> Iterator[int]:
    """Yield the numbers of the lines, from 0, that hold a sample."""
    lines = enumerate(io.BytesIO(raw))
    return (i for i, line in lines if line.partition(b"#")[0].strip())


def _number_at(raw: bytes, begin: int) -> str:
    return re.match(NUMBER, raw[begin : begin + 9999])[0].decode("ascii")  # type: ignore[index]  # it is one
