"""Text to tf-idf rows, block by block, as scikit-learn's TfidfVectorizer would on the whole corpus.

    count   each piece: tokens counted on a worker, its own sorted vocabulary spilled as text
    merge   the sorted vocabularies are merged as streams; a term needs min_df training documents
    weigh   each piece: (1 + ln tf) · idf, unit rows in float64, spilled as float32

Document frequencies, and so the vocabulary and idf = ln((1 + n) / (1 + df)) + 1, come from the
training documents where there is a split. Nothing here holds the corpus or two vocabularies.
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
from storage.staging.scratch import Labels, Spill, open_array, save, save_names, spill

FAN = 128  # vocabularies that are merged at a time: as many files are open


@dataclass(frozen=True)
class Weighting:
    """How documents become rows. `hashing`: the number of hashed columns, None for a vocabulary."""

    min_df: int | float = 2
    sublinear_tf: bool = True
    hashing: int | None = None


class Counted(NamedTuple):
    """The documents of one split of one piece, counted: spilled counts, and what stays small."""

    path: str
    split: str | None
    rows: int
    labels: Labels | None


class Vocabulary(NamedTuple):
    """d columns; `terms` is a sorted file of one term a line (None: hashed), `idf` a mapped
    array.
    """

    size: int
    terms: str | None
    idf: str


def vectorize(
    source: TextSource, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> tuple[list[Spill], Vocabulary]:
    """Spilled tf-idf blocks in the order of the pieces, and their vocabulary.

    Raises
    ------
    SourceError : no term is in `min_df` documents.
    """
    counted = count(source, pieces, weighting, scratch)
    fitted = [part for part in counted if part.split != "test"] or counted
    n = sum(part.rows for part in fitted)
    least = weighting.min_df if isinstance(weighting.min_df, int) else weighting.min_df * n
    merge = _hashed(weighting.hashing) if weighting.hashing else _merge
    vocabulary = merge(counted, {part.path for part in fitted}, n, least, scratch)
    if not vocabulary.size:
        raise SourceError(
            f"{source.path}: no term occurs in {weighting.min_df} documents: "
            f"lower min_df or add documents"
        )
    return weigh(counted, vocabulary, weighting.sublinear_tf), vocabulary


def weigh(counted: Sequence[Counted], vocabulary: Vocabulary, sublinear_tf: bool) -> list[Spill]:
    return engine.map_tiles(_weigh, counted, vocabulary, sublinear_tf, label="weigh terms")


# --- count ----------------------------------------------------------------------------------------


def count(
    source: TextSource, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> list[Counted]:
    targets = [str(scratch / f"count-{i:06d}") for i in range(len(pieces))]
    found = engine.map_tiles(_count, pieces, source, weighting, each=[targets], label="count terms")
    return [part for parts in found for part in parts]


def _count(piece: Any, target: str, source: TextSource, weighting: Weighting) -> list[Counted]:
    by_split: dict[str | None, list[Document]] = {}
    for document in source.read(piece):
        by_split.setdefault(document.split, []).append(document)
    return [
        _count_documents(f"{target}-{split}", split, documents, weighting)
        for split, documents in by_split.items()
    ]


def _count_documents(
    path: str, split: str | None, documents: list[Document], weighting: Weighting
) -> Counted:
    from sklearn.feature_extraction.text import CountVectorizer  # 60 MB that only text needs

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
    return Counted(path, split, len(documents), save_labels(path, [d.label for d in documents]))


# --- merge ----------------------------------------------------------------------------------------


def _read_terms(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line[:-1]


def _with_df(path: str, counts: bool) -> Iterator[tuple[str, int]]:
    df = np.array(open_array(path, "df")) * counts
    return zip(_read_terms(f"{path}.terms"), df.tolist(), strict=True)


def _merge(
    counted: Sequence[Counted], fitted: set[str], n: int, least: float, scratch: Path
) -> Vocabulary:
    """The sorted terms of at least `least` of the n fitted documents; not all pieces' files are
    open at once.
    """
    parts = [(part.path, part.path in fitted) for part in counted]
    for level in itertools.count():
        if len(parts) <= FAN:
            break
        groups = [parts[i : i + FAN] for i in range(0, len(parts), FAN)]
        merged = [str(scratch / f"merged-{level}-{i}") for i in range(len(groups))]
        engine.map_tiles(_merge_group, groups, each=[merged], label="merge terms")
        parts = [(path, True) for path in merged]
    kept = _merged(parts, scratch / "vocabulary.terms", max(least, 1))
    return Vocabulary(len(kept), str(scratch / "vocabulary.terms"), _save_idf(kept, n, scratch))


def _merge_group(parts: list[tuple[str, bool]], target: str) -> None:
    save(target, df=_merged(parts, Path(f"{target}.terms"), 0))


def _merged(parts: Sequence[tuple[str, bool]], terms: Path, least: float) -> AnyArray:
    """Write the terms of some vocabularies, sorted, that are in at least `least` documents; returns
    in how many.
    """
    kept = []
    with open(terms, "w", encoding="utf-8", newline="") as out:
        for term, group in groupby(
            heapq.merge(*(_with_df(*part) for part in parts), key=itemgetter(0)), key=itemgetter(0)
        ):
            df = sum(count for _, count in group)
            if df >= least:
                out.write(f"{term}\n")
                kept.append(df)
    return np.array(kept, dtype=np.int64)


def _hashed(size: int) -> Callable[..., Vocabulary]:
    def merge(
        counted: Sequence[Counted], fitted: set[str], n: int, least: float, scratch: Path
    ) -> Vocabulary:
        df = np.zeros(size, dtype=np.int64)
        for part in counted:
            if part.path in fitted:
                df[open_array(part.path, "hashed")] += open_array(part.path, "df")
        return Vocabulary(size, None, _save_idf(df, n, scratch))

    return merge


def _save_idf(df: AnyArray, n: int, scratch: Path) -> str:
    idf = np.log((1.0 + n) / (1.0 + df)) + 1.0
    save(str(scratch / "vocabulary"), idf=idf)
    return str(scratch / "vocabulary")


# --- weigh ----------------------------------------------------------------------------------------


def _weigh(part: Counted, vocabulary: Vocabulary, sublinear_tf: bool) -> Spill:
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


def _columns_of(part: Counted, vocabulary: Vocabulary) -> AnyArray:
    """The column of each of the block's own terms; −1 for terms that are not kept."""
    if vocabulary.terms is None:
        return np.array(open_array(part.path, "hashed"))
    own = {term: i for i, term in enumerate(_read_terms(f"{part.path}.terms"))}
    column = np.full(len(own), -1, dtype=np.int64)
    for j, term in enumerate(_read_terms(vocabulary.terms)):
        i = own.get(term)
        if i is not None:
            column[i] = j
    return column
