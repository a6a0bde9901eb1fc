"""Generated corpora at stated scale: `synthetic:NAME?rows=…&seed=…`.

docs/guide/sources.md says where the constants come from.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import scipy.sparse as sp

from storage.errors import SourceError
from storage.fingerprint import fingerprint_of
from storage.sources.base import MatrixSource, Rows
from storage.sources.synthetic.images import ImageGenerator, ImageSpec
from storage.sources.synthetic.text import TextGenerator, TextSpec

PREFIX = "synthetic:"
VERSION = 1  # of the generators: part of the fingerprint, raised when any byte changes

TOPICS = {
    "grain": "wheat corn harvest bushel soybean barley crop acreage farmer export tonne rice sowing silo drought maize oat",
    "crude": "oil barrel opec petroleum refinery drilling pipeline crude rig gasoline offshore saudi output kuwait brent diesel tanker",
    "gold": "bullion ounce mine gold ore troy mint assay nugget platinum silver deposit vein carat smelter prospect reef",
    "shipping": "vessel port cargo freight dock strike strait seaman hull berth crew captain canal ferry escort harbour flag",
    "currency": "dollar yen mark intervention bundesbank exchange franc parity sterling float basket dealer spot peso plaza accord peg",
    "interest": "rate prime discount lending basis bank repo tightening credit fed bond yield reserve maturity bill coupon ease",
    "merger": "bid takeover tender acquire stake merger holder proxy buyout offer hostile suitor antitrust spinoff divest swap fund",
    "earnings": "profit dividend quarter net loss earnings payout revenue sales share income writeoff turnover fiscal margin audit unit",
    "trade": "tariff surplus deficit import quota gatt dumping sanction barrier embargo textile negotiator round levy treaty duty goods",
    "sugar": "cane beet refined sugar raw sweetener molasses intake syrup licence cuba subsidy brazil white mill ethanol stock",
    "science": "laser orbit satellite physicist launch telescope probe shuttle enzyme gene vaccine reactor quantum isotope lens cell dna",
    "sport": "match coach league striker goal tennis olympic referee medal champion sprint stadium injury transfer wicket relay pitch",
}
PAIR = ("-1", "1")


def _numbered(c: int, name: str = "{}") -> list[str]:
    return [name.format(i + 1) for i in range(c)]


def _zipf(c: int) -> list[float]:
    return [1 / (i + 3) for i in range(c)]


CORPORA: dict[str, TextSpec | ImageSpec] = {
    "newswire": TextSpec(
        n=8_000, d=20_000, classes=tuple(TOPICS), nnz=60, tokens=65.6, spread=0.6, exponent=1.15, shift=40, planted=17,
        share=0.12, block=2048, split=True, words=[words.split() for words in TOPICS.values()],
    ),
    "real-sim": TextSpec(
        n=72_309, d=20_958, classes=PAIR, nnz=51.3, tokens=56.0, spread=0.7, exponent=1.15, shift=40, planted=150, share=0.15, block=4096,
        prior=(0.69, 0.31),
    ),
    "rcv1": TextSpec(
        n=804_414, d=47_236, classes=_numbered(103, "topic {}"), nnz=75.7, tokens=84.3, spread=0.6, exponent=1.15, shift=60, planted=20,
        share=0.15, block=2048, prior=_zipf(103),
    ),
    "rcv1.binary": TextSpec(
        n=20_242, d=47_236, classes=PAIR, nnz=74.1, tokens=79.2, spread=0.6, exponent=1.15, shift=60, planted=300, share=0.15, block=2048,
    ),
    "news20": TextSpec(
        n=15_935, d=62_061, classes=_numbered(20), nnz=79.9, tokens=89.6, spread=0.8, exponent=1.15, shift=40, planted=40, share=0.15,
        block=2048, idf=False,
    ),
    "webspam": TextSpec(
        n=350_000, d=16_609_143, classes=PAIR, nnz=3_730, tokens=4473.0, spread=0.8, exponent=1.8, shift=5000, planted=500, share=0.05,
        block=64, prior=(0.39, 0.61), idf=False,
    ),
    "images": ImageSpec(n=11_554, shape=(32, 32), classes=_numbered(68)),
}  # fmt: skip


# --- the source ---------------------------------------------------------------------------------


class Synthetic(MatrixSource):
    """A generated corpus.

    Parameters
    ----------
    path : ``synthetic:NAME``, with options as in a URL: ``synthetic:webspam?rows=5%&seed=3``.
    rows : how many, as a number or in percent of the real corpus; the first ones of the same endless
        corpus, so that a larger one continues a smaller. Default: as many as the real one has.
    seed : another seed is another corpus of the same kind: other planted terms, other documents.

    Raises
    ------
    SourceError : an unknown name or option, or a number that is none.
    """

    format = "synthetic"

    def __init__(self, path: str, *, rows: str | int | None = None, seed: str | int = 0) -> None:
        name, _, query = path.removeprefix(PREFIX).partition("?")
        if name not in CORPORA:
            raise SourceError(
                f"unknown generated corpus {name!r}; the corpora are {', '.join(CORPORA)}"
            )
        options = dict(parse_qsl(query, keep_blank_values=True))
        if unknown := sorted(set(options) - {"rows", "seed"}):
            raise SourceError(
                f"{path}: unknown option {', '.join(unknown)}; the options are rows and seed"
            )
        self.name = name
        spec = CORPORA[name]
        self.n = _count(options.get("rows", spec.n if rows is None else rows), spec.n, path)
        self.seed = _whole(options.get("seed", seed), path)
        self.path = f"{PREFIX}{name}?rows={self.n}&seed={self.seed}"
        self.target = "class"
        self.class_names = spec.classes
        self.sample_shape = spec.shape if isinstance(spec, ImageSpec) else None
        corpus = self._corpus
        self.n_features, self.feature_names, self.planted = (
            corpus.n_features,
            corpus.feature_names,
            corpus.planted,
        )

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return False  # known by its prefix, not by content

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)  # not the names: they are made again where they are wanted

    @property
    def _corpus(self) -> TextGenerator | ImageGenerator:
        return _generator(self.name, self.seed)

    def fingerprint(self) -> str:
        return fingerprint_of("synthetic", VERSION, self.path)

    def pieces(self, size: int) -> list[tuple[int, int]]:
        """Row ranges, cut between blocks, of about `size` bytes as csr."""
        block = CORPORA[self.name].block
        step = max(1, int(size / (self._corpus.bytes_per_row * block))) * block
        return [(start, min(start + step, self.n)) for start in range(0, self.n, step)]

    def weight(self, piece: tuple[int, int]) -> int:
        return int((piece[1] - piece[0]) * self._corpus.bytes_per_row)

    def read(self, piece: tuple[int, int]) -> Rows:
        """Rows [start, stop): the same bytes whatever the range they are asked for in."""
        start, stop = piece
        spec = CORPORA[self.name]
        first = start // spec.block
        blocks = [self._corpus.block(b) for b in range(first, -(-stop // spec.block))]
        keep = slice(start - first * spec.block, stop - first * spec.block)
        X = (
            sp.vstack([X for X, _ in blocks], format="csr")[keep]
            if len(blocks) > 1
            else blocks[0][0][keep]
        )
        split = None
        if (
            isinstance(spec, TextSpec) and spec.split
        ):  # of five documents, three to train on, whatever the number of rows
            split = np.where(np.arange(start, stop) % 5 < 3, "train", "test")
        return Rows(X, np.concatenate([y for _, y in blocks])[keep], split)


def _count(rows: str | int, n: int, path: str) -> int:
    text = str(rows)
    try:
        count = int(text) if not text.endswith("%") else round(n * float(text[:-1]) / 100)
    except (ValueError, OverflowError):
        raise SourceError(
            f"{path}: rows must be a number or a percentage such as 10000 or 5%; got {text!r}"
        ) from None
    if count < 1:
        raise SourceError(f"{path}: rows={text} leaves no row: choose at least 1")
    return count


def _whole(seed: str | int, path: str) -> int:
    text = str(seed)
    if not text.isascii() or not text.isdigit() or int(text) >= 2**63:
        raise SourceError(f"{path}: seed must be a whole number of at least 0; got {text!r}")
    return int(text)


@lru_cache(maxsize=4)
def _generator(name: str, seed: int) -> TextGenerator | ImageGenerator:
    spec = CORPORA[name]
    return TextGenerator(spec, seed) if isinstance(spec, TextSpec) else ImageGenerator(spec, seed)
