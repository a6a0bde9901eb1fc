"""Build a store: read the source in pieces, spill its rows, assemble both layouts, publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigfs import engine
from bigfs.engine import parse_bytes
from storage import fingerprint as identities
from storage.errors import SourceError
from storage.format import manifest as manifests
from storage.format.manifest import Manifest, Segment
from storage.format.writer import Writer, publish
from storage.scaling import SETTINGS, Scaling
from storage.sources import checks
from storage.sources.base import MatrixSource, Rows, Source, TextSource, seen_by_workers, take_rows
from storage.staging import labels, tables, transpose
from storage.staging.bounds import TILE_NNZ, bounds, by_segment, row_bounds
from storage.staging.plan import Plan
from storage.staging.scale_blocks import put_in_units
from storage.staging.scratch import RowBlock, open_array, save_names, write_block
from storage.staging.text.vectorize import Vocabulary, vectorize

DEFAULT_LIMIT = "512MB"  # of a process, if nobody says
TEXT_PIECE = 4 << 20  # bytes of text per task
MATRIX_PIECE = 32 << 20  # bytes of other input per task
# class statistics up to this number of values are kept whatever the size of the matrix
CLASS_STATISTICS_LIMIT = 1 << 20
# bytes that the libraries themselves take in a worker; text needs scikit-learn
MATRIX_BASE, TEXT_BASE = 230_000_000, 345_000_000


def working_memory(what: str, source: Source, limit: int | str | None) -> int:
    """Return the bytes that a process may use beside the libraries."""
    limit = limit or (DEFAULT_LIMIT if engine.client() is None else engine.memory_limit())
    base = TEXT_BASE if isinstance(source, TextSource) else MATRIX_BASE
    engine.require_memory(base + (64 << 20), what, limit)
    return parse_bytes(limit) - base


def entries_for(room: int) -> int:
    """Return the number of entries of an array that a task may hold."""
    return min(room // 64, TILE_NNZ)


def build(plan: Plan, uri: str, scratch: Path, room: int) -> Manifest:
    """Stage a source at the empty place `uri` with `room` bytes per process, and publish it."""
    with engine.limit_memory(room):
        source = plan.source.prepare(scratch).with_memory_limit(room)
    vocabulary, units = None, None
    if isinstance(source, TextSource):
        source = source.with_term_memory(plan.weighting.growth)
        spills, vocabulary = vectorize(
            source,
            source.pieces(min(TEXT_PIECE, room // source.memory_per_byte)),
            plan.weighting,
            scratch,
        )
        d = vocabulary.size
    else:
        assert isinstance(source, MatrixSource)
        spills = read_blocks(
            source, source.pieces(min(MATRIX_PIECE, room // source.memory_per_byte)), scratch
        )
        d = width_of(source, spills)
        what = (
            f"staging {source.path} with {d} features, of which every method holds a number each,"
        )
        engine.require_memory(MATRIX_BASE + 8 * d, what, MATRIX_BASE + room)
        if {"weight", "scale"} & set(plan.settings):
            kept = {k: plan.settings[k] for k in SETTINGS if k in plan.settings}
            spills, units = put_in_units(spills, kept, d, scratch, source.path)
    segments, spills = order_by_split(spills)
    n, nnz = sum(s.rows for s in spills), sum(s.nnz for s in spills)
    if not n or not d:
        raise SourceError(f"{source.path} holds no values: {n} samples, {d} features")
    checks.require_shape(n, d, source.path)
    tile = (
        TILE_NNZ
        if plan.settings["tile_rows"] is None
        else max(1, nnz * plan.settings["tile_rows"] // n)
    )
    writer = Writer(uri, chunk=min(manifests.CHUNK, max(1 << 12, 1 << (tile - 1).bit_length())))
    chunks = max(1, entries_for(room) // writer.chunk)
    for path in ("uns", "uns/columns", "uns/statistics"):
        writer.group(path, "dict")
    transpose.write_rows(writer, spills, (n, d), chunks)
    target = labels.decide_target(spills, kind=source.target, class_names=source.class_names)
    names = tables.names_of(spills)
    tables.write_samples(writer, target, segments, lambda: tables.y_of(spills, target), names)
    named = write_features(writer, source, vocabulary, units, d)
    write_segments(
        writer,
        segments,
        spills,
        d,
        len(target.class_names) if target.kind == "class" else 0,
        chunks,
        scratch,
    )
    require_same(plan.source, plan.fingerprint)
    return publish(
        writer,
        Manifest(
            key=plan.key,
            shape=(n, d),
            nnz=nnz,
            target=target.kind,
            segments=tuple(segments),
            row_bounds=row_bounds(segments, spills, plan.settings["tile_rows"]),
            column_bounds=bounds(transpose.counts_of(writer, segments, d), tile),
            named=(names is not None, named),
            source=describe_source(source, plan),
            settings=plan.settings,
            version=manifests.VERSION if units is None else manifests.VERSION_OF_UNITS,
        ),
    )


def require_same(source: Source, fingerprint: str) -> None:
    """Refuse a source that changed while it was read."""
    if source.fingerprint() != fingerprint:
        raise SourceError(
            f"{source.path} changed while it was read: repeat the command when nothing writes to it"
        )


def read_blocks(source: MatrixSource, pieces: Sequence[Any], scratch: Path) -> list[RowBlock]:
    """Read the pieces of a source on the workers and spill their rows."""
    paths = [str(scratch / f"rows-{i:06d}") for i in range(len(pieces))]
    spills = engine.map_tiles(_read_piece, pieces, source, each=[paths], label="read")
    return [spill for piece in spills for spill in piece]


def width_of(source: MatrixSource, spills: Sequence[RowBlock]) -> int:
    """Return d: as the source states it, else the width of the widest block."""
    widest = max((s.width for s in spills), default=0)
    if source.n_features is not None and widest > source.n_features:
        raise SourceError(
            f"{source.path} has {widest} features, but should have "
            f"{source.n_features}: check that it is the right file"
        )
    return source.n_features or widest


def _read_piece(piece: Any, path: str, source: MatrixSource) -> list[RowBlock]:
    with seen_by_workers(source.path):
        rows = source.read(piece)
    # our own formats refuse such values earlier and name the line
    checks.require_values(rows.X, lambda row: f"{source.path}: row {row} of the part {piece}")
    parts: list[tuple[str, str | None, Rows]] = [(path, None, rows)]
    if rows.split is not None:
        chosen = {split: np.flatnonzero(rows.split == split) for split in ("train", "test")}
        parts = [
            (f"{path}-{split}", split, take_rows(rows, index))
            for split, index in chosen.items()
            if len(index)
        ]
    return [
        write_block(to, part.X, split, labels.save_labels(to, part.y), save_names(to, part.names))
        for to, split, part in parts
    ]


def order_by_split(spills: Sequence[RowBlock]) -> tuple[list[Segment], list[RowBlock]]:
    """Return the segments, training rows first, and the blocks in that order."""
    halves = {"train", "test"} & {s.split for s in spills}
    splits = ["train", "test"] if halves else [None]
    segments: list[Segment] = []
    ordered: list[RowBlock] = []
    start = 0
    for split in splits:
        chosen = [s for s in spills if s.split == split or (split == "train" and s.split is None)]
        rows = sum(s.rows for s in chosen)
        if rows:
            segments.append(
                Segment(f"{len(segments)}", split, start, start + rows, sum(s.nnz for s in chosen))
            )
            ordered += chosen
            start += rows
    return segments, ordered


def write_segments(
    writer: Writer,
    segments: Sequence[Segment],
    spills: Sequence[RowBlock],
    d: int,
    classes: int,
    chunks: int,
    scratch: Path,
) -> None:
    """Write every segment by columns, and its statistics."""
    for segment, mine in by_segment(segments, spills):
        transpose.write_columns(
            writer, segment.name, mine, (segment.stop - segment.start, d), chunks, scratch
        )
        transpose.write_statistics(
            writer,
            segment,
            d,
            classes if d * classes <= max(segment.nnz, CLASS_STATISTICS_LIMIT) else 0,
            scratch,
        )


def write_features(
    writer: Writer, source: Source, vocabulary: Vocabulary | None, units: Scaling | None, d: int
) -> bool:
    """Write the names of the features, and their idf or scale. Returns whether there are names."""
    if vocabulary is not None:
        idf = open_array(vocabulary.idf, "idf")
        return tables.write_features(writer, d, None, vocabulary.terms, {"idf": idf})
    columns = {} if units is None else {"idf" if units.is_tfidf else "scale": units.factors}
    return tables.write_features(writer, d, source.feature_names, None, columns)


def describe_source(source: Source, plan: Plan) -> dict[str, Any]:
    """Return what the manifest says of the source."""
    return {
        "uri": source.path,
        "format": source.format,
        "fingerprint": plan.fingerprint,
        "identity": identities.VERSION,
        "sample_shape": None if source.sample_shape is None else list(source.sample_shape),
        "planted": None if source.planted is None else [int(i) for i in source.planted],
        **({} if source.label_columns is None else {"label_columns": list(source.label_columns)}),
    }
