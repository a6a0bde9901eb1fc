"""From a source to a store: `stage` and `find_store`.

A store is whole or absent. It is built in a hidden sibling under a lock and gets its name by one
rename. An object store cannot rename: there the manifest comes last, and readers refuse the store
until then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import psutil

from bigfs import engine
from bigfs.storage import atomic
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.format import manifest as manifests
from bigfs.storage.format.documents import require_whole
from bigfs.storage.format.verified import StoreRef
from bigfs.storage.scaling import AUTO, TFIDF
from bigfs.storage.sources import find
from bigfs.storage.sources.base import MatrixSource, Source, TextSource
from bigfs.storage.staging.build import Plan, build, telling_base, working_memory
from bigfs.storage.staging.scale_blocks import unit_settings
from bigfs.storage.staging.text.weighting import Weighting, make_weighting, require_count
from bigfs.storage.words import VERSION as WORDS

log = logging.getLogger("bigfs.storage")


@engine.session()
def stage(
    source: Any,
    store: str | os.PathLike[str] | None = None,
    *,
    format: str | None = None,
    min_df: int | float = 2,
    max_df: int | float = 1.0,
    ngram_range: Sequence[int] = (1, 1),
    stop_words: str | os.PathLike[str] | Iterable[str] | None = None,
    remove: str | Iterable[str] | None = None,
    analyzer: str = "word",
    token_pattern: str | None = None,
    strip_accents: str | None = None,
    sublinear_tf: bool = True,
    hashing: int | None = None,
    tile_rows: int | None = None,
    weight: str | None = None,
    target_sum: float | None = None,
    scale: str = AUTO,
    memory_limit: int | str | None = None,
    wait: float = -1,
    scratch: str | os.PathLike[str] | None = None,
    **options: Any,
) -> str:
    """Make the store of a source, unless it is there already.

    The source is read in pieces, so it may be larger than memory. A store is whole or absent: it
    gets its name when it is finished. One that is there already is read and compared with its
    checksums first, which takes less than a hundredth of the time that staging took, or the time
    to read its files from the disk. A store with a file that is damaged or missing is an error.

    Parameters
    ----------
    source : str, path-like, Source or object
        Path of a file, folder or archive, a URL, or a name of the catalogue. Or an object that
        holds the data:

        * a table that speaks Arrow, such as one of polars, DuckDB, pandas, pyarrow and Lance, a
          lazy frame of polars, a data frame of Dask, or an iterator over tables. Its options are
          the options of a Parquet file;
        * a matrix (n × d) of NumPy, SciPy, Dask, Zarr or HDF5. Its options are `y` (n labels, or
          n × c as an indicator), `names`, `sample_names`, `unlabeled`, and one value per
          sample in `group`, `batch`, `sample_weight` and `time`;
        * an iterator over blocks of rows, or over pairs (rows, labels), with the same options;
        * an AnnData object in memory, backed or lazy, with the options of its file;
        * a mapping of "train", "test" or a name that `split_map` knows to any of these, such as a
          `DatasetDict` of Hugging Face. Options and guesses of the training samples hold for
          the others, and an option may be a mapping with a value for each.

        Objects are read once, see Notes.
    store : str, path-like or None, default=None
        Path or fsspec URL of the store. None takes ``.bigfs/<name>-<key>.zarr``, where the key
        identifies the source and the settings, so that the same question finds the same store.
    format : str or None, default=None
        Format of the source. None guesses it from the content.
    min_df : int or float, default=2
        Terms of text that occur in fewer documents are left out: a count, or a share of the
        documents.
    max_df : int or float, default=1.0
        Terms of text that occur in more documents are left out: a count, or a share of the
        documents.
    ngram_range : tuple of int, default=(1, 1)
        Least and greatest number of tokens of a term of text. (1, 2) takes single tokens and pairs
        of tokens that follow each other, joined by a space.
    stop_words : {"english"}, path-like, list of str or None, default=None
        Tokens of text that are left out before terms are made: scikit-learn's list of English
        words, the file of a list with one word per line, or a list.
    remove : str, list of str or None, default=None
        Parts of messages that are left out: some of "headers", "footers" and "quotes", separated by
        commas if in one text, as in scikit-learn's `fetch_20newsgroups`.
    analyzer : {"word", "char", "char_wb"}, default="word"
        What `ngram_range` counts: tokens, characters, or the characters of words alone, with a
        blank at both ends of each. Characters suit scripts without blanks between words.
    token_pattern : str or None, default=None
        Regular expression of a token. None takes two word characters or more, with their marks.
    strip_accents : {"ascii", "unicode"} or None, default=None
        Whether accents are left out of the texts: those that have a letter of ASCII, which leaves
        out all other characters too, or all that Unicode decomposes.
    sublinear_tf : bool, default=True
        Whether term counts of text are replaced by 1 + log of them.
    hashing : int or None, default=None
        Number of columns that the terms of text, or the names and the categories of a matrix, are
        hashed to. A column has the name of the first of them in the order of the rows. None learns
        a vocabulary.
    tile_rows : int or None, default=None
        Rows per tile of rows. Column tiles and chunks shrink alike. None takes 2²¹ non-zeros per
        tile.
    weight : {"tfidf", "lognorm"} or None, default=None
        Weigh the counts of a matrix. "tfidf" weighs them as text is weighed, with unit rows.
        "lognorm" divides each row by its sum, multiplies it by `target_sum`, and takes
        log(1 + x). None keeps its values.
    target_sum : float or None, default=None
        Sum of a row under ``weight="lognorm"`` before the logarithm. None takes the median of the
        sums of the training rows that are not empty.
    scale : {"auto", "standard", "max", "none"}, default="auto"
        Divide each column of a matrix by its standard deviation or by its largest absolute value.
        Columns are not centered. "auto" takes "standard" for a table in several units: most samples
        have a value in most columns, and the largest standard deviation is over ten times the
        median one. Columns of 0 and 1 then stay, and so do images. "none" keeps all values.
    memory_limit : int, str or None, default=None
        Memory of one process, in bytes or as "1GB", whatever the size of the source. None takes
        that of a worker of the enclosing cluster, or 512 MB without one.
    wait : float, default=-1
        Seconds to wait while another process stages the same store. -1 waits as long as it takes.
    scratch : str, path-like or None, default=None
        Folder for temporary files on a disk that every worker sees. None works next to the store.
    **options : object
        Options of the format. In every format `test` is the source of the test samples.

    Returns
    -------
    str
        URI of the store.

    Raises
    ------
    MemoryLimitError
        `memory_limit` is less than the libraries take.
    SourceError
        The source is missing, broken or empty, or holds a bad value.
    StoreError
        The name is taken by something else, another process holds it, or the disk is full.
    CorruptStoreError
        The store is there, but is not what was written.

    See Also
    --------
    open : Open the store.
    staged : Find out whether the store is there.
    append : Add samples to a store.

    Notes
    -----
    `min_df`, `max_df`, `ngram_range`, `stop_words`, `analyzer`, `token_pattern`, `strip_accents`
    and `sublinear_tf` mean the same as in scikit-learn's `TfidfVectorizer`, but that no term holds
    a line break. Where the source has a split, the vocabulary and the idf are fitted on the
    training documents. `weight` and `scale` are fitted on the training rows too, as
    scikit-learn's `TfidfTransformer`, `StandardScaler(with_mean=False)` and `MaxAbsScaler` are.
    "lognorm" is `normalize_total` and `log1p` of scanpy.

    An object is read once and written to scratch, 8 bytes per non-zero of a matrix, which are freed
    before the store is written. Its content is hashed meanwhile, whatever the sizes of its
    blocks. So the same content finds its store, but only after it was read. A stream that is
    interrupted starts anew. An error of its generator is passed on and leaves nothing.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> storage.open(uri).X.shape[0]
    100

    Blocks of rows with their labels:

    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> blocks = ((sp.eye_array(3, format="csr"), np.arange(3)) for _ in range(4))
    >>> storage.open(storage.stage(blocks)).X.shape
    (12, 3)
    """
    with contextlib.ExitStack() as streams:
        plan = make_plan(
            source,
            store,
            format=format,
            min_df=min_df,
            max_df=max_df,
            ngram_range=ngram_range,
            stop_words=stop_words,
            remove=remove,
            analyzer=analyzer,
            token_pattern=token_pattern,
            strip_accents=strip_accents,
            sublinear_tf=sublinear_tf,
            hashing=hashing,
            tile_rows=tile_rows,
            weight=weight,
            target_sum=target_sum,
            scale=scale,
            spool=lambda s: streams.enter_context(spool_source(s, store, scratch, memory_limit)),
            **options,
        )
        carry_out(plan, memory_limit, wait, scratch, streams.close)
        return plan.uri


def carry_out(
    plan: Plan,
    memory_limit: int | str | None = None,
    wait: float = -1,
    scratch: str | os.PathLike[str] | None = None,
    close: Callable[[], None] = lambda: None,
) -> bool:
    """Make the store of a plan, unless it is there. Returns whether it was made."""
    if is_staged(plan):
        log.info("%s: the store is there already", plan.uri)
        return False
    memory_limit, is_made = working_memory("staging", plan.source, memory_limit), False
    # after a power loss, files may be empty that were written before
    key = fingerprint_of(plan.key, memory_limit, psutil.boot_time())[:16]
    with atomic.building(plan.uri, manifests.is_there, wait, scratch, key) as (target, folder):
        if not is_staged(plan):  # another process made it while this one waited
            made, is_made = build(plan, target, folder, memory_limit, close), True
            engine.trim_memory()  # what the blocks have left
            log.info("%s: %d × %d, %d non-zeros", plan.uri, *made.shape, made.nnz)
    return is_made


def find_store(
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
        The source is missing or broken, or an object, which can be read only once.
    StoreError
        The name is taken by something else.
    CorruptStoreError
        The store is there, but is not what was written.

    See Also
    --------
    stage : Make the store.

    Examples
    --------
    >>> from bigfs import storage
    >>> uri = storage.stage("synthetic:newswire?rows=100")
    >>> storage.find_store("synthetic:newswire?rows=100") == uri
    True
    >>> storage.find_store("synthetic:newswire?rows=100", "other.zarr") is None
    True
    """
    settings = {k: v for k, v in settings.items() if k not in ("memory_limit", "wait", "scratch")}
    plan = make_plan(source, store, **settings)
    return plan.uri if is_staged(plan) else None


# --- what to stage, and under which name ----------------------------------------------------------


@contextlib.contextmanager
def spool_source(
    source: Source, store: Any, scratch: Any, memory_limit: int | str | None
) -> Iterator[Source]:
    """Read a stream to its end, and yield the source of what was read for the block."""
    uri = manifests.normalize_uri(store or Path(".bigfs") / source.path)
    if store is not None:
        require_free(uri)
    limit = working_memory("staging", source, memory_limit)
    with atomic.spool_folder(uri, scratch) as folder:
        with telling_base(source), engine.limit_memory(limit):
            ready = source.spool(folder)
        yield ready


def make_plan(
    source: Any,
    store: str | os.PathLike[str] | None,
    *,
    format: str | None = None,
    tile_rows: int | None = None,
    weight: str | None = None,
    target_sum: float | None = None,
    scale: str = AUTO,
    sublinear_tf: bool = True,
    spool: Callable[[Source], Source] | None = None,
    **options: Any,
) -> Plan:
    """Return the plan for the parameters of `bigfs.storage.stage`. A stream is spooled before."""
    terms = {field.name for field in fields(Weighting)} & set(options)
    text = {name: options.pop(name) for name in terms}
    require_count("tile_rows", tile_rows)
    weighting = make_weighting(sublinear_tf=sublinear_tf, **text)
    if isinstance(source, Source):
        source = source.absolute()
    else:
        source = find(source, format=format, **options)
    settings: dict[str, Any] = {"tile_rows": tile_rows}
    if isinstance(source, TextSource):
        settings |= weighting.to_settings()
        source = weighting.with_memory(source)
    else:
        assert isinstance(source, MatrixSource)
        fit = {"sublinear_tf": weight == TFIDF, "hashing": source.may_have_names}
        if given := sorted(name for name in weighting.changes() if not fit.get(name)):
            raise SourceError(
                f"{source.path} is a matrix, and {', '.join(given)} is for text: leave it out"
            )
        if weighting.hashing:
            settings["hashing"] = weighting.hashing
            source = source.replace(hashing=weighting.hashing)
    is_text = isinstance(source, TextSource)
    settings |= unit_settings(weight, scale, sublinear_tf, target_sum, is_text, source.path)
    if source.reads_once and spool is not None:
        source = spool(source)
    fingerprint = source.fingerprint()
    reader = source.format, source.version, *([WORDS] if is_text else [])
    key = fingerprint_of("store", manifests.VERSION, *reader, fingerprint, sorted(settings.items()))
    uri = manifests.normalize_uri(store or default_store(source, key))
    return Plan(source, fingerprint, weighting, settings, key, uri)


def default_store(source: Source, key: str) -> Path:
    """Return the store's path if the user names none."""
    stem = re.sub(r"[^\w.-]+", "-", Path(source.path).name.split(".")[0] or "corpus")
    return Path(".bigfs") / f"{stem}-{key[:12]}.zarr"


def is_staged(plan: Plan) -> bool:
    """Return whether the store of a plan is there already. A damaged one is an error."""
    if not manifests.is_there(plan.uri):
        require_free(plan.uri)
        return False
    manifest = manifests.manifest_of(plan.uri)
    if manifest.source.get("staged", manifest.key) != plan.key:  # a store that grew has another key
        raise StoreError(
            f"{plan.uri} holds {manifest.source['uri']}, which has changed since or "
            f"was staged with other settings: give another name or remove it"
        )
    require_whole(StoreRef(plan.uri, manifest.content))
    return True


def require_free(uri: str) -> None:
    """Refuse the name of a file or folder that is no store."""
    if "://" not in uri and os.path.exists(uri) and not manifests.exists(uri):
        raise StoreError(f"{uri} exists and is not a store: give another name or remove it")
