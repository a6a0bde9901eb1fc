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
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.storage.errors import SourceError
from bigfs.storage.messages import strip
from bigfs.storage.scaling import TFIDF
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import TextSource, seen_by_workers
from bigfs.storage.sources.samples import Columns, Place
from bigfs.storage.staging.named import Names, learn_names, number, save_named
from bigfs.storage.staging.scratch import RowBlock, read_once, save, save_samples
from bigfs.storage.staging.text.terms import AnalyzedDocuments, Documents, documents_of
from bigfs.storage.staging.text.tokens import FIRST_TERMS
from bigfs.storage.staging.text.weighting import Weighting
from bigfs.storage.words import UNSPACED
from bigfs.types import FloatArray

log = logging.getLogger("bigfs.storage")

SCRIPT_BYTES = 1 << 16  # of the first terms, which show their script


def vectorize(
    source: TextSource, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> tuple[list[RowBlock], Names, FloatArray]:
    """Return tf-idf blocks in the order of the pieces, their terms and the idf of these."""
    counted = count(source, pieces, weighting, scratch)
    is_plain = weighting.analyzer == "word" and weighting.token_pattern is None
    unspaced = _unspaced(counted) if is_plain else ""
    training = [block for block in counted if block.split != "test"] or counted
    n = sum(block.rows for block in training)
    least, most = (
        df if isinstance(df, int) else df * n for df in (weighting.min_df, weighting.max_df)
    )
    names, df = learn_names(counted, training, weighting.hashing, scratch, max(least, 1), most)
    if not names.size:
        at_most = weighting.max_df != 1.0
        raise SourceError(
            f"{source.path}: no term occurs in {weighting.min_df} "
            + (f"to {weighting.max_df} documents: " if at_most else "documents: ")
            + (unspaced or ("lower min_df, raise max_df" if at_most else "lower min_df"))
            + ("" if unspaced else " or add documents")
        )
    if unspaced:
        log.warning("%s: %s", source.path, unspaced)
    idf = np.log((1.0 + n) / (1.0 + df)) + 1.0
    return _weigh(counted, names, idf, weighting, scratch), names, idf


def _unspaced(counted: Sequence[RowBlock]) -> str:
    """Return what to do where most letters of the first terms are of scripts without blanks."""
    firsts = (Path(f"{part.path}.{kind}") for part in counted for kind in ("terms", "firsts"))
    with open(next((file for file in firsts if file.exists()), os.devnull), "rb") as lines:
        text = lines.read(SCRIPT_BYTES).decode("utf-8", "replace")
    if 2 * len(UNSPACED.findall(text)) <= len(text) - text.count("\n"):
        return ""
    return (
        "words end at blanks, and the script of most letters has none between words: count "
        "characters by analyzer=char and ngram_range=(1, 2), on the command line --analyzer char "
        "--ngram-range 1 2, or write blanks between the words first, as by jieba or pythainlp"
    )


def weigh_by(
    source: Any,
    pieces: Sequence[Any],
    weighting: Weighting,
    idf: FloatArray,
    terms: Iterable[bytes] | None,
    scratch: Path,
) -> list[RowBlock]:
    """Return tf-idf blocks by a vocabulary that was learned before: its lines, or None."""
    names = Names(len(idf), str(scratch / "vocabulary.terms"), terms is None)
    with open(names.lines, "wb") as out:
        out.writelines(terms or ())
    counted = count(source, pieces, weighting, scratch)
    return _weigh(counted, names, idf, weighting, scratch)


def _weigh(
    counted: Sequence[RowBlock], names: Names, idf: FloatArray, weighting: Weighting, scratch: Path
) -> list[RowBlock]:
    path = str(scratch / "idf")
    save(path, factors=idf)
    settings = {"weight": TFIDF, "sublinear_tf": weighting.sublinear_tf}
    return number(counted, names, (settings, path))


# --- count ----------------------------------------------------------------------------------------


def compile_kernels(ngram_range: tuple[int, int]) -> None:
    """Count more words than a table has room for at first, so that numba compiles the kernels."""
    documents = Documents(ngram_range)
    documents.add(" ".join(map(str, range(10_000, 10_001 + FIRST_TERMS))))
    documents.counted()


def count(
    source: Any, pieces: Sequence[Any], weighting: Weighting, scratch: Path
) -> list[RowBlock]:
    """Count the terms of each piece, which `source` reads as a `TextSource` does."""
    paths = [str(scratch / f"count-{i:06d}") for i in range(len(pieces))]
    stop_words = engine.Shared(weighting.listed_stop_words())
    blocks = engine.map_tiles(
        *(_count, pieces, source, weighting, stop_words), each=[paths], label="count terms"
    )
    return [*itertools.chain.from_iterable(blocks)]


def _count(
    piece: Any, path: str, source: Any, weighting: Weighting, stop_words: tuple[str, ...]
) -> list[RowBlock]:
    return read_once(path, lambda: _count_piece(piece, path, source, weighting, stop_words))


def _count_piece(
    piece: Any, path: str, source: Any, weighting: Weighting, stop_words: tuple[str, ...]
) -> list[RowBlock]:
    halves: dict[str | None, tuple[Documents | AnalyzedDocuments, list[int]]] = {}
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
                    halves[split] = documents_of(weighting, stop_words), []
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
    typed, blocks = source.labels_are_typed, []
    for split, (documents, rows) in halves.items():
        told = save_samples(f"{path}-{split}", columns, np.array(rows), place, typed)
        block = f"{path}-{split}", *documents.counted(), weighting.hashing, split, told
        blocks.append(save_named(*block))
    return blocks
