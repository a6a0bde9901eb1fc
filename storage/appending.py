"""New samples join a store: the same columns, one more segment, nothing rewritten that need not be.

The grown store is built beside the old one from hard links to its files; what grows is written anew
(Zarr replaces a file, it never writes into one), so the old store stays whole until the exchange.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from dask.utils import parse_bytes
from numpy.typing import NDArray

from storage import assemble, layout, staging, targets
from storage.corpus import Corpus
from storage.corpus import open as open_corpus
from storage.errors import SourceError, StoreError
from storage.layout import Segment, Writer
from storage.sources import find
from storage.sources.base import MatrixSource, Source, TextSource, fingerprint_of
from storage.spill import Spill, save
from storage.vectorize import Vocabulary, Weighting, count, weigh

Array = NDArray[Any]
REWRITTEN = ("obs/", "obsm/", "uns/class_names/", "uns/checksums/")  # small: one value a sample


def append(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str],
    *,
    format: str | None = None,
    split: str = "train",
    memory_limit: int | str = "512MB",
    wait: float = -1,
    **options: Any,
) -> str:
    """Add the samples of a source to a store on a local disk; returns its URI.

    Text is counted with the store's own vocabulary and idf, which stay as they were fitted; terms it
    does not know are left out. A class that the store does not know gets the next code. A source
    that was appended already is not appended again.

    Parameters
    ----------
    split : where samples without a split go, if the store has splits.
    format, memory_limit, wait, options : as for `stage`.

    Raises
    ------
    SourceError : as for `stage`; or more columns than the store has, or another kind of target.
    StoreError : the store is not there, or not on a local disk.
    """
    uri = layout.absolute(store)
    if "://" in uri:
        raise StoreError(f"{uri} is not on a local disk, where alone a store can grow: stage a new one")
    layout.manifest_of(uri)
    found = source if isinstance(source, Source) else find(str(source), format=format, **options)
    with staging.building(uri, wait) as (target, scratch):
        corpus = open_corpus(uri)
        fingerprint = found.fingerprint()
        if fingerprint not in corpus.manifest.source.get("appended", []):
            _grow(corpus, found, fingerprint, split, target, scratch, parse_bytes(memory_limit) - staging.BASE)
    return uri


def _grow(corpus: Corpus, source: Source, fingerprint: str, split: str, target: str, scratch: Path, room: int) -> None:
    old = corpus.manifest
    source = source.unpacked(scratch)
    spills = _rows(source, corpus, scratch, room)
    if corpus.splits:
        spills = [s if s.split else s._replace(split=split) for s in spills]
    segments, spills = staging.by_split(spills)
    segments = _after(old.segments, segments, bool(corpus.splits))
    added, d = sum(s.rows for s in spills), old.shape[1]
    if not added:
        raise SourceError(f"{source.path} holds no samples to append")
    found, names = _samples(corpus, source, spills, added)
    writer = _clone(corpus, target)
    chunks = max(1, room // 128 // writer.chunk)
    indptr = _grow_rows(writer, corpus, spills, (old.shape[0] + added, d), chunks)
    rest = list(spills)
    for segment in segments:
        mine, rows = [], 0
        while rows < segment.stop - segment.start:
            mine.append(rest.pop(0))
            rows += mine[-1].rows
        assemble.write_columns(writer, segment.name, mine, (rows, d), chunks, scratch)
    every = (*old.segments, *segments)
    staging.write_samples(writer, found, every, names)
    grown = replace(
        old,
        key=fingerprint_of(old.key, fingerprint),
        shape=(old.shape[0] + added, d),
        nnz=int(indptr[-1]),
        segments=every,
        row_bounds=(*old.row_bounds, *staging.row_bounds(indptr, segments, old.settings["tile_rows"])[1:]),
        source={**old.source, "appended": [*old.source.get("appended", []), fingerprint]},
    )
    layout.publish(writer, grown)


def _rows(source: Source, corpus: Corpus, scratch: Path, room: int) -> list[Spill]:
    """Spilled blocks in the store's columns."""
    settings, d = corpus.manifest.settings, corpus.manifest.shape[1]
    came, there = ("text" if is_text else "a matrix" for is_text in (isinstance(source, TextSource), "min_df" in settings))
    if came != there:
        raise SourceError(f"{source.path} is {came} and the store was made of {there}")
    if isinstance(source, MatrixSource):
        spills = staging.read(source, source.pieces(room // 20), scratch)
        widest = max((s.width for s in spills), default=0)
        if widest > d:
            raise SourceError(f"{source.path} has {widest} columns and the store has {d}: stage all of it anew")
        return spills
    assert isinstance(source, TextSource)
    weighting = Weighting(**{k: v for k, v in settings.items() if k != "tile_rows"})
    save(scratch / "vocabulary", idf=corpus.place.read("var/idf"))
    terms = None if weighting.hashing else str(scratch / "vocabulary.terms")
    if terms:
        Path(terms).write_text("".join(f"{term}\n" for term in corpus.feature_names[:]), encoding="utf-8", newline="")
    counted = count(source, source.pieces(min(staging.TEXT_PIECE, room // 32)), weighting, scratch)
    return weigh(counted, Vocabulary(d, terms, str(scratch / "vocabulary")), weighting.sublinear_tf)


def _after(old: Sequence[Segment], new: Sequence[Segment], halves: bool) -> list[Segment]:
    """New segments, numbered and counted on from the old ones."""
    n = old[-1].stop
    shifted = enumerate(new, len(old))
    return [Segment(str(i), s.split if halves else None, n + s.start, n + s.stop, s.nnz) for i, s in shifted]


def _samples(corpus: Corpus, source: Source, spills: Sequence[Spill], added: int) -> tuple[targets.Targets, list[str] | None]:
    """Targets and names of all samples, the old ones first, in the old codes."""
    kind, names = corpus.manifest.target, corpus.manifest.named[0]
    wanted = source.target or (kind if kind != "class" else None)  # whole numbers may be real targets, 1.5 is no class
    new = targets.encode([s.y for s in spills], added, kind=wanted, class_names=source.class_names)
    if new.kind != kind:
        raise SourceError(f"{source.path} has {new.kind or 'no'} labels and the store has {kind or 'none'}")
    classes = [*corpus.class_names, *(name for name in new.class_names if name not in set(corpus.class_names))]
    code = np.array([classes.index(name) for name in new.class_names], dtype=np.int64)
    if kind == "multilabel":
        moved = sp.csr_array((new.y.data, code[new.y.indices], new.y.indptr), shape=(added, len(classes)))
        corpus.y.resize((corpus.y.shape[0], len(classes)))
        y: Any = sp.vstack([corpus.y, moved], format="csr")
    elif kind == "class":
        y = np.concatenate([corpus.y, np.append(code, -1)[new.y]])
    else:
        y = np.concatenate([corpus.y, new.y])
    if not names:
        return targets.Targets(kind, y, classes), None
    own = staging.sample_names(spills) or [str(corpus.manifest.shape[0] + i) for i in range(added)]
    return targets.Targets(kind, y, classes), [*corpus.sample_names.tolist(), *own]


def _clone(corpus: Corpus, target: str) -> Writer:
    """A store of hard links to the old one's files, but for those that are written whole again."""
    checksums = layout.checksums_of(corpus.uri, corpus.manifest.content)
    kept = {key: value for key, value in checksums.items() if not key.startswith(REWRITTEN)}
    for key in kept:
        Path(target, key).parent.mkdir(parents=True, exist_ok=True)
        os.link(Path(corpus.uri, key), Path(target, key))
    writer = Writer(target, chunk=corpus.place.chunk("X/data"))
    writer.checksums.update(kept)
    return writer


def _grow_rows(writer: Writer, corpus: Corpus, spills: Sequence[Spill], shape: tuple[int, int], chunks: int) -> Array:
    """X with the blocks after its rows. Returns the indptr of all rows."""
    before, old = corpus.manifest.nnz, corpus.place.read("X/indptr")
    indptr = np.concatenate([old, assemble.indptr_of(spills)[1:] + before])
    writer.extend("X/data", int(indptr[-1]))
    writer.extend("X/indices", int(indptr[-1]))
    writer.extend("X/indptr", len(indptr))
    writer.attribute("X", shape=list(shape))
    assemble.fill_rows(writer, spills, before, chunks)
    writer.checksums.update(layout.fill(writer.uri, "X/indptr", len(old), indptr[len(old) :]))
    return indptr
