"""Settings of text: its terms and their weights, by scikit-learn's names."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bigfs.storage.errors import SourceError
from bigfs.storage.messages import read_parts
from bigfs.storage.sources.base import TextSource, shorten
from bigfs.storage.sources.files import decode
from bigfs.storage.words import token_pattern

ENGLISH = "english"
STOP_WORDS = "stop_words must be 'english', a list of words, or a file with one word per line"
STOP_WORDS_LIMIT = 1 << 20  # bytes of a file of stop words: every store keeps them
LISTED = {"min_df", "sublinear_tf", "hashing"}  # settings that a manifest has also by default
ANALYZERS = ("word", "char", "char_wb")
ACCENTS = ("ascii", "unicode")
ANALYZED_GROWTH = 9  # of the memory of terms that scikit-learn finds, per length of a term


@dataclass(frozen=True)
class Weighting:
    """Settings of tf-idf."""

    min_df: int | float = 2
    sublinear_tf: bool = True
    hashing: int | None = None
    max_df: int | float = 1.0
    ngram_range: tuple[int, int] = (1, 1)
    stop_words: str | tuple[str, ...] | None = None
    remove: tuple[str, ...] | None = None
    analyzer: str = "word"
    token_pattern: str | None = None
    strip_accents: str | None = None

    @property
    def is_analyzed(self) -> bool:
        """Whether scikit-learn finds the terms, and not the kernels."""
        return bool(self.changes() & {"analyzer", "token_pattern", "strip_accents"})

    @property
    def growth(self) -> int:
        """The memory of counting and weighing these terms, as a multiple of the tokens' memory."""
        least, largest = self.ngram_range
        if self.is_analyzed:
            return ANALYZED_GROWTH * (largest - least + 1)
        return largest + largest**2 // 16

    def analyze(self, ngram_range: tuple[int, int], stop_words: Sequence[str] = ()) -> Any:
        """Return scikit-learn's function from a text to its terms."""
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(
            analyzer=self.analyzer,
            ngram_range=ngram_range,
            token_pattern=self.token_pattern or token_pattern().pattern,
            strip_accents=self.strip_accents,
            stop_words=list(stop_words) or None,
        ).build_analyzer()

    def with_memory(self, source: TextSource) -> TextSource:
        """Return a source of documents, of which a byte takes the memory of these terms."""
        return source.replace(memory_per_byte=source.memory_per_byte * self.growth)

    def to_settings(self) -> dict[str, Any]:
        """Return the settings for a manifest, without those that have their default."""
        kept = self.changes() | LISTED
        settings = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {k: v for k, v in settings.items() if k in kept}

    def changes(self) -> set[str]:
        """Return the names of the settings that are not the default."""
        plain = asdict(Weighting())
        return {name for name, value in asdict(self).items() if value != plain[name]}

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Weighting:
        """Return the weighting that a manifest describes."""
        known: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in settings.items()
            if k != "tile_rows"
        }
        return cls(**known)

    def listed_stop_words(self) -> tuple[str, ...]:
        """Return the stop words one by one."""
        if self.stop_words == ENGLISH:
            from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

            return tuple(sorted(ENGLISH_STOP_WORDS))
        return tuple(self.stop_words or ())


def make_weighting(**given: Any) -> Weighting:
    """Check the settings that `bigfs.storage.stage` takes, and read the file of stop words."""
    weighting = Weighting(**given)
    require_count("hashing", weighting.hashing)
    for name in ("min_df", "max_df"):
        df = getattr(weighting, name)
        if not (isinstance(df, float) and 0 < df <= 1) and not (_is_whole(df) and df >= 1):
            raise SourceError(
                f"{name} must be a whole number of at least 1 or a share in (0, 1]; got {df!r}"
            )
        if weighting.hashing is not None and getattr(weighting, name) != getattr(Weighting, name):
            raise SourceError(
                f"{name} needs a vocabulary, and hashing has none: leave out one of them"
            )
    _require_analyzer(weighting)
    return replace(
        weighting,
        ngram_range=_read_ngram_range(weighting.ngram_range),
        stop_words=_read_stop_words(weighting),
        remove=read_parts(weighting.remove),
    )


def _require_analyzer(weighting: Weighting) -> None:
    """Refuse an analyzer that there is not, and what it does not take."""
    pattern = weighting.token_pattern
    for name, known in (("analyzer", ANALYZERS), ("strip_accents", (None, *ACCENTS))):
        if (value := getattr(weighting, name)) not in known:
            names = ", ".join(filter(None, known))
            raise SourceError(f"{name} must be one of {names}; got {shorten(value)}")
    for name in ("token_pattern", "stop_words"):
        if weighting.analyzer != "word" and getattr(weighting, name) is not None:
            raise SourceError(
                f"{name} is about words, and analyzer={weighting.analyzer} makes terms of "
                f"characters: leave out one of them"
            )
    try:
        if pattern is not None and re.compile(pattern).groups > 1:
            raise SourceError(f"token_pattern may have one group; got {shorten(pattern)}")
    except (re.error, TypeError) as error:
        raise SourceError(
            f"token_pattern must be a regular expression of Python; got {shorten(pattern)}: {error}"
        ) from error


def require_count(name: str, value: object) -> None:
    """Refuse a setting that is not None, and no whole number of at least 1."""
    if value is not None and not (isinstance(value, int) and _is_whole(value) and value >= 1):
        raise SourceError(f"{name} must be a whole number of at least 1; got {shorten(value)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_ngram_range(ngram_range: Sequence[int]) -> tuple[int, int]:
    given = tuple(ngram_range) if isinstance(ngram_range, list | tuple) else ()
    if not (len(given) == 2 and all(map(_is_whole, given)) and 1 <= given[0] <= given[1]):
        raise SourceError(
            f"ngram_range must be the least and the greatest number of tokens of a term, such as "
            f"(1, 2); got {shorten(ngram_range)}"
        )
    return given[0], given[1]


def _read_stop_words(weighting: Weighting) -> str | tuple[str, ...] | None:
    stop_words: Any = weighting.stop_words
    if stop_words is None or stop_words == ENGLISH:
        return ENGLISH if stop_words else None
    if isinstance(stop_words, str | os.PathLike):
        if not Path(stop_words).is_file():
            raise SourceError(f"{STOP_WORDS}; there is no file {shorten(str(stop_words))}")
        if (size := Path(stop_words).stat().st_size) > STOP_WORDS_LIMIT:
            raise SourceError(
                f"{stop_words} has {size} bytes, and a file of stop words may have "
                f"{STOP_WORDS_LIMIT}: give one word per line"
            )
        lines = decode(Path(stop_words).read_bytes()).splitlines()
        words: list[Any] = [word for line in lines if (word := line.strip())]
    else:
        words = list(stop_words) if isinstance(stop_words, Iterable) else [stop_words]
    if not all(isinstance(word, str) for word in words):
        raise SourceError(f"{STOP_WORDS}; got {shorten(stop_words)}")
    _warn_of_parts(words, weighting)
    return tuple(sorted(set(words))) or None


def _warn_of_parts(words: list[str], weighting: Weighting) -> None:
    """Warn, as scikit-learn does, of words whose own tokens are no stop words."""
    find = re.compile(weighting.token_pattern or token_pattern()).findall
    tokens = {token for word in words for token in find(word.lower())}
    if parts := sorted(tokens - set(words)):
        warnings.warn(
            f"stop_words may leave terms in that were meant: {shorten(parts)} are tokens of stop "
            f"words and no stop words themselves",
            UserWarning,
            stacklevel=2,
        )


def is_token(word: str) -> bool:
    """Return whether a text may have this token."""
    return word == word.lower() and token_pattern().fullmatch(word) is not None
