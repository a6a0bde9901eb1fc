"""Build a store: read the source in pieces, assemble both layouts from scratch, publish."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bigfs import engine
from bigfs.engine import format_bytes, parse_bytes
from bigfs.settings import Setting
from bigfs.storage.errors import SourceError
from bigfs.storage.format import manifest as manifests
from bigfs.storage.format.manifest import Manifest, Segment
from bigfs.storage.format.writer import Writer, publish
from bigfs.storage.scaling import AUTO, IS_STANDARDIZED, SETTINGS
from bigfs.storage.sources import checks
from bigfs.storage.sources.base import MatrixSource, Source, TextSource
from bigfs.storage.sources.samples import Target, missing_split
from bigfs.storage.sources.scratch_matrix import bounds
from bigfs.storage.staging import tables, transpose
from bigfs.storage.staging.named import learn_names, number, read_blocks
from bigfs.storage.staging.scale_blocks import put_in_units
from bigfs.storage.staging.scratch import (
    BY_ROW,
    TILE_NNZ,
    RowBlock,
    by_segment,
    delete,
    forget,
    row_bounds,
)
from bigfs.storage.staging.text.vectorize import compile_kernels, vectorize
from bigfs.storage.staging.text.weighting import Weighting
from bigfs.types import AnyArray

log = logging.getLogger("bigfs.storage")

DEFAULT_LIMIT = "512MB"  # of a process, if nobody says
TEXT_PIECE = Setting(4 << 20)  # bytes of text per task
MATRIX_PIECE = Setting(32 << 20)  # bytes of other input per task
MOST_LEFT_OUT = 100  # names of files that the manifest keeps
# class statistics up to this number of values are kept whatever the size of the matrix, but none of
# more classes than these
CLASS_STATISTICS_LIMIT = 1 << 20
MOST_CLASSES = Setting(256)
# bytes that the libraries themselves take in a worker; text needs scikit-learn
MATRIX_BASE, TEXT_BASE = 230_000_000, 345_000_000


class Plan(NamedTuple):
    """A source, its staging settings and its store."""

    source: Source
    fingerprint: str  # of the source when the plan was made
    weighting: Weighting
    settings: dict[str, Any]
    key: str  # identifies the source and the settings
    uri: str


def working_memory(what: str, source: Source, limit: int | str | None) -> int:
    """Return the bytes that a process may use without its libraries."""
    limit = limit or (DEFAULT_LIMIT if engine.client() is None else engine.memory_limit())
    base = base_of(source)
    engine.require_memory(base + (64 << 20), what, limit)
    return parse_bytes(limit) - base


def base_of(source: Source) -> int:
    """Return the bytes that the libraries take while a source is staged."""
    is_text = isinstance(source, TextSource) or getattr(source, "hashing", None)
    return TEXT_BASE if is_text else MATRIX_BASE


@contextlib.contextmanager
def telling_base(source: Source) -> Iterator[None]:
    """Say in a refusal of what does not fit what the libraries take of the limit."""
    try:
        yield
    except engine.MemoryLimitError as error:
        base = format_bytes(base_of(source))
        raise engine.MemoryLimitError(f"{error} (libraries take {base} of the limit)") from error


def source_folder(scratch: Path) -> Path:
    """Return the folder for what a source lays out on scratch. It is deleted when it is read."""
    folder = scratch / "source"
    folder.mkdir(exist_ok=True)
    return folder


def pieces_of(source: MatrixSource | TextSource, memory_limit: int) -> Sequence[Any]:
    """Cut a source into pieces that a process can read within its limit."""
    size = TEXT_PIECE.value if isinstance(source, TextSource) else MATRIX_PIECE.value
    return source.pieces(min(size, memory_limit // source.memory_per_byte))


def build(
    plan: Plan, uri: str, scratch: Path, memory_limit: int, free: Callable[[], Any]
) -> Manifest:
    """Stage a source at the empty place `uri`, and publish the store.

    `free` is called when the source is read.
    """
    shutil.rmtree(scratch / "source", ignore_errors=True)  # left by a process that was killed
    # a worker compiles what counts text in a new installation, while the source is decompressed
    sizes = [plan.weighting.ngram_range] if isinstance(plan.source, TextSource) else []
    with (
        telling_base(plan.source),
        engine.started_tiles(compile_kernels, sizes),
        engine.limit_memory(memory_limit),
    ):
        source = plan.source.prepare(source_folder(scratch)).replace(memory_limit=memory_limit)
    terms, columns = None, dict[str, AnyArray]()
    if isinstance(source, TextSource):
        pieces = pieces_of(source, memory_limit)
        blocks, names, columns["idf"] = vectorize(source, pieces, plan.weighting, scratch)
        d, terms = names.size, names.lines
    else:
        assert isinstance(source, MatrixSource)
        pieces = pieces_of(source, memory_limit)
        if source.hashing and not source.has_names:
            raise SourceError(
                f"{source.path} has numbers of columns, and hashing is for names: leave it out, or "
                f"give by_name=true where the numbers are names"
            )
        blocks = read_blocks(source, pieces, scratch)
        if source.has_names:
            names, _ = learn_names(blocks, blocks, source.hashing, scratch)
            blocks, d, terms = number(blocks, names), names.size, names.lines
        else:
            d = width_of(source, blocks)
        what = (
            f"staging {source.path} with {d} features, of which every method holds a number each,"
        )
        engine.require_memory(MATRIX_BASE + 8 * d, what, MATRIX_BASE + memory_limit)
    shutil.rmtree(source_folder(scratch))
    free()
    tables.note_rounded(blocks, source.feature_names, terms, source.path)
    settings, decided = plan.settings, source.decided()
    if {"weight", "scale"} & set(settings):
        kept = {k: settings[k] for k in SETTINGS if k in settings}
        settings = {k: v for k, v in settings.items() if k not in kept}
        units = None
        if not (kept == {"scale": AUTO} and source.sample_shape):  # pixels have one unit
            blocks, units = put_in_units(blocks, kept, d, scratch, source.path)
        if units is not None:
            settings |= units.settings
            columns[units.column] = units.factors
            if units.settings != kept:
                decided |= units.settings
                log.warning("%s: %s", source.path, IS_STANDARDIZED)
    segments, blocks = order_by_split(blocks)
    n, nnz = sum(s.rows for s in blocks), sum(s.nnz for s in blocks)
    if not n or not d:
        raise SourceError(f"{source.path} holds no values: {n} samples, {d} features")
    checks.require_shape(n, d, source.path)
    rows = plan.settings["tile_rows"]
    tile = TILE_NNZ.value if rows is None else max(1, nnz * rows // n)
    writer = Writer(uri, chunk=min(manifests.CHUNK, max(1 << 12, 1 << (tile - 1).bit_length())))
    chunks = chunks_for(writer, memory_limit)
    for path in ("uns", "uns/columns", "uns/statistics"):
        writer.group(path, "dict")
    transpose.write_rows(writer, blocks, (n, d), chunks)
    forget(scratch)
    delete(blocks, *BY_ROW)
    target = tables.decide_target(blocks, source)
    if "target" in source.guessed and tables.are_measured(target, n):
        target = tables.decide_target(blocks, source, decided.setdefault("target", "real"))
    tables.note_single_classes(blocks, target, source.path)
    tables.note_joined_labels(target, source)
    tables.compare_splits(blocks, target, source)
    sample_names = tables.names_of(blocks)
    with engine.limit_memory(memory_limit):
        obs = tables.obs_of(blocks, source.obs_columns, source.path)
    tables.write_samples(
        writer, target, segments, lambda: tables.y_of(blocks, target), sample_names, obs
    )
    named = tables.write_features(writer, d, source.feature_names, terms, columns)
    write_segments(writer, segments, blocks, d, target, chunks)
    require_same(plan.source, plan.fingerprint)
    return publish(
        writer,
        Manifest(
            key=plan.key,
            shape=(n, d),
            nnz=nnz,
            target=target.kind,
            segments=tuple(segments),
            row_bounds=row_bounds(segments, blocks, rows),
            column_bounds=bounds(
                transpose.counts_of(writer, segments, d),
                tile,
                transpose.MAX_COLUMNS_HELD.value // 2,
            ),
            named=(sample_names is not None, named),
            source=describe_source(source, plan, decided),
            settings=settings,
        ),
    )


def chunks_for(writer: Writer, memory_limit: int) -> int:
    """Return the number of chunks of an array that a task may hold."""
    return max(1, min(memory_limit // 64, TILE_NNZ.value) // writer.chunk)


def require_same(source: Source, fingerprint: str) -> None:
    """Refuse a source that changed while it was read."""
    if source.fingerprint() != fingerprint:
        raise SourceError(
            f"{source.path} changed while it was read: repeat the command once "
            "nothing writes to it",
            may_pass=True,
        )


def width_of(source: MatrixSource, blocks: Sequence[RowBlock]) -> int:
    """Return d: as the source states it, else the width of the widest block."""
    widest = max((s.width for s in blocks), default=0)
    if source.n_features is not None and widest > source.n_features:
        raise SourceError(
            f"{source.path} has {widest} features, but should have "
            f"{source.n_features}: check that it is the right file"
        )
    return source.n_features or widest


def order_by_split(
    blocks: Sequence[RowBlock], before: Sequence[Segment] = ()
) -> tuple[list[Segment], list[RowBlock]]:
    """Return the segments after those `before`, training rows first, and the blocks in order."""
    halves = {s.split for s in blocks if s.rows}
    if None in halves and len(halves) > 1:
        raise missing_split(next(s.told.first for s in blocks if s.rows and s.split is None))
    splits = [None] if halves == {None} else ["train", "test"]
    segments: list[Segment] = []
    ordered: list[RowBlock] = []
    start = before[-1].stop if before else 0
    for split in splits:
        chosen = [s for s in blocks if s.split == split]
        rows = sum(s.rows for s in chosen)
        if rows:
            name, nnz = f"{len(before) + len(segments)}", sum(s.nnz for s in chosen)
            segments.append(Segment(name, split, start, start + rows, nnz))
            ordered += chosen
            start += rows
    return segments, ordered


def write_segments(
    writer: Writer,
    segments: Sequence[Segment],
    blocks: Sequence[RowBlock],
    d: int,
    target: Target,
    chunks: int,
) -> None:
    """Write every segment by columns, and its statistics."""
    classes = len(target.class_names) if target.kind == "class" else 0
    for segment, mine in by_segment(segments, blocks):
        # those per class are left out where they would be larger than the matrix
        is_small = d * classes <= max(segment.nnz, CLASS_STATISTICS_LIMIT)
        by_class = classes if is_small and classes <= MOST_CLASSES.value else 0
        transpose.write_segment(writer, segment, mine, d, by_class, chunks)


def describe_source(source: Source, plan: Plan, decided: dict[str, Any]) -> dict[str, Any]:
    """Return what the manifest says of the source, with what was `decided` by its content."""
    return {
        "uri": source.path,
        "format": source.format,
        "fingerprint": plan.fingerprint,
        **({"options": dict(source.given)} if source.given else {}),
        **({"left_out": left_out[:MOST_LEFT_OUT]} if (left_out := source.left_out()) else {}),
        **({"decided": decided} if decided else {}),
        "sample_shape": None if source.sample_shape is None else list(source.sample_shape),
        "planted": None if source.planted is None else [int(i) for i in source.planted],
        **({"by_name": True} if isinstance(source, MatrixSource) and source.has_names else {}),
        **({} if source.label_columns is None else {"label_columns": list(source.label_columns)}),
        **({"roles": source.obs_columns} if source.obs_columns else {}),
        **({} if source.categorical is None else {"categorical": list(source.categorical)}),
    }
