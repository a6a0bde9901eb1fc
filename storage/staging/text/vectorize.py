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

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.storage.errors import SourceError
from bigfs.storage.messages import strip
from bigfs.storage.scaling import TFIDF
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import Rows, TextSource
from bigfs.storage.sources.samples import Columns, Place
from bigfs.storage.staging.named import Names, learn_names, number, read_blocks
from bigfs.storage.staging.scratch import RowBlock, save
from bigfs.storage.staging.text.terms import Documents, documents_of
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
    counted = read_blocks(CountedTexts(source, weighting), pieces, scratch, "count terms")
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
    counted = read_blocks(CountedTexts(source, weighting), pieces, scratch, "count terms")
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


class CountedTexts:
    """The documents of a source as rows of counts, whose columns are named by the terms."""

    def __init__(self, source: Any, weighting: Weighting) -> None:
        self.source, self.hashing = source, weighting.hashing
        self.stop_words = weighting.listed_stop_words()
        self.weighting = replace(weighting, stop_words=None)
        self.path = getattr(source, "path", "the source")
        self.labels_are_typed = source.labels_are_typed

    def read(self, piece: Any) -> Rows:
        """Count the terms of the documents of a piece."""
        documents, n = documents_of(self.weighting, self.stop_words), 0
        parts: list[Columns] = []
        places: list[tuple[int, Place]] = []
        for texts, told, place in self.source.read(piece):
            first = n
            for text in texts:
                documents.add(strip(text, self.weighting.remove or ()))
                n += 1
            parts.append(told)
            places.append((n - first, place))
        if not n:
            return Rows(sp.csr_array((0, 0)), terms=np.empty(0, np.uint8))
        lines, X = documents.counted()
        return Rows(X, samples.join(parts, places), lines, samples.place_in(places))
