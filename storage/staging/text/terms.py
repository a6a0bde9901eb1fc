"""Count the terms of documents, exactly as scikit-learn's CountVectorizer does.

A term is a token, or n tokens that follow each other without the stop words, joined by spaces.
Terms are written in UTF-8, each followed by a newline. Word characters are all greater than the
space, which is greater than the newline. So the bytes of lines sort as Python sorts the terms, and
n-grams sort as tuples of tokens.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from bigfs.storage.staging.text import tokens as kernels
from bigfs.storage.staging.text.tokens import mix, read_tokens, sorted_tokens
from bigfs.storage.staging.text.weighting import Weighting, is_token
from bigfs.types import AnyArray

NEWLINE, SPACE = 10, 32
FREE = -1  # a slot without a gram


class Documents:
    """A buffer of documents in UTF-8, and the range of the number of tokens of their terms."""

    def __init__(
        self, ngram_range: tuple[int, int] = (1, 1), stop_words: Collection[str] = ()
    ) -> None:
        self.ngram_range = ngram_range
        # the kernel reads the stop words as a document before the others
        self.raw = bytearray("\n".join(filter(is_token, stop_words)), "utf-8")
        self.bounds = array("q", [0, len(self.raw)])

    def __len__(self) -> int:
        return len(self.bounds) - 2

    def add(self, text: str) -> None:
        """Append a document."""
        if not text.isascii() and any(c in text for c in kernels.tables().special):
            text = text.lower()
        self.raw += text.encode("utf-8", "surrogatepass")
        self.bounds.append(len(self.raw))

    def counted(self) -> tuple[AnyArray, sp.csr_array]:
        """Return the sorted terms, each followed by a newline, and their counts (n × terms)."""
        texts, starts, terms, ends, n_stops = read_tokens(
            np.frombuffer(self.raw, dtype=np.uint8), np.array(self.bounds)
        )
        order = sorted_tokens(texts, starts)
        size = len(order)
        heads = tails = np.empty(0, dtype=np.int32)
        if self.ngram_range == (1, 1):
            order = order[order >= n_stops]
        else:
            heads, tails, terms, ends = number_grams(
                terms, ends, size, *self.ngram_range, kernels.hash_keys()
            )
            grams = np.flatnonzero(np.bincount(terms, minlength=size + len(heads)))
            ranks = rank_tokens(grams, heads, tails, inverse(order, size), self.ngram_range[1])
            order = grams[np.lexsort(ranks[::-1])]
        lines = lines_of(texts, starts, heads, tails, order)
        terms = inverse(order, size + len(heads))[terms]
        # two transpositions sort the terms of each row, and bring equal ones together
        X = sp.csr_array(
            (np.ones(len(terms), np.int32), terms, np.append(0, ends).astype(np.int32)),
            shape=(len(self), len(order)),
        ).tocsc()
        X.sum_duplicates()
        return lines, X.tocsr()


class AnalyzedDocuments:
    """Documents whose terms scikit-learn finds, for options that the kernels do not have.

    A term over a line break is left out, as names are single lines.
    """

    def __init__(self, weighting: Weighting, stop_words: Collection[str] = ()) -> None:
        alone = weighting.analyze((1, 1))  # as a text, a stop word must be one term: itself
        stops = [word for word in stop_words if alone(word) == [word]]
        self.analyze = weighting.analyze(weighting.ngram_range, stops)
        self.numbers: dict[bytes, int] = {}  # of the terms, each followed by a newline
        self.terms, self.counts, self.ends = array("i"), array("i"), array("i", [0])

    def add(self, text: str) -> None:
        """Count the terms of a document."""
        for term, count in Counter(self.analyze(text)).items():
            if term and "\n" not in term:
                line = f"{term}\n".encode("utf-8", "surrogatepass")
                self.terms.append(self.numbers.setdefault(line, len(self.numbers)))
                self.counts.append(count)
        self.ends.append(len(self.terms))

    def counted(self) -> tuple[AnyArray, sp.csr_array]:
        """Return what `Documents.counted` returns."""
        lines = list(self.numbers)
        order = sorted(range(len(lines)), key=lines.__getitem__)
        terms = inverse(np.array(order, dtype=np.int32), len(lines))[np.array(self.terms)]
        shape = len(self.ends) - 1, len(lines)
        X = sp.csr_array((np.array(self.counts), terms, np.array(self.ends)), shape=shape)
        X.sort_indices()
        return np.frombuffer(b"".join(map(lines.__getitem__, order)), dtype=np.uint8), X


def documents_of(
    weighting: Weighting, stop_words: Collection[str] = ()
) -> Documents | AnalyzedDocuments:
    """Return a buffer for documents, which counts the terms of a weighting."""
    if weighting.is_analyzed:
        return AnalyzedDocuments(weighting, stop_words)
    return Documents(weighting.ngram_range, stop_words)


def inverse(order: AnyArray, size: int) -> AnyArray:
    """Return the place in `order` of each number below `size` that is in it."""
    rank = np.empty(size, dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank


def rank_tokens(
    grams: AnyArray, heads: AnyArray, tails: AnyArray, rank: AnyArray, largest: int
) -> AnyArray:
    """Return the ranks, from 1, of the tokens of grams: (largest, len(grams)), padded by zeros."""
    size, out = len(rank), np.zeros((largest, len(grams)), dtype=np.int32)
    rest, lengths = grams.copy(), np.ones(len(grams), dtype=np.int32)
    for _ in range(largest - 1):
        longer = rest >= size
        lengths += longer
        rest[longer] = heads[rest[longer] - size]
    out[0] = rank[rest] + 1
    rest = grams.copy()
    for place in range(largest - 1, 0, -1):
        ends = lengths > place  # with a token at this place
        gram = rest[ends] - size
        out[place, ends], rest[ends] = rank[tails[gram]] + 1, heads[gram]
    return out


# --- kernels --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def number_grams(
    tokens: AnyArray, ends: AnyArray, size: int, smallest: int, largest: int, keys: AnyArray
) -> Any:
    """Number the n-grams of `smallest` to `largest` consecutive tokens in each document.

    Gram g is the token g if g < `size`. Else it is the gram ``heads[g - size]``, followed by the
    token ``tails[g - size]``. Returns `heads`, `tails`, the grams of all documents, and where each
    document ends in them.
    """
    most, begin = 0, 0  # grams of two tokens or more
    for document in range(len(ends)):
        for n in range(2, largest + 1):
            most += max(ends[document] - begin - n + 1, 0)
        begin = ends[document]
    out = np.empty(len(tokens) + most, dtype=np.int32)
    out_ends = np.empty(len(ends), dtype=np.int64)
    n_slots = 2
    while n_slots < 2 * most:
        n_slots *= 2
    mask = np.uint64(n_slots - 1)
    slots = np.full(n_slots, FREE, dtype=np.int32)
    heads, tails = np.empty(most, dtype=np.int32), np.empty(most, dtype=np.int32)
    current = np.empty(largest, dtype=np.int64)  # gram of n + 1 tokens that ends here
    grams, written, begin = 0, 0, 0
    for document in range(len(ends)):
        stop = ends[document]
        for place in range(begin, stop):
            token = np.int64(tokens[place])
            for n in range(min(largest, place - begin + 1), 0, -1):
                gram = token
                if n > 1:
                    head = current[n - 2]
                    code = np.uint64(head) * keys[0] + np.uint64(token) * keys[1]
                    slot = mix(code) & mask
                    while slots[slot] != FREE and (
                        heads[slots[slot]] != head or tails[slots[slot]] != token
                    ):
                        slot = (slot + np.uint64(1)) & mask
                    if slots[slot] == FREE:
                        slots[slot], heads[grams], tails[grams] = grams, head, token
                        grams += 1
                    gram = size + np.int64(slots[slot])
                current[n - 1] = gram
                if n >= smallest:
                    out[written] = gram
                    written += 1
        begin = stop
        out_ends[document] = written
    return heads[:grams], tails[:grams], out[:written], out_ends


@njit(cache=True, nogil=True)
def lines_of(
    terms: AnyArray, starts: AnyArray, heads: AnyArray, tails: AnyArray, order: AnyArray
) -> AnyArray:
    """Return the grams in the given order, each followed by a newline."""
    size = len(starts) - 1
    length = 0
    for i in range(len(order)):
        gram = np.int64(order[i])
        while gram >= size:
            tail = tails[gram - size]
            length += starts[tail + 1] - starts[tail] + 1
            gram = np.int64(heads[gram - size])
        length += starts[gram + 1] - starts[gram] + 1
    out = np.empty(length, dtype=np.uint8)
    end = length
    for i in range(len(order) - 1, -1, -1):  # backward, as a gram knows its last token
        gram, last = np.int64(order[i]), NEWLINE
        while True:
            token = np.int64(tails[gram - size]) if gram >= size else gram
            end -= 1
            out[end] = last
            for k in range(starts[token + 1] - 1, starts[token] - 1, -1):
                end -= 1
                out[end] = terms[k]
            if gram < size:
                break
            gram, last = np.int64(heads[gram - size]), SPACE
    return out
