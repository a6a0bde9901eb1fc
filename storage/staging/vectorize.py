"""Text to tf-idf rows in blocks, equal to scikit-learn's TfidfVectorizer on the whole corpus.

    count   per piece: count tokens on a worker, spill the counts and a sorted vocabulary
    merge   merge the sorted vocabularies as streams; a term needs min_df training documents
    weigh   per piece: (1 + ln tf) · idf, unit rows in float64, spilled as float32

With a split, the document frequencies come from the training documents alone, and with them the
vocabulary and idf = ln((1 + n) / (1 + df)) + 1. The corpus or two vocabularies are never held in
memory.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.types import AnyArray
from storage.errors import SourceError
from storage.sources.base import Document, TextSource
from storage.staging.labels import save_labels
from storage.staging.scratch import LabelKind, Spill, open_array, save, save_names, spill

MERGE_FAN_IN = 128  # vocabularies, and so open files, per merge


@dataclass(frozen=True)
class Weighting:
    """Settings of tf-idf. `hashing` is the number of hashed columns; None learns a vocabulary."""

    min_df: int | float = 2
    sublinear_tf: bool = True
    hashing: int | None = None


class CountedBlock(NamedTuple):
    """Term counts of one split of one piece. The counts lie on scratch."""

    path: str
    split: str | None
    rows: int
    labels: LabelKind | None


class Vocabulary(NamedTuple):
    """The columns: their number, the sorted file of terms (None if hashed), and the idf on scratch.

    `terms` has one term per line. `idf` is the path that `open_array` takes.
    """

    size: int
    terms: str | None
    idf: str


def vectorize(
    source: TextSource, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> tuple[list[Spill], Vocabulary]:
    """Return spilled tf-idf blocks in the order of the pieces, and their vocabulary.

    Raises
    ------
    SourceError
        No term occurs in `min_df` documents.
    """
    counted = count(source, pieces, weighting, scratch)
    training = [part for part in counted if part.split != "test"] or counted
    n = sum(part.rows for part in training)
    least = weighting.min_df if isinstance(weighting.min_df, int) else weighting.min_df * n
    merge = _hashed_merge(weighting.hashing) if weighting.hashing else _merge
    vocabulary = merge(counted, {part.path for part in training}, n, least, scratch)
    if not vocabulary.size:
        raise SourceError(
            f"{source.path}: no term occurs in {weighting.min_df} documents: "
            f"lower min_df or add documents"
        )
    return weigh(counted, vocabulary, weighting.sublinear_tf), vocabulary


def weigh(
    counted: Sequence[CountedBlock], vocabulary: Vocabulary, sublinear_tf: bool
) -> list[Spill]:
    return engine.map_tiles(_weigh, counted, vocabulary, sublinear_tf, label="weigh terms")


# --- count ----------------------------------------------------------------------------------------


def count(
    source: TextSource, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> list[CountedBlock]:
    """Count the terms of each piece on the workers."""
    targets = [str(scratch / f"count-{i:06d}") for i in range(len(pieces))]
    blocks = engine.map_tiles(
        _count, pieces, source, weighting, each=[targets], label="count terms"
    )
    return [block for piece in blocks for block in piece]


def _count(piece: Any, target: str, source: TextSource, weighting: Weighting) -> list[CountedBlock]:
    by_split: dict[str | None, list[Document]] = {}
    for document in source.read(piece):
        by_split.setdefault(document.split, []).append(document)
    return [
        _count_documents(f"{target}-{split}", split, documents, weighting)
        for split, documents in by_split.items()
    ]


def _count_documents(
    path: str, split: str | None, documents: list[Document], weighting: Weighting
) -> CountedBlock:
    from sklearn.feature_extraction.text import CountVectorizer  # takes 60 MB

    analyze = CountVectorizer().build_analyzer()
    column: dict[str, int] = {}
    indices: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    for document in documents:
        tf = Counter(analyze(document.text))
        indices.extend(column.setdefault(term, len(column)) for term in tf)
        counts.extend(tf.values())
        lengths.append(len(tf))
    terms = sorted(column)
    rank = np.empty(len(terms), dtype=np.int64)
    rank[[column[term] for term in terms]] = np.arange(len(terms))
    X = sp.csr_array(
        (
            np.array(counts, dtype=np.int32),
            rank[np.array(indices, dtype=np.int64)],
            np.cumsum([0, *lengths]),
        ),
        shape=(len(documents), len(terms)),
    )
    if weighting.hashing:
        from sklearn.utils import murmurhash3_32

        hashed = [murmurhash3_32(term, positive=True) % weighting.hashing for term in terms]
        present, position = np.unique(np.array(hashed, dtype=np.int64), return_inverse=True)
        X = sp.csr_array(
            (X.data, position[X.indices], X.indptr), shape=(len(documents), len(present))
        )
        X.sum_duplicates()
        save(path, hashed=present)
    else:
        Path(f"{path}.terms").write_text(
            "".join(f"{term}\n" for term in terms), encoding="utf-8", newline=""
        )
    X.sort_indices()
    df = np.bincount(X.indices, minlength=X.shape[1]).astype(np.int32)
    save(path, counts=X.data, indices=X.indices.astype(np.int32), indptr=X.indptr, df=df)
    save_names(path, [d.name for d in documents])
    return CountedBlock(
        path, split, len(documents), save_labels(path, [d.label for d in documents])
    )


# --- merge ----------------------------------------------------------------------------------------


def _read_terms(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line[:-1]


def _with_df(path: str, counts: bool) -> Iterator[tuple[str, int]]:
    df = np.array(open_array(path, "df")) * counts
    return zip(_read_terms(f"{path}.terms"), df.tolist(), strict=True)


def _merge(
    counted: Sequence[CountedBlock], training: set[str], n: int, least: float, scratch: Path
) -> Vocabulary:
    """Merge the vocabularies, and keep the terms of at least `least` of n training documents.

    At most MERGE_FAN_IN files are open at a time.
    """
    parts = [(part.path, part.path in training) for part in counted]
    for level in itertools.count():
        if len(parts) <= MERGE_FAN_IN:
            break
        groups = [parts[i : i + MERGE_FAN_IN] for i in range(0, len(parts), MERGE_FAN_IN)]
        merged = [str(scratch / f"merged-{level}-{i}") for i in range(len(groups))]
        engine.map_tiles(_merge_group, groups, each=[merged], label="merge terms")
        parts = [(path, True) for path in merged]
    df = _merge_files(parts, scratch / "vocabulary.terms", max(least, 1))
    return Vocabulary(len(df), str(scratch / "vocabulary.terms"), _save_idf(df, n, scratch))


def _merge_group(parts: list[tuple[str, bool]], target: str) -> None:
    save(target, df=_merge_files(parts, Path(f"{target}.terms"), 0))


def _merge_files(parts: Sequence[tuple[str, bool]], terms: Path, least: float) -> AnyArray:
    """Write the sorted terms of some vocabularies that occur in at least `least` documents.

    Returns the document frequency per term.
    """
    frequencies = []
    with open(terms, "w", encoding="utf-8", newline="") as out:
        for term, group in groupby(
            heapq.merge(*(_with_df(*part) for part in parts), key=itemgetter(0)), key=itemgetter(0)
        ):
            df = sum(count for _, count in group)
            if df >= least:
                out.write(f"{term}\n")
                frequencies.append(df)
    return np.array(frequencies, dtype=np.int64)


def _hashed_merge(size: int) -> Callable[..., Vocabulary]:
    def merge(
        counted: Sequence[CountedBlock], training: set[str], n: int, least: float, scratch: Path
    ) -> Vocabulary:
        df = np.zeros(size, dtype=np.int64)
        for part in counted:
            if part.path in training:
                df[open_array(part.path, "hashed")] += open_array(part.path, "df")
        return Vocabulary(size, None, _save_idf(df, n, scratch))

    return merge


def _save_idf(df: AnyArray, n: int, scratch: Path) -> str:
    idf = np.log((1.0 + n) / (1.0 + df)) + 1.0
    save(str(scratch / "vocabulary"), idf=idf)
    return str(scratch / "vocabulary")


# --- weigh ----------------------------------------------------------------------------------------


def _weigh(part: CountedBlock, vocabulary: Vocabulary, sublinear_tf: bool) -> Spill:
    from sklearn.preprocessing import normalize

    counts, indptr = np.array(open_array(part.path, "counts")), open_array(part.path, "indptr")
    column = _columns_of(part, vocabulary)[open_array(part.path, "indices")]
    kept = column >= 0
    lengths = np.concatenate([[0], np.cumsum(kept)])[indptr]
    tf = counts[kept].astype(np.float64)
    idf = open_array(vocabulary.idf, "idf")
    weights = (np.log(tf) + 1.0 if sublinear_tf else tf) * idf[column[kept]]
    X = sp.csr_array((weights, column[kept], lengths), shape=(part.rows, vocabulary.size))
    return spill(part.path, normalize(X), part.split, part.labels, named=True)


def _columns_of(part: CountedBlock, vocabulary: Vocabulary) -> AnyArray:
    """Return the column of each term of a block, −1 for terms outside the vocabulary."""
    if vocabulary.terms is None:
        return np.array(open_array(part.path, "hashed"))
    index = {term: i for i, term in enumerate(_read_terms(f"{part.path}.terms"))}
    column = np.full(len(index), -1, dtype=np.int64)
    for j, term in enumerate(_read_terms(vocabulary.terms)):
        i = index.get(term)
        if i is not None:
            column[i] = j
    return column
