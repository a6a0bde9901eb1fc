"""The formats of sources, and `find`, which returns the source behind a path or an object."""

from __future__ import annotations

import inspect
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bigfs.advice import closest
from bigfs.plugins import plugins
from bigfs.storage.downloads import catalog, remote
from bigfs.storage.errors import SourceError, redact
from bigfs.storage.sources import labeled, samples
from bigfs.storage.sources.anndata import AnnData
from bigfs.storage.sources.arrays import Npy, Npz
from bigfs.storage.sources.base import MatrixSource, Source, TextSource, parse_options, shorten
from bigfs.storage.sources.files import (
    CORPORA,
    POINTER,
    data_suffixes,
    head,
    is_pattern,
    list_files,
    looks_like,
    require_no_other_format,
    require_plain,
    source_errors,
    walk,
)
from bigfs.storage.sources.joined import join
from bigfs.storage.sources.matlab import Mat
from bigfs.storage.sources.matrixmarket import MatrixMarket, matrices_in
from bigfs.storage.sources.objects import recognize
from bigfs.storage.sources.rcv1 import Topics
from bigfs.storage.sources.svmlight.source import Svmlight
from bigfs.storage.sources.synthetic.source import CORPORA as GENERATED
from bigfs.storage.sources.synthetic.source import PREFIX, Synthetic
from bigfs.storage.sources.tables.columnar import ColumnFile
from bigfs.storage.sources.tables.formats import BY_OPTION, Arrow, Parquet
from bigfs.storage.sources.tables.jsonl import JsonFeatures, JsonLines
from bigfs.storage.sources.tables.kinds import AUTO
from bigfs.storage.sources.tables.records import Records
from bigfs.storage.sources.tables.tables import Csv
from bigfs.storage.sources.text import Text, require_documents
from bigfs.storage.sources.vw import LibFfm, VowpalWabbit

PLAIN = (str, int, float, list, tuple)  # types of options that the manifest keeps
KINDS: list[type[Source]] = [  # in the order in which they are tried
    Synthetic,
    Npy,
    Npz,
    Mat,
    MatrixMarket,
    VowpalWabbit,
    LibFfm,
    Parquet,
    Arrow,
    AnnData,
    JsonFeatures,
    JsonLines,
    Csv,
    Text,
    Svmlight,
    *(kind for kinds in BY_OPTION.values() for kind in kinds.values() if not kind.reads_once),
]
OURS: dict[str, type[Source]] = {kind.format: kind for kind in KINDS}
# formats of other packages are tried first, as ours take many files
FORMATS: dict[str, type[Source]] = (
    plugins("bigfs.sources", OURS, lambda kind: isinstance(kind, type) and issubclass(kind, Source))
    | OURS
)
# what other files become, by their suffix
ADVICE = {
    ".duckdb": "export a table of it to Parquet, as by COPY clicks TO 'clicks.parquet'",
    ".sqlite": "export a table of it to Parquet or CSV",
    ".xlsx": "save the sheet as CSV",
    ".xls": "save the sheet as CSV",
    ".ods": "save the sheet as CSV",
    ".arff": "export it to CSV, or to svmlight if it is sparse, as by the CSVSaver and the "
    "LibSVMSaver of Weka",
}
JSON_ARRAY = re.compile(rb"\s*\[\s*[\[{]")  # of records or of rows
# the tables that a folder may hold
TABLES: tuple[Any, ...] = (Parquet, Arrow, Csv, JsonLines, VowpalWabbit)

# what `_locate` finds: a source, or the kind of one, what it is made of, and its options
Located = Source | tuple[type[Source], Any, dict[str, Any]]


def find(source: Any, *, format: str | None = None, test: Any = None, **options: Any) -> Source:
    """Return the source behind a path or an object, whose content is not read yet.

    It is a file or a folder, ``synthetic:NAME`` for a generated corpus, the URL of a file or, where
    fsspec can list it, of a folder (``https://``, ``s3://``, ``gs://``, ``hf://`` …), or a name of
    `bigfs.storage.downloads.catalog.ENTRIES` if no file has that name. Options may follow, as in
    ``faces.mat?sample_shape=32x32&unlabeled=-1``, after a URL as in
    ``https://example.org/posts.csv#text=body``. Without a format, the content tells it.

    A mapping holds the source of each split, and `test` is the source of the test samples. Options
    and guesses of the training samples hold for the others.
    """
    if test is not None:
        source = {"train": source, "test": test}
    if isinstance(source, Mapping):
        return _of_splits(source, format, options)
    return _construct_located(_locate(source, format, options))


def _of_splits(sources: Mapping[str, Any], format: str | None, options: dict[str, Any]) -> Source:
    """Return the sources of several splits as one, training samples first.

    An option may be a mapping too, with a value for each.
    """
    words = samples.split_words(options.pop("split_map", None))
    splits = {name: samples.split_of(name, words, "a mapping of sources") for name in sources}
    names = sorted(filter(splits.get, sources), key=lambda name: splits[name] != "train")
    if not names or splits[names[0]] != "train":
        raise SourceError(
            f"a mapping of sources has no training samples, only {', '.join(map(str, sources))}: "
            f"give them as train"
        )
    each = {
        option: value
        for option, value in options.items()
        if isinstance(value, Mapping) and set(value) <= set(sources)
    }
    parts: list[tuple[Source, str | None]] = []
    for name in names:
        data = sources[name]
        own = {option: value[name] for option, value in each.items() if name in value}
        if not parts:
            own |= {option: value for option, value in options.items() if option not in each}
        if isinstance(data, tuple) and len(data) == 2:  # a matrix and its labels
            data = [data]
        located = _locate(data, format if isinstance(data, str | os.PathLike) else None, own)
        part = _construct_located(located, parts[0][0] if parts else None)
        parts.append((part, splits[name]))
    first = parts[0][0]
    made, others = _joined(first.path, parts), zip(names[1:], parts[1:], strict=True)
    made.given = {**first.given, **{name: part.path for name, (part, _) in others}}
    return made


def _joined(name: str, parts: list[tuple[Source, str | None]]) -> Source:
    """Return the sources of several splits as one. The topics of the first are those of all."""
    if not isinstance(parts[0][0], Topics):
        return join(name, parts)
    bare = [(p.parts[0][0] if isinstance(p, Topics) else p, split) for p, split in parts]
    return Topics(name, bare, parts[0][0].qrels)


def _construct_located(located: Located, first: Source | None = None) -> Source:
    """Return the source that was located, with the options of the first of several."""
    if isinstance(located, Source):
        return located
    kind, path, options = located
    labels = options.get("labels")
    reader = _by_options(kind, options)
    if labels is not None and issubclass(reader, MatrixSource) and labeled.table_kind(labels):
        own = {name: options[name] for name in labeled.OPTIONS if name in options}
        others = {name: options[name] for name in options if name not in {*own, "labels"}}
        source: Any = _of_table(kind, path, others)
        return labeled.label(source, os.fspath(labels), own)
    if first is not None:
        given = {"optional": "label", **first.given}
        given = {name: value for name, value in given.items() if name not in first.of_samples}
        kinds = _by_options(kind, given | options), kind
        known = set().union(*(inspect.signature(kind).parameters for kind in kinds))
        options = {name: given[name] for name in given if name in known} | options
    return _of_table(kind, path, options)


def _locate(source: Any, format: str | None, options: dict[str, Any]) -> Located:
    """Return where a source is, whose options may follow its path."""
    if format is not None and format not in FORMATS:
        raise SourceError(f"unknown format {format!r}; the formats are {_names()}")
    if not isinstance(source, str | os.PathLike):
        if format is not None:
            raise SourceError(f"format= is for files, and {type(source).__name__} is none")
        kind, data = recognize(source)
        return kind, data, options
    name = str(source)
    if name.startswith(PREFIX):
        return _construct(Synthetic, name, options)
    if remote.is_remote(name):
        url, query = remote.split_options(name)
        options = parse_options(query) | options
        format = options.pop("format", format)
        remote.require_no_secret(url)
        if by_ranges := _kind_by_ranges(url, format):
            return by_ranges, url, options
        if format in (None, AnnData.format) and remote.is_folder(url) and AnnData.is_group(url):
            return _construct(AnnData, url.rstrip("/"), options)
        source = remote.fetch(url)
    elif "://" in name and not os.path.exists(source):
        raise SourceError(
            f"{redact(name)} is neither a file nor the URL of a server: give a path, or a URL of "
            f"{', '.join(sorted(remote.SERVERS))}"
        )
    if not os.path.exists(source):  # also where a text is no path at all
        name, _, query = name.partition("?")
        if query:
            options = parse_options(query) | options
            return _locate(name, options.pop("format", format), options)
        if is_pattern(name):
            return _from_pattern(name, format, options)
        if name in catalog.ENTRIES:
            return _from_catalogue(name, format, options)
        meant = closest(name, [*catalog.ENTRIES, *(PREFIX + corpus for corpus in GENERATED)])
        name = name if len(name) < 500 else shorten(name)
        raise SourceError(
            f"{name} does not exist{meant}"
            if meant
            else f"{name} does not exist: give the path of a file or a folder, a URL, or a name "
            f"that `bigfs datasets` lists"
        )
    kind = _guess(Path(source), format)
    return kind, str(source), options


def _names() -> str:
    """Return the names of the formats, without those that options choose."""
    by_option = {kind for kinds in BY_OPTION.values() for kind in kinds.values()}
    return ", ".join(name for name, kind in FORMATS.items() if kind not in by_option)


def _by_options(kind: type[Source], options: dict[str, Any]) -> type[Source]:
    """Return the kind of source that the options ask for."""
    for option, kinds in BY_OPTION.items():
        if option in options:
            kind = kinds.get(kind, kind)
    return kind


def _of_table(kind: type[Source], path: Any, options: dict[str, Any]) -> Source:
    """Return a source, which is of a table as it comes where no option says what it holds."""
    features = BY_OPTION["columns"].get(kind)
    is_said = features is None or {"text", *BY_OPTION}.intersection(options)
    if features is None or is_said or set(options) - set(inspect.signature(features).parameters):
        return _construct(_by_options(kind, options), path, options)
    table: Any = _construct(features, path, options | {"columns": AUTO})
    is_text = "text" in table.column_names()
    found = None if is_text else table.look()
    path = getattr(table, "tables", path)  # a stream is read from its first records again
    if found is None:
        return _construct(kind, path, options)
    if not found.numbers and not found.categories and len(found.texts) == 1:
        return _construct(kind, path, options | {"text": found.texts[0]})
    if not found.numbers and not found.categories and len(found.vectors) == 1:
        rows = BY_OPTION["features"][kind]
        return _construct(rows, path, options | {"features": found.vectors[0]})
    return _construct(features, path, options | {"columns": AUTO})


def _from_pattern(pattern: str, format: str | None, options: dict[str, Any]) -> Located:
    """Return many files as one table."""
    if not (files := list_files(pattern, ())):
        raise SourceError(f"no file has a name like {pattern}")
    kind = _guess(Path(files[0]), format)
    if not issubclass(kind, Records):
        raise SourceError(
            f"{pattern} names files of the format {kind.format}, and a pattern is for tables and "
            f"JSON Lines: join the files, or stage the first and append the others"
        )
    return kind, pattern, options


def _kind_by_ranges(url: str, format: str | None) -> type[Source] | None:
    """Return the kind of the files behind a URL if they can be read by ranges, and not copied."""
    kinds = [FORMATS[format]] if format else KINDS
    columnar = [kind for kind in kinds if issubclass(kind, ColumnFile)]
    if not columnar:
        return None
    suffixes = [suffix for kind in columnar for suffix in kind.suffixes]
    try:
        files = remote.list_files(url, suffixes)
        is_columnar = format or all(urlsplit(file).path.endswith(tuple(suffixes)) for file in files)
        if not files or not is_columnar:
            return None
        with remote.open_ranges(*next(iter(files.items()))) as file:
            start = file.read(8)
    except SourceError:  # which the copy meets too, or does not need
        return None
    return next((kind for kind in columnar if start.startswith(kind.magic)), None)


def _construct(kind: Any, path: Any, options: dict[str, Any]) -> Source:
    if kind is Svmlight and "topics" in options:
        topics, rest = options["topics"], {n: v for n, v in options.items() if n != "topics"}
        found = Topics(path, [(_construct(kind, path, rest), None)], topics).absolute()
        found.given = {**found.parts[0][0].given, "topics": topics}
        return found
    _, *parameters = inspect.signature(kind).parameters.values()  # the first is the path
    known = {p.name: str(p.annotation) for p in parameters}
    required = [p.name for p in parameters if p.default is p.empty]
    if unknown := sorted(set(options) - set(known)):
        meant = closest(unknown[0], [*known, *BY_OPTION])
        if "y" in unknown and "label" in known:
            meant = ", which is for arrays: name the column of the labels by label="
        elif takers := BY_OPTION.get(unknown[0]):
            meant = f": it is for {', '.join(k.format for k in takers if k in FORMATS.values())}"
        raise SourceError(
            f"{kind.format} has no option {', '.join(unknown)}"
            + (meant or f"; it has {', '.join(known) or 'none'}")
        )
    if missing := [name for name in required if name not in options]:
        raise SourceError(f"{kind.format} needs the option {', '.join(missing)}=")
    options = {name: _convert(value, known[name], name) for name, value in options.items()}
    made: Source = kind(path, **options)
    made.check()
    made.given = {
        name: value
        for name, value in options.items()
        if isinstance(value, str if name in (*kind.of_samples, "names") else PLAIN)
    }
    return made.absolute()


def _convert(value: Any, wanted: str, name: str) -> Any:
    """Convert an option that follows the path to the type of its parameter."""
    is_bool = "bool" in wanted
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if not isinstance(value, str) or "str" in wanted or not (is_bool or "int" in wanted):
        return value
    try:
        return {"true": True, "false": False}[value.lower()] if is_bool else int(value)
    except (KeyError, ValueError):
        raise SourceError(
            f"{name} must be {'true or false' if is_bool else 'a whole number'}; got {value!r}"
        ) from None


def _from_catalogue(name: str, format: str | None, options: dict[str, Any]) -> Source:
    """Return a corpus of the catalogue: its files joined, with labels of a separate file if any."""
    entry = catalog.ENTRIES[name]
    paths = catalog.fetch(name)
    parts = [
        (find(path, format=format, **options), file.split)
        for path, file in zip(paths, entry.files, strict=True)
        if file.name != entry.topics
    ]
    if isinstance(parts[0][0], TextSource):
        return parts[0][0]
    d = entry.shape[1]
    if entry.topics:
        return Topics(name, parts, str(paths[-1]), n_features=d)
    return join(name, parts, n_features=d, sample_shape=entry.sample_shape)


def _guess(path: Path, format: str | None) -> type[Source]:
    """Return the kind of a file or folder, whose format may be given."""
    if path.is_dir():
        return _guess_folder(path, format)
    require_plain(str(path))
    if format is not None:
        return FORMATS[format]
    if not path.stat().st_size:
        raise SourceError(f"{path} is empty")
    if advice := ADVICE.get(path.suffix.lower()):
        raise SourceError(f"{path} cannot be read as it is: {advice}")
    if path.name.startswith("docword."):
        raise SourceError(
            f"{path} looks like a bag of words of UCI: make it Matrix Market, by the lines "
            f"'%%MatrixMarket matrix coordinate integer general' and 'DOCUMENTS WORDS ENTRIES' in "
            f"place of its first three"
        )
    start = head(path)
    if start.startswith(POINTER):
        raise SourceError(f"{path} {looks_like(start)}")
    if start.startswith(b".I "):
        raise SourceError(
            f"{path} holds the tokens of RCV1: stage its vectors, with the file of the topics as "
            f"'vectors.dat?topics=FILE'"
        )
    if JSON_ARRAY.match(start):
        raise SourceError(
            f"{path} is one JSON array, and JSON Lines has one object per line: turn it into "
            f"lines, as by jq -c '.[]' {path.name} > rows.jsonl"
        )
    for kind in FORMATS.values():
        if kind.sniff(path, start):
            if kind is Text and zipfile.is_zipfile(path):
                with source_errors(f"{path} is broken"), zipfile.ZipFile(path) as archive:
                    require_documents(str(path), archive.namelist())
            return kind
    if looks := looks_like(start):
        raise SourceError(f"{path} {looks}")
    if start.lstrip()[:1] == b"{":
        raise SourceError(
            f"{path} is one JSON object over several lines, and JSON Lines has one object per "
            f"line: write one line for each sample, as by jq -c"
        )
    raise SourceError(
        f"the format of {path} cannot be detected: name it with format=, one of {_names()}"
    )


def _guess_folder(path: Path, format: str | None) -> type[Source]:
    """Return the kind of a folder by the suffixes of all its files, or refuse a mixture."""
    for kind in FORMATS.values():
        if format in (None, kind.format) and kind.sniff(path, b""):
            return kind
    names = walk(path)
    require_no_other_format(str(path), names)
    if not names:
        raise SourceError(
            f"{path} holds no file that is seen: give a folder with one subfolder of text files "
            f"per class (names that begin with . or _ are not seen)"
        )
    if format is not None:
        return FORMATS[format]
    if any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        raise SourceError(
            f"{path} is Zarr, and no AnnData: save its matrix as .npy or .npz, or as AnnData"
        )
    suffixes = data_suffixes(names)
    tables = {s: kind for kind in TABLES for s in kind.suffixes if s in suffixes}
    others = [suffix for suffix in suffixes if suffix not in tables]
    alone = [suffix for suffix in others if suffix in CORPORA]
    if alone == [".mtx"] and len(matrices_in(str(path))) == 1:
        return MatrixMarket
    if alone:
        raise SourceError(
            f"{path} holds {suffixes[alone[0]]:,} files {alone[0]}, each of which is a corpus: "
            f"stage one of them, and append the others"
        )
    if not tables:
        return Text
    if others or len(set(tables.values())) > 1:
        counts = ", ".join(f"{n:,} {s or 'without a suffix'}" for s, n in suffixes.most_common(5))
        raise SourceError(
            f"{path} holds files of several kinds ({counts}): give a pattern such as "
            f"'{path}/**/*{next(iter(tables))}', or format=text if all are documents"
        )
    [kind] = set(tables.values())
    if kind is JsonLines:
        first = list_files(str(path), kind.suffixes)[0]
        kind = _guess(Path(first), None)
    return kind
