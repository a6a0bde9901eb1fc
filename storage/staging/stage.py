"""From a source to a store: read in pieces, spill, assemble both layouts, publish in one step.

A store is whole or absent. It is built in a hidden sibling under a lock and gets its name by one
rename; in an object store, which cannot rename, its manifest comes last and readers refuse it until
then.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bigfs import engine
from bigfs.engine import parse_bytes
from storage import fingerprint as identities
from storage.errors import SourceError, StoreError
from storage.fingerprint import fingerprint_of
from storage.format import manifest as manifests
from storage.format.manifest import Manifest, Segment
from storage.format.writer import Writer, publish
from storage.sources import find, gate
from storage.sources.base import MatrixSource, Rows, Source, TextSource, taken
from storage.staging import labels, tables, transpose
from storage.staging.bounds import TILE, bounds, by_segment, row_bounds
from storage.staging.exchange import building
from storage.staging.scratch import Spill, open_array, save_names, spill
from storage.staging.vectorize import Vocabulary, Weighting, vectorize

LIMIT = "512MB"  # of a process, if nobody says
TEXT_PIECE = 4 << 20  # bytes of text that a task counts
SMALL = 1 << 20  # statistics of classes that are kept whatever the matrix
MATRIX_PIECE = 32 << 20  # bytes of input that a task reads
# bytes that the libraries themselves take in a worker; text needs scikit-learn
MATRIX_BASE, TEXT_BASE = 230_000_000, 345_000_000


class Plan(NamedTuple):
    """A source, how it is to be staged, and where.

    `fingerprint`: of the source when the work was planned.
    """

    source: Source
    fingerprint: str
    weighting: Weighting
    settings: dict[str, Any]
    key: str
    uri: str


def plan(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str] | None,
    *,
    format: str | None,
    min_df: int | float,
    sublinear_tf: bool,
    hashing: int | None,
    tile_rows: int | None,
    **options: Any,
) -> Plan:
    found = source if isinstance(source, Source) else find(str(source), format=format, **options)
    weighting = Weighting(min_df, sublinear_tf, hashing)
    settings: dict[str, Any] = {"tile_rows": tile_rows}
    if isinstance(found, TextSource):
        settings |= weighting.__dict__
    fingerprint = found.fingerprint()
    key = key_of(found, fingerprint, settings)
    job = Plan(
        found,
        fingerprint,
        weighting,
        settings,
        key,
        manifests.absolute(store or default_store(found, key)),
    )
    if store is None and not manifests.exists(job.uri):
        earlier = manifests.absolute(default_store(found, first_key(job)))
        return job._replace(uri=earlier) if manifests.exists(earlier) else job
    return job


def key_of(source: Source, fingerprint: str, settings: dict[str, Any]) -> str:
    return fingerprint_of(source.format, fingerprint, manifests.VERSION, sorted(settings.items()))


def first_key(job: Plan) -> str:
    """The key of the same source and settings by the rule of earlier versions, in which their
    stores are reused.
    """
    with identities.first_rule():
        return key_of(job.source, job.source.fingerprint(), job.settings)


def default_store(source: Source, key: str) -> Path:
    stem = re.sub(r"[^\w.-]+", "-", Path(source.path).name.split(".")[0] or "corpus")
    return Path(".bigfs") / f"{stem}-{key[:12]}.zarr"


def stage(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    min_df: int | float = 2,
    sublinear_tf: bool = True,
    hashing: int | None = None,
    tile_rows: int | None = None,
    memory_limit: int | str | None = None,
    wait: float = -1,
    scratch: str | os.PathLike[str] | None = None,
    **options: Any,
) -> str:
    """Make the store of a source, unless it is there already.

    The source is read in pieces, so it may be larger than memory. A store is whole or absent: it
    gets its name when it is finished.

    Parameters
    ----------
    source : str, path-like or Source
        Path of a file, folder or archive, a URL, or a name of the catalogue.
    store : str, path-like or None, default=None
        Path or fsspec URL of the store. None takes ``.bigfs/<name>-<key>.zarr``, where the key
        stands for the source and the settings, so that the same question finds the same store.
    format : str or None, default=None
        Format of the source. None guesses it from the content.
    min_df : int or float, default=2
        Terms of text that occur in fewer documents are left out: a count, or a share of the
        documents.
    sublinear_tf : bool, default=True
        Whether term counts of text are replaced by 1 + log of them.
    hashing : int or None, default=None
        Number of hashed columns of text. None learns a vocabulary.
    tile_rows : int or None, default=None
        Rows per tile of rows. Column tiles and chunks shrink alike. None takes 2²¹ non-zeros per
        tile.
    memory_limit : int, str or None, default=None
        Memory of one process, in bytes or as "1GB", whatever the size of the source. None takes
        that of a worker of the enclosing cluster, or 512 MB without one.
    wait : float, default=-1
        Seconds to wait while another process stages the same store. -1 waits as long as it takes.
    scratch : str, path-like or None, default=None
        Folder for temporary files on a disk that every worker sees. None works beside the store.
    **options : object
        Options of the format.

    Returns
    -------
    str
        URI of the store.

    Raises
    ------
    NotEnoughMemory
        `memory_limit` is less than the libraries take.
    SourceError
        The source is missing, broken or empty, or holds a bad value.
    StoreError
        The name is taken by something else, another process holds it, or the disk is full.

    See Also
    --------
    open : Open the store.
    staged : Find out whether the store is there.
    append : Add samples to a store.

    Notes
    ----- `min_df` and `sublinear_tf` are those of scikit-learn's `TfidfVectorizer`. Where the
    source has a split, the vocabulary and the idf are fitted on the training documents.

    Examples
    --------
    >>> import tempfile
    >>> import storage
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = storage.stage("synthetic:newswire?rows=100", f"{folder.name}/newswire.zarr")
    >>> storage.open(uri).X.shape[0]
    100
    >>> folder.cleanup()
    """
    job = plan(
        source,
        store,
        format=format,
        min_df=min_df,
        sublinear_tf=sublinear_tf,
        hashing=hashing,
        tile_rows=tile_rows,
        **options,
    )
    if reusable(job):
        return job.uri
    room = memory_for("staging", job.source, memory_limit)
    with building(job.uri, wait, scratch) as (target, spills):
        if not reusable(job):
            build(job, target, spills, room)
    return job.uri


def staged(
    source: str | os.PathLike[str] | Source,
    store: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> str | None:
    """Return the URI that `stage` would return at once.

    Parameters
    ----------
    source : str, path-like or Source
        Source, as in `stage`.
    store : str, path-like or None, default=None
        Path or fsspec URL of the store, as in `stage`.
    **settings : object
        The other parameters of `stage`.

    Returns
    -------
    str or None
        URI of the store. None if it has to be made.

    Raises
    ------
    SourceError
        The source is missing or broken.
    StoreError
        The name is taken by something else.

    See Also
    --------
    stage : Make the store.

    Examples
    --------
    >>> import tempfile
    >>> import storage
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = storage.stage("synthetic:newswire?rows=100", f"{folder.name}/newswire.zarr")
    >>> storage.staged("synthetic:newswire?rows=100", uri) == uri
    True
    >>> storage.staged("synthetic:newswire?rows=100", f"{folder.name}/other.zarr") is None
    True
    >>> folder.cleanup()
    """
    defaults = {
        "format": None,
        "min_df": 2,
        "sublinear_tf": True,
        "hashing": None,
        "tile_rows": None,
    }
    settings = {k: v for k, v in settings.items() if k not in ("memory_limit", "wait", "scratch")}
    job = plan(source, store, **{**defaults, **settings})
    return job.uri if reusable(job) else None


def reusable(job: Plan) -> bool:
    """Whether the store is there already; an error if its name is taken by another one."""
    if not manifests.exists(job.uri):
        if "://" not in job.uri and os.path.exists(job.uri):
            raise StoreError(f"{job.uri} exists and is not a store: give another name or remove it")
        return False
    manifest = manifests.manifest_of(job.uri)
    # staged by a version that identified sources by rule 1
    first = "identity" not in manifest.source
    if manifest.key != (first_key(job) if first else job.key):
        raise StoreError(
            f"{job.uri} holds {manifest.source['uri']}, which has changed since or "
            f"was staged with other settings: give another name or remove it"
        )
    return True


# --- whole or absent ------------------------------------------------------------------------------


# --- the stages -----------------------------------------------------------------------------------


def memory_for(what: str, source: Source, limit: int | str | None) -> int:
    """What a process may use beside the libraries, refused if that is too little."""
    limit = limit or (LIMIT if engine.client() is None else engine.memory_limit())
    base = TEXT_BASE if isinstance(source, TextSource) else MATRIX_BASE
    engine.require_memory(base + (64 << 20), what, limit)
    return parse_bytes(limit) - base


def entries_for(room: int) -> int:
    """Entries of an array that a task may hold while it assembles them."""
    return min(room // 64, TILE)


def build(job: Plan, target: str, scratch: Path, room: int) -> Manifest:
    """Stage a source into the empty place `target` with `room` bytes a process, and publish it
    there.
    """
    with engine.limit_memory(room):
        source = copy.copy(job.source.unpacked(scratch))
    source.room = room
    vocabulary = None
    if isinstance(source, TextSource):
        spills, vocabulary = vectorize(
            source, source.pieces(min(TEXT_PIECE, room // source.expansion)), job.weighting, scratch
        )
        d = vocabulary.size
    else:
        assert isinstance(source, MatrixSource)
        spills = read(source, source.pieces(min(MATRIX_PIECE, room // source.expansion)), scratch)
        d = width_of(source, spills)
        what = (
            f"staging {source.path} with {d} features, of which every method holds a number each,"
        )
        engine.require_memory(MATRIX_BASE + 8 * d, what, MATRIX_BASE + room)
    segments, spills = by_split(spills)
    n, nnz = sum(s.rows for s in spills), sum(s.nnz for s in spills)
    if not n or not d:
        raise SourceError(f"{source.path} holds no values: {n} samples, {d} features")
    gate.require_shape(n, d, source.path)
    tile = (
        TILE if job.settings["tile_rows"] is None else max(1, nnz * job.settings["tile_rows"] // n)
    )
    writer = Writer(target, chunk=min(manifests.CHUNK, max(1 << 12, 1 << (tile - 1).bit_length())))
    chunks = max(1, entries_for(room) // writer.chunk)
    for path in ("uns", "uns/columns", "uns/statistics"):
        writer.group(path, "dict")
    transpose.write_rows(writer, spills, (n, d), chunks)
    found = labels.settle(spills, kind=source.target, class_names=source.class_names)
    names = tables.names_of(spills)
    tables.write_samples(writer, found, segments, lambda: tables.y_of(spills, found), names)
    named = write_features(writer, source, vocabulary, d)
    write_segments(
        writer,
        segments,
        spills,
        d,
        len(found.class_names) if found.kind == "class" else 0,
        chunks,
        scratch,
    )
    require_same(job.source, job.fingerprint)
    return publish(
        writer,
        Manifest(
            key=job.key,
            shape=(n, d),
            nnz=nnz,
            target=found.kind,
            segments=tuple(segments),
            row_bounds=row_bounds(segments, spills, job.settings["tile_rows"]),
            column_bounds=bounds(transpose.counts_of(writer, segments, d), tile),
            named=(names is not None, named),
            source=describe(source, job),
            settings=job.settings,
        ),
    )


def require_same(source: Source, fingerprint: str) -> None:
    """Refuse a source that changed while it was read."""
    if source.fingerprint() != fingerprint:
        raise SourceError(
            f"{source.path} changed while it was read: repeat the command when nothing writes to it"
        )


def read(source: MatrixSource, pieces: Sequence[Any], scratch: Path) -> list[Spill]:
    where = [str(scratch / f"rows-{i:06d}") for i in range(len(pieces))]
    return [
        s
        for parts in engine.map_tiles(_read, pieces, source, each=[where], label="read")
        for s in parts
    ]


def width_of(source: MatrixSource, spills: Sequence[Spill]) -> int:
    """d: what the source says, else the widest block's."""
    widest = max((s.width for s in spills), default=0)
    if source.n_features is not None and widest > source.n_features:
        raise SourceError(
            f"{source.path} has {widest} features, but should have "
            f"{source.n_features}: check that it is the right file"
        )
    return source.n_features or widest


def _read(piece: Any, where: str, source: MatrixSource) -> list[Spill]:
    rows = source.read(piece)
    # formats of others; ours said it better
    gate.require_values(rows.X, lambda row: f"{source.path}: row {row} of the part {piece}")
    if rows.split is None:
        return [_spilled(where, rows, None)]
    chosen = {split: np.flatnonzero(rows.split == split) for split in ("train", "test")}
    return [
        _spilled(f"{where}-{split}", taken(rows, index), split)
        for split, index in chosen.items()
        if len(index)
    ]


def _spilled(where: str, rows: Rows, split: str | None) -> Spill:
    return spill(
        where, rows.X, split, labels.save_labels(where, rows.y), save_names(where, rows.names)
    )


def by_split(spills: Sequence[Spill]) -> tuple[list[Segment], list[Spill]]:
    """Blocks with the training rows first, and the segments they make."""
    halves = {"train", "test"} & {s.split for s in spills}
    splits = ["train", "test"] if halves else [None]
    segments: list[Segment] = []
    ordered: list[Spill] = []
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
    spills: Sequence[Spill],
    d: int,
    classes: int,
    chunks: int,
    scratch: Path,
) -> None:
    """Every segment by columns, with its statistics; those by class where they are not larger than
    the matrix.
    """
    for segment, mine in by_segment(segments, spills):
        transpose.write_columns(
            writer, segment.name, mine, (segment.stop - segment.start, d), chunks, scratch
        )
        transpose.write_statistics(
            writer, segment, d, classes if d * classes <= max(segment.nnz, SMALL) else 0, scratch
        )


def write_features(writer: Writer, source: Source, vocabulary: Vocabulary | None, d: int) -> bool:
    if vocabulary is None:
        return tables.write_features(writer, d, source.feature_names, None, None)
    return tables.write_features(
        writer, d, None, vocabulary.terms, open_array(vocabulary.idf, "idf")
    )


def describe(source: Source, job: Plan) -> dict[str, Any]:
    return {
        "uri": source.path,
        "format": source.format,
        "fingerprint": job.fingerprint,
        "identity": identities.VERSION,
        "sample_shape": None if source.sample_shape is None else list(source.sample_shape),
        "planted": None if source.planted is None else [int(i) for i in source.planted],
        **({} if source.label_columns is None else {"label_columns": list(source.label_columns)}),
    }
