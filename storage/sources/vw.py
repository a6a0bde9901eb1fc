"""Lines of named features: Vowpal Wabbit's and libffm's. One that comes again in a line is added.

    [label] [importance] ['tag]|namespace feature:value feature |…
    label field:feature:value …

A feature is named as Vowpal Wabbit names it for people, ``namespace^feature``, and as libffm writes
it, ``field:feature``. Its value is 1 if none is given, times the value of its namespace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from bigfs.storage.errors import SourceError
from bigfs.storage.sources.samples import parse_number, shorten
from bigfs.storage.sources.tables.jsonl import JsonFeatures, LinePosition

BLANKS = re.compile("[ \t]+")  # what divides words. Other blanks are letters of a name
FFM_LINE = re.compile(rb"[^\s:]+(?:[ \t]+\d+:\d+:[-+.\deE]+)+[ \t]*\r?\n")
# the fields of a line
LABEL, IMPORTANCE, TAG, FEATURES = "label", "importance", "tag", "features"


@dataclass(eq=False, kw_only=True)
class VowpalWabbit(JsonFeatures):
    """Rows of named features in Vowpal Wabbit's text, with simple labels or classes."""

    format = "vw"
    memory_per_byte = 40  # measured: 37 for words of four digits
    suffixes: ClassVar[tuple[str, ...]] = (".vw",)
    name: str | None = TAG
    by_name: bool | None = True

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return ".vw" in path.suffixes

    def _require_field(self, role: str, name: str) -> None:
        if name not in (LABEL, IMPORTANCE, TAG, FEATURES):
            raise SourceError(
                f"{self.path} has no field {name!r}: a line has {LABEL}, {IMPORTANCE}, {TAG} and "
                f"{FEATURES}"
            )

    def _parse(self, line: bytes, place: LinePosition) -> dict[str, Any]:
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            _refuse(place, f"it is not UTF-8 ({error}): give its encoding=, such as latin-1")
        head, *namespaces = text.rstrip("\n\r").split("|")
        words = BLANKS.split(head.strip(" \t")) if head.strip(" \t") else []
        tag = None
        # a tag begins with ', or is next to the | without a space
        if words and (words[-1].startswith("'") or (namespaces and head[-1:] not in (" ", "\t"))):
            tag = words.pop().removeprefix("'")
        if len(words) > 3:
            _refuse(place, f"{shorten(head)} is no label, importance and base")
        numbers = [_number(word, place) for word in words]
        label, importance, base = [*numbers, None, None, None][:3]
        if base:
            _refuse(place, f"the initial prediction is {base}, which is not kept: leave it out")
        if importance not in (None, 1) and IMPORTANCE not in self.obs_columns.values():
            _refuse(
                place,
                f"the importance is {importance}: keep it by sample_weight={IMPORTANCE}",
            )
        features: dict[str, float] = {}
        for namespace in namespaces:
            words = [word for word in BLANKS.split(namespace) if word]
            prefix, scale = "", 1.0
            if words and namespace[0] not in " \t":
                name, _, value = words.pop(0).partition(":")
                prefix, scale = f"{name}^", _value(value, place) if value else 1.0
            for word in words:
                name, _, value = word.partition(":")
                amount = _value(value, place) if value else 1.0
                key = prefix + name
                features[key] = features.get(key, 0.0) + scale * amount
        weight = 1 if importance is None else importance
        return {LABEL: label, IMPORTANCE: weight, TAG: tag, FEATURES: features}


@dataclass(eq=False, kw_only=True)
class LibFfm(VowpalWabbit):
    """Rows of features with fields in libffm's text, with simple labels or classes."""

    format = "libffm"
    suffixes: ClassVar[tuple[str, ...]] = (".ffm",)
    name: str | None = None

    @classmethod
    def sniff(cls, path: Path, head: bytes) -> bool:
        return FFM_LINE.match(head) is not None

    def _parse(self, line: bytes, place: LinePosition) -> dict[str, Any]:
        label, *words = line.decode("utf-8", "replace").split()
        features: dict[str, float] = {}
        for word in words:
            key, _, value = word.rpartition(":")
            if ":" not in key:
                _refuse(place, f"{shorten(word)} is no field:feature:value")
            features[key] = features.get(key, 0.0) + _value(value, place)
        return {LABEL: _number(label, place), FEATURES: features}


def _value(word: str, place: LinePosition) -> float:
    try:
        if "_" not in word:  # Python allows 1_000
            return float(word)
    except ValueError:
        pass
    _refuse(place, f"{shorten(word)} is no number")


def _number(word: str, place: LinePosition) -> int | float:
    try:
        number = parse_number(word)
    except ValueError:
        _refuse(place, f"{shorten(word)} is no number; labels with a colon are not read")
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _refuse(place: LinePosition, what: str) -> NoReturn:
    raise SourceError(f"{place}: {what}")
