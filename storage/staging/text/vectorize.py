"""Text to tf-idf rows in blocks, equal to scikit-learn's TfidfVectorizer on the whole corpus.

    count   per piece: count tokens on a worker, write the counts and a sorted vocabulary
    merge   merge the sorted vocabularies as streams, keeping terms of min_df to max_df training
            documents
    weigh   per piece: (1 + ln tf) · idf, unit rows in float64, written as float32

With a split, the document frequencies come from the training documents alone, and with them the
vocabulary and idf = ln((1 + n) / (1 + df)) + 1. The corpus or two vocabularies are never held in
memory.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine
from bigfs.storage.errors import SourceError
from bigfs.storage.messages import strip
from bigfs.storage.scaling import unit_rows
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import TextSource, seen_by_workers
from bigfs.storage.sources.samples import Columns, Place
from bigfs.storage.staging.scratch import (
    RowBlock,
    Told,
    delete,
    forget,
    open_array,
    read_once,
    save,
    save_samples,
    write_block,
)
from bigfs.storage.staging.text.hashing import hash_names, name_buckets
from bigfs.storage.staging.text.terms import Documents
from bigfs.storage.staging.text.tokens import FIRST_TERMS
from bigfs.storage.staging.text.vocabularies import find_columns, merge_vocabularies
from bigfs.storage.staging.text.weighting import Weighting
from bigfs.storage.words import UNSPACED
from bigfs.types import AnyArray

log = logging.getLogger("bigfs.storage")

SCRIPT_BYTES = 1 << 16  # of the first terms, by which their script is told


class CountedBlock(NamedTuple):
    """Term counts of one split of one piece. The counts lie on scratch."""

    path: str
    split: str | None
    rows: int
    told: Told


class Vocabulary(NamedTuple):
    """Their number, the file of terms, sorted or the first ones hashed, and the idf on scratch."""

    size: int
    terms: str
    idf: str
    is_hashed: bool


def vectorize(
    source: TextSource, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> tuple[list[RowBlock], Vocabulary]:
    """Return tf-idf blocks in the order of the pieces, and their vocabulary."""
    counted = count(source, pieces, weighting, scratch)
    unspaced = _unspaced(counted)
    vocabulary = learn_vocabulary(counted, weighting, scratch)
    if not vocabulary.size:
        at_most = weighting.max_df != 1.0
        raise SourceError(
            f"{source.path}: no term occurs in {weighting.min_df} "
            + (f"to {weighting.max_df} documents: " if at_most else "documents: ")
            + (unspaced or ("lower min_df, raise max_df" if at_most else "lower min_df"))
            + ("" if unspaced else " or add documents")
        )
    if unspaced:
        log.warning("%s: %s", source.path, unspaced)
    return weigh(counted, vocabulary, weighting.sublinear_tf), vocabulary


def _unspaced(counted: Sequence[CountedBlock]) -> str:
    """Return what to do where most letters of the first terms are of scripts without blanks."""
    firsts = (Path(f"{part.path}.{kind}") for part in counted for kind in ("terms", "firsts"))
    with open(next((file for file in firsts if file.exists()), os.devnull), "rb") as lines:
        text = lines.read(SCRIPT_BYTES).decode("utf-8", "replace")
    if 2 * len(UNSPACED.findall(text)) <= len(text) - text.count("\n"):
        return ""
    return (
        "words end at blanks, and the script of most letters has none between words: write blanks "
        "between the words first, as by jieba or pythainlp"
    )


def weigh(
    counted: Sequence[CountedBlock], vocabulary: Vocabulary, sublinear_tf: bool
) -> list[RowBlock]:
    blocks = engine.map_tiles(_weigh_block, counted, vocabulary, sublinear_tf, label="weigh terms")
    for folder in {Path(part.path).parent for part in counted}:
        forget(folder)
    delete(counted, "counts.npy", "terms_of.npy", "starts.npy")
    return blocks


def weigh_by(
    source: Any,
    pieces: Sequence[Any],
    weighting: Weighting,
    idf: AnyArray,
    terms: Iterable[bytes] | None,
    scratch: Path,
) -> list[RowBlock]:
    """Return tf-idf blocks by a vocabulary that was learned before: its lines, or None."""
    path = str(scratch / "vocabulary")
    save(path, idf=idf)
    with open(f"{path}.terms", "wb") as out:
        out.writelines(terms or ())
    vocabulary = Vocabulary(len(idf), f"{path}.terms", path, terms is None)
    counted = count(source, pieces, weighting, scratch)
    return weigh(counted, vocabulary, weighting.sublinear_tf)


# --- count ----------------------------------------------------------------------------------------


def compile_kernels(ngram_range: tuple[int, int]) -> None:
    """Count more words than a table has room for at first, so that numba compiles the kernels."""
    documents = Documents(ngram_range)
    documents.add(" ".join(map(str, range(10_000, 10_001 + FIRST_TERMS))))
    documents.counted()


def count(
    source: Any, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> list[CountedBlock]:
    """Count the terms of each piece, which `source` reads as a `TextSource` does."""
    targets = [str(scratch / f"count-{i:06d}") for i in range(len(pieces))]
    stop_words = engine.Shared(weighting.listed_stop_words())
    blocks = engine.map_tiles(
        *(_count, pieces, source, weighting, stop_words), each=[targets], label="count terms"
    )
    return [block for piece in blocks for block in piece]


def _count(
    piece: Any, target: str, source: Any, weighting: Weighting, stop_words: tuple[str, ...]
) -> list[CountedBlock]:
    return read_once(
        target, CountedBlock, lambda: _count_piece(piece, target, source, weighting, stop_words)
    )


def _count_piece(
    piece: Any, target: str, source: Any, weighting: Weighting, stop_words: tuple[str, ...]
) -> list[CountedBlock]:
    halves: dict[str | None, tuple[Documents, list[int]]] = {}
    parts: list[Columns] = []
    places: list[tuple[int, Place]] = []
    with seen_by_workers(getattr(source, "path", "the source")):
        n = 0
        for texts, told, place in source.read(piece):
            columns = dict(told)
            splits = columns.pop("split", None)
            known = itertools.repeat(None) if splits is None else splits.to_pylist()
            first = n
            for text, split in zip(texts, known, strict=False):
                if split not in halves:
                    halves[split] = Documents(weighting.ngram_range, stop_words), []
                halves[split][0].add(strip(text, weighting.remove or ()))
                halves[split][1].append(n)
                n += 1
            parts.append(columns)
            places.append((n - first, place))
    if not n:
        return []
    columns, place = samples.join(parts, places), samples.place_in(places)
    if None in halves and len(halves) > 1:
        raise samples.missing_split(place(halves[None][1][0]))
    typed = source.labels_are_typed
    return [
        _count_documents(
            f"{target}-{split}",
            split,
            documents,
            save_samples(
                f"{target}-{split}",
                samples.take(columns, np.array(rows)),
                len(rows),
                partial(_place_of, place, rows),
                typed,
            ),
            weighting.hashing,
        )
        for split, (documents, rows) in halves.items()
    ]


def _place_of(place: Place, rows: list[int], i: int) -> object:
    return place(rows[i])


def _count_documents(
    path: str, split: str | None, documents: Documents, told: Told, hashing: int | None
) -> CountedBlock:
    rows = len(documents)
    lines, indptr, indices, counts, df = documents.counted()
    if hashing:
        X = sp.csr_array((counts, indices, indptr), shape=(rows, len(df)))
        X = hash_names(path, lines, X, hashing)
        indptr, indices, counts = X.indptr, X.indices.astype(np.int32), X.data
        df = np.bincount(indices, minlength=X.shape[1]).astype(np.int32)
    else:
        Path(f"{path}.terms").write_bytes(lines.data)
    save(path, counts=counts, terms_of=indices, starts=indptr, df=df)
    return CountedBlock(path, split, rows, told)


# --- merge ----------------------------------------------------------------------------------------


def learn_vocabulary(
    counted: Sequence[CountedBlock], weighting: Weighting, scratch: Path
) -> Vocabulary:
    """Return the terms of the training documents that are neither too rare nor too frequent."""
    training = [part for part in counted if part.split != "test"] or counted
    n = sum(part.rows for part in training)
    terms = scratch / "vocabulary.terms"
    if weighting.hashing:
        df = np.zeros(weighting.hashing, dtype=np.int64)
        for part in training:
            df[open_array(part.path, "hashed")] += open_array(part.path, "df")
        name_buckets(counted, weighting.hashing, terms)
    else:
        least, most = (
            df if isinstance(df, int) else df * n for df in (weighting.min_df, weighting.max_df)
        )
        paths = [part.path for part in training]
        df = merge_vocabularies(paths, terms, scratch, max(least, 1), most)
    idf = str(scratch / "vocabulary")
    save(idf, idf=np.log((1.0 + n) / (1.0 + df)) + 1.0)
    return Vocabulary(len(df), str(terms), idf, weighting.hashing is not None)


# --- weigh ----------------------------------------------------------------------------------------


def _weigh_block(part: CountedBlock, vocabulary: Vocabulary, sublinear_tf: bool) -> RowBlock:
    """Weigh the counts of a block, and write its rows."""
    indptr, indices, counts = (
        np.asarray(open_array(part.path, name)) for name in ("starts", "terms_of", "counts")
    )
    if vocabulary.is_hashed:
        column = open_array(part.path, "hashed")
    else:  # −1 for terms outside the vocabulary
        lines = np.fromfile(f"{part.path}.terms", dtype=np.uint8)
        column = find_columns(lines, len(open_array(part.path, "df")), vocabulary.terms)
    columns = column.astype(np.int32)[indices]
    known = columns >= 0
    columns, counts = columns[known], counts[known]
    tf = np.arange(counts.max(initial=0) + 1, dtype=np.float64)
    weight = np.log(np.maximum(tf, 1)) + 1.0 if sublinear_tf else tf
    values = weight[counts] * open_array(vocabulary.idf, "idf")[columns]
    starts = np.append(np.int32(0), np.cumsum(known, dtype=np.int32))[indptr]
    unit_rows(starts, values)
    X = sp.csr_array((values, columns, starts), shape=(part.rows, vocabulary.size))
    return write_block(part.path, X, part.split, part.told)
