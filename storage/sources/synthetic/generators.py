"""Generated rows: each block is a pure function of the constants, the seed and its number.

Tokens are topical (a planted term of the class, or of one other) or of the background, whose rank r
follows p(r) ∝ (r + shift)^−exponent. Its continuous law has a closed-form inverse, so no table of d
entries is needed. Values are 1 + log(count), times the idf that the model gives, in unit rows.
Each block has its own stream, Philox with the key (seed, block), whoever generates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.types import AnyArray, FloatArray, IntArray

OTHER = 0.25  # share of a document's topical tokens that belong to one other topic
SLOTS = 4096  # the weights of a topic's terms are multiples of 1 / SLOTS
SHAPE_STREAM = 2**64 - 1  # the key of the stream that all blocks share


def stream(seed: int, key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, key], np.uint64)))


# --- documents ----------------------------------------------------------------------------------


class TextSpec(NamedTuple):
    """Constants of one generated text corpus."""

    n: int  # rows of the real corpus
    d: int  # terms of it
    classes: Sequence[str]
    nnz: float  # mean number of distinct terms per row of the real corpus
    tokens: float  # mean number of tokens per document, solved for nnz
    spread: float  # standard deviation of its logarithm
    exponent: float  # of the background's Zipf law
    shift: float  # its cutoff
    planted: int  # informative terms per class
    share: float  # mean share of topical tokens
    block: int  # rows per random stream (about 2^18 tokens)
    prior: Sequence[float] | None = None  # probabilities of the classes, by default equal
    idf: bool = True  # whether values are weighted by the idf, as in the real corpus
    split: bool = False  # whether three of five documents are marked "train", the others "test"
    words: Sequence[Sequence[str]] | None = None  # names of the planted terms per class
    phrases: Sequence[str] = ()  # columns of each planted term's phrases, with {} for the term
    together: float = 0.0  # probability that a token of a term brings one of its phrases


class TextGenerator:
    """The documents of one corpus and seed. Memory depends neither on n nor on d, but for idf."""

    def __init__(self, spec: TextSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        c, d = len(spec.classes), spec.d
        rng = stream(seed, SHAPE_STREAM)
        self.n_features, self.bytes_per_row = d, 8 * spec.nnz
        prior = np.ones(c) if spec.prior is None else np.asarray(spec.prior)
        self.prior = prior / prior.sum()
        self.share = spec.share * np.linspace(1.5, 0.5, c)  # some topics are easy, some hard
        start = max(int(0.6180339887 * d), 1)
        self.multiplier = next(k for k in range(start, start + d) if np.gcd(k, d) == 1)
        self.offset = int(rng.integers(d))
        # planted terms and their phrases lie where background terms are neither in every document
        # nor in hardly any
        columns = spec.planted * (1 + len(spec.phrases))
        self.planted_ranks = d // 400 + rng.choice(
            max(d // 10, c * columns), (c, columns), replace=False
        )
        ranks = self.planted_ranks[:, : spec.planted]  # the terms; then each one's phrases
        weights = 1 / (np.arange(spec.planted) + 1)
        slots = np.searchsorted(
            np.cumsum(weights / weights.sum())[:-1], (np.arange(SLOTS) + 0.5) / SLOTS
        )
        self.topic_ranks, self.topic_slots = ranks, ranks[:, slots]
        topic_weights = np.bincount(slots, minlength=spec.planted) / SLOTS
        self.phrase_ranks = self.planted_ranks[:, spec.planted :].reshape(
            c * spec.planted, len(spec.phrases)
        )
        repeats = np.repeat(topic_weights, len(spec.phrases)) * spec.together
        self.planted_weights = np.concatenate([topic_weights, repeats])
        self.planted = np.sort(self._column(self.planted_ranks.ravel()))

    def _column(self, rank: IntArray) -> IntArray:
        return (rank * self.multiplier + self.offset) % self.spec.d

    @cached_property
    def _law(self) -> tuple[float, float, float]:
        """Power, low end and width of the law: rank = (low + u · width)^(1/power) − shift."""
        power = 1 - self.spec.exponent
        low = self.spec.shift**power
        return power, low, (self.spec.d + self.spec.shift) ** power - low

    def background(self, rank: AnyArray) -> FloatArray:
        """Return the probability of a rank in the background."""
        power, _, width = self._law
        edge = rank + self.spec.shift
        return ((edge + 1) ** power - edge**power) / width

    def document_frequency(self, rank: AnyArray) -> FloatArray:
        """Return the share of documents that hold the term of a rank, by the model."""
        from scipy.special import ndtri  # which takes long to import

        c = len(self.spec.classes)
        lengths = self._lengths(ndtri((np.arange(32) + 0.5) / 32))
        flat = self.background(rank) * (1 - self.prior @ self.share)
        frequency = np.mean([-np.expm1(-length * flat) for length in lengths], axis=0)
        order = np.argsort(rank)
        planted = self.planted_ranks.ravel()
        at = np.minimum(np.searchsorted(rank, planted, sorter=order), len(rank) - 1)
        hit = rank[order[at]] == planted
        topic, term = (index.ravel()[hit] for index in np.indices(self.planted_ranks.shape))
        same_topic = np.arange(c)[:, None] == topic  # (c, hits)
        topical = (
            np.where(same_topic, 1 - OTHER, OTHER / (c - 1))
            * self.share[:, None]
            * self.planted_weights[term]
        )
        flat = self.background(planted[hit])
        if self.spec.phrases:  # a phrase also occurs where its term is a background term
            is_phrase = term >= self.spec.planted
            own = (term[is_phrase] - self.spec.planted) // len(self.spec.phrases)
            flat[is_phrase] += self.spec.together * self.background(
                self.topic_ranks[topic[is_phrase], own]
            )
        present = flat * (1 - self.share[:, None]) + topical
        frequency[order[at[hit]]] = self.prior @ np.mean(
            [-np.expm1(-length * present) for length in lengths], axis=0
        )
        return frequency

    @cached_property
    def _idf(self) -> FloatArray:
        """1 − log(document frequency) per column."""
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
        rank = self._ranks(rng.random(len(row)), row, y, other, share)
        if spec.phrases:
            row, rank = self._with_phrases(row, rank, rng)
        column = self._column(rank)
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
        """Return a rank for each token, from one uniform number per token.

        A number below the row's share picks a term of a topic, one above it a background term.
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

    def _with_phrases(
        self, row: IntArray, rank: IntArray, rng: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """Append the tokens of phrases, which occur in the rows of their terms."""
        terms = self.topic_ranks.ravel()
        order = np.argsort(terms)
        at = order[np.minimum(np.searchsorted(terms, rank, sorter=order), len(terms) - 1)]
        token = np.flatnonzero(terms[at] == rank)
        drawn = rng.random((len(token), len(self.spec.phrases))) < self.spec.together
        which, phrase = np.nonzero(drawn)
        token = token[which]
        return (
            np.concatenate([row, row[token]]),
            np.concatenate([rank, self.phrase_ranks[at[token], phrase]]),
        )

    @cached_property
    def feature_names(self) -> list[str] | None:
        """English words of their topic for planted terms, and syllables for the others."""
        if self.spec.words is None:
            return None
        syllables = [onset + vowel for onset in "bdfgklmnprstvz" for vowel in "aeiou"]
        base = len(syllables)
        names = [
            syllables[k // base**2] + syllables[k // base % base] + syllables[k % base]
            for k in range(0, 17 * self.spec.d, 17)
        ]
        for topic, words in zip(self._column(self.planted_ranks), self.spec.words, strict=True):
            phrases = [phrase.format(word) for word in words for phrase in self.spec.phrases]
            for column, name in zip(topic, [*words, *phrases], strict=True):
                names[column] = name
        return names


# --- images -------------------------------------------------------------------------------------


class ImageSpec(NamedTuple):
    """Constants of one generated stack of images."""

    n: int
    shape: tuple[int, int]
    classes: Sequence[str]
    block: int = 512


class ImageGenerator:
    """Generate smooth faces under changing light. Only an oval of pixels depends on the class."""

    feature_names = None

    def __init__(self, spec: ImageSpec, seed: int) -> None:
        self.spec, self.seed = spec, seed
        M, N = spec.shape
        self.n_features, self.bytes_per_row = M * N, 8.0 * M * N
        down, right = np.meshgrid(np.linspace(-1, 1, M), np.linspace(-1, 1, N), indexing="ij")
        oval = (down / 0.9) ** 2 + (right / 0.7) ** 2 < 1
        waves = np.array(
            [
                np.cos(i * np.pi * (down + 1) / 2) * np.cos(j * np.pi * (right + 1) / 2)
                for i in range(6)
                for j in range(6)
            ]
        )
        amplitude = np.array([1 / (1 + i + j) for i in range(6) for j in range(6)])
        rng = stream(seed, SHAPE_STREAM)
        # (c, M, N)
        faces = np.tensordot(rng.normal(size=(len(spec.classes), 36)) * amplitude, waves, 1)
        # columns first, as in MATLAB
        self.faces = (0.5 + 0.12 * faces * oval).reshape(len(spec.classes), -1, order="F")
        self.light = np.stack([down, right]).reshape(2, -1, order="F")
        self.planted = np.flatnonzero(oval.ravel(order="F"))

    def block(self, b: int) -> tuple[sp.csr_array, AnyArray]:
        rng, rows = stream(self.seed, b), self.spec.block
        y = rng.integers(len(self.spec.classes), size=rows)
        images = (
            self.faces[y] * rng.uniform(0.6, 1.2, (rows, 1))
            + rng.normal(0, 0.15, (rows, 2)) @ self.light
        )
        images += rng.normal(0, 0.05, images.shape)
        return sp.csr_array(np.clip(images, 0, 1).astype(np.float32)), y
