"""How generated corpora are generated: each block of rows a pure function of (constants, seed,
block).

A document of class y has a log-normal number of tokens. A token is, with the document's topical
share, one of its topic's planted terms (a quarter of them: of one other topic's), and else a term
of the background, whose rank r follows Zipf's law with a cutoff, p(r) ∝ (r + shift)^−exponent.
The continuous law has its inverse in closed form, so no table of d entries is needed, and columns
are ranks scattered by an affine bijection of 0 … d − 1. Values are 1 + log(count), times the idf of
the document frequencies that the model itself has (no second pass), in rows of unit length.

Each fixed block of rows has its own counter-based stream, Philox keyed by (seed, block): the bytes
do not depend on who generates which rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri

from bigfs.types import AnyArray, FloatArray, IntArray

OTHER = 0.25  # of a document's topical tokens: they belong to one other topic
SLOTS = 4096  # to which the weights of a topic's terms are rounded
SHAPE_STREAM = 2**64 - 1  # the Philox key of what all blocks share


def stream(seed: int, key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, key], np.uint64)))


# --- documents ----------------------------------------------------------------------------------


class TextSpec(NamedTuple):
    """The constants of one generated text corpus.

    n, d : rows and terms of the real one.
    classes : names, and `prior`: their probabilities (None: equal).
    nnz : distinct terms a row, on average, of the real one; `tokens` (mean) is solved for it.
    tokens, spread : mean number of tokens, and the standard deviation of its logarithm.
    exponent, shift : of the background's Zipf law; the shift is the cutoff.
    planted : informative terms a class, `share` of tokens that are topical, on average.
    idf : whether values are weighted by it, as in the real one.
    block : rows a random stream (about 2^18 tokens).
    split : mark three documents of five "train", the others "test".
    words : of each class, what its planted terms are called; None: no feature has a name.
    """

    n: int
    d: int
    classes: Sequence[str]
    nnz: float
    tokens: float
    spread: float
    exponent: float
    shift: float
    planted: int
    share: float
    block: int
    prior: Sequence[float] | None = None
    idf: bool = True
    split: bool = False
    words: Sequence[Sequence[str]] | None = None


class TextGenerator:
    """The documents of one corpus and seed; keeps only what a block needs, nothing of n or (but for
    idf) d.
    """

    def __init__(self, spec: TextSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        c, d = len(spec.classes), spec.d
        rng = stream(seed, SHAPE_STREAM)
        self.n_features, self.bytes_per_row = d, 8 * spec.nnz
        prior = np.ones(c) if spec.prior is None else np.asarray(spec.prior)
        self.prior = prior / prior.sum()
        self.share = spec.share * np.linspace(1.5, 0.5, c)  # some topics are easy, some hard
        self.multiplier = _coprime(int(0.6180339887 * d), d)
        self.offset = int(rng.integers(d))
        # planted terms lie where background terms are neither in every document nor in hardly any
        ranks = d // 400 + rng.choice(
            max(d // 10, c * spec.planted), (c, spec.planted), replace=False
        )
        weights = 1 / (np.arange(spec.planted) + 1)
        slots = np.searchsorted(
            np.cumsum(weights / weights.sum())[:-1], (np.arange(SLOTS) + 0.5) / SLOTS
        )
        self.topic_ranks, self.topic_slots = ranks, ranks[:, slots]
        self.topic_weights = np.bincount(slots, minlength=spec.planted) / SLOTS
        self.planted = np.sort(self._column(ranks.ravel()))

    def _column(self, rank: IntArray) -> IntArray:
        return (rank * self.multiplier + self.offset) % self.spec.d

    @cached_property
    def _law(self) -> tuple[float, float, float]:
        """Power, low end and width: rank = (low + u · width)^(1/power) − shift."""
        power = 1 - self.spec.exponent
        low = self.spec.shift**power
        return power, low, (self.spec.d + self.spec.shift) ** power - low

    def background(self, rank: AnyArray) -> FloatArray:
        """The background's probability of a rank."""
        power, _, width = self._law
        edge = rank + self.spec.shift
        return ((edge + 1) ** power - edge**power) / width

    def document_frequency(self, rank: AnyArray) -> FloatArray:
        """The share of documents that hold the term of a rank, by the model (32 lengths; the mean
        share of topical tokens).
        """
        c = len(self.spec.classes)
        lengths = self._lengths(ndtri((np.arange(32) + 0.5) / 32))
        flat = self.background(rank) * (1 - self.prior @ self.share)
        frequency = np.mean([-np.expm1(-length * flat) for length in lengths], axis=0)
        order = np.argsort(rank)
        at = np.minimum(
            np.searchsorted(rank, self.topic_ranks.ravel(), sorter=order), len(rank) - 1
        )
        hit = rank[order[at]] == self.topic_ranks.ravel()
        topic, term = (index.ravel()[hit] for index in np.indices(self.topic_ranks.shape))
        own = np.arange(c)[:, None] == topic  # (c, hits)
        mine = (
            np.where(own, 1 - OTHER, OTHER / (c - 1))
            * self.share[:, None]
            * self.topic_weights[term]
        )
        present = self.background(self.topic_ranks.ravel()[hit]) * (1 - self.share[:, None]) + mine
        frequency[order[at[hit]]] = self.prior @ np.mean(
            [-np.expm1(-length * present) for length in lengths], axis=0
        )
        return frequency

    @cached_property
    def _idf(self) -> FloatArray:
        """By column: 1 − log(document frequency)."""
        ranks = np.arange(self.spec.d)
        idf = np.empty(self.spec.d)
        idf[self._column(ranks)] = 1 - np.log(self.document_frequency(ranks))
        return idf

    def _lengths(self, normal: AnyArray) -> IntArray:
        spread, mean = self.spec.spread, self.spec.tokens
        return np.clip(np.exp(np.log(mean) - spread**2 / 2 + spread * normal), 4, 20 * mean).astype(
            np.int64
        )

    def block(self, b: int) -> tuple[sp.csr_array, AnyArray]:
        spec, rows, c = self.spec, self.spec.block, len(self.spec.classes)
        rng = stream(self.seed, b)
        y = np.minimum(np.searchsorted(np.cumsum(self.prior), rng.random(rows)), c - 1)
        other = (y + 1 + (rng.random(rows) * (c - 1)).astype(np.int64)) % c
        share = self.share[y] * 2 * rng.beta(2, 2, rows)
        row = np.repeat(np.arange(rows), self._lengths(rng.standard_normal(rows)))
        column = self._column(self._ranks(rng.random(len(row)), row, y, other, share))
        cell = np.sort(row * spec.d + column)
        first = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]]))
        count = np.diff(first, append=len(cell))
        row, column = np.divmod(cell[first], spec.d)
        indptr = np.searchsorted(row, np.arange(rows + 1)).astype(np.int32)
        value = 1 + np.log(count)
        if spec.idf:
            value *= self._idf[column]
        value /= np.sqrt(np.add.reduceat(value**2, indptr[:-1]))[row]
        return sp.csr_array(
            (value.astype(np.float32), column.astype(np.int32), indptr), shape=(rows, spec.d)
        ), y

    def _ranks(
        self, u: AnyArray, row: AnyArray, y: AnyArray, other: AnyArray, share: AnyArray
    ) -> IntArray:
        """A rank for each token from one uniform number: below its row's share it picks a topic's
        term, above it a background one.
        """
        power, low, width = self._law
        mine = share[row]
        rank = (low + (u - mine) / (1 - mine) * width).clip(min=0)
        at = np.flatnonzero(u < mine)
        rank[at] = low
        rank **= 1 / power
        rank -= self.spec.shift
        result = np.clip(rank, 0, self.spec.d - 1).astype(np.int64)
        part, where = u[at] / mine[at], row[at]
        away = part < OTHER
        part = np.where(away, part / OTHER, (part - OTHER) / (1 - OTHER))
        topic = np.where(away, other[where], y[where])
        result[at] = self.topic_slots[topic, np.minimum((part * SLOTS).astype(np.int64), SLOTS - 1)]
        return result

    @cached_property
    def feature_names(self) -> list[str] | None:
        """Words: the planted terms are English and of their topic, the others are made of
        syllables.
        """
        if self.spec.words is None:
            return None
        syllables = [onset + vowel for onset in "bdfgklmnprstvz" for vowel in "aeiou"]
        base = len(syllables)
        names = [
            syllables[k // base**2] + syllables[k // base % base] + syllables[k % base]
            for k in range(0, 17 * self.spec.d, 17)
        ]
        for topic, words in zip(self._column(self.topic_ranks), self.spec.words, strict=True):
            for column, word in zip(topic, words, strict=True):
                names[column] = word
        return names


def _coprime(start: int, d: int) -> int:
    return next(k for k in range(max(start, 1), d + start) if np.gcd(k, d) == 1)


# --- images -------------------------------------------------------------------------------------
