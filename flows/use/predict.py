"""Fit the model of a run, and predict stores and sources with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs import engine, storage
from bigfs.evaluation import large_model, linear_model
from bigfs.evaluation.linear_model import map_rows
from bigfs.evaluation.metrics import REAL
from bigfs.evaluation.scoring import score_predictions
from bigfs.evaluation.splits import labeled_rows, training_sample
from bigfs.flows.use.files import (
    is_parquet,
    is_table,
    label_sets,
    label_type,
    require_ours,
    with_suffix,
    write_parquet,
    write_table,
)
from bigfs.storage import atomic
from bigfs.storage.anndata_view import open_in_place
from bigfs.storage.corpus import Corpus
from bigfs.storage.errors import SourceError
from bigfs.storage.format import manifest
from bigfs.storage.runs.models import Model, NameUnits, TableUnits, TextUnits
from bigfs.storage.runs.runs import Run
from bigfs.storage.scaling import Scaling, require_counts, scaling_of
from bigfs.storage.sources import find
from bigfs.storage.sources.base import (
    Documents,
    MatrixSource,
    Source,
    TextSource,
    parse_options,
    seen_by_workers,
)
from bigfs.storage.sources.samples import OBS_ROLES, split_names
from bigfs.storage.sources.tables.kinds import AUTO
from bigfs.storage.sources.tables.numeric import NumericTable
from bigfs.storage.sources.tables.tables import Table
from bigfs.storage.staging import build
from bigfs.storage.staging.named import Columns, name_lines, read_numbered
from bigfs.storage.staging.scratch import RowBlock, open_samples, read_block
from bigfs.storage.staging.text.vectorize import weigh_by
from bigfs.storage.staging.text.weighting import Weighting
from bigfs.types import AnyArray, IntArray

Answer = Callable[[Any], Any]  # of the model to some rows: predictions, or decision values
HEADER = ("sample", "prediction")
# options that say what the columns of a source are, and not which labels or samples to take
READING = {
    *("text", "columns", "categories", "missing", "x", "sample_shape", "transpose", "layer", "raw"),
    *("format", "delimiter", "encoding", "header", "quote", "escape", "decimal"),
    *("indices", "values", "features", "triplets", "n_features", "zero_based", "by_name", "names"),
}
ROLES = {"label", "split", "name", *OBS_ROLES}  # options that name columns other than the features
CSV, PARQUET, ABOUT = ".csv", ".parquet", "predictions"


class Predictions(NamedTuple):
    """The output of `predict`: the file, the number of rows, and the scores where they have
    labels."""

    file: Path
    rows: int
    scores: dict[str, float]
    left_out: int = 0  # values whose names the model does not have, if it would have them all


# --- the model of a corpus ------------------------------------------------------------------------


def _model_of(corpus: Any, columns: IntArray, linear: linear_model.LinearModel) -> Model:
    names = [str(name) for name in corpus.feature_names[columns]]
    return Model(
        linear=linear,
        columns=columns,
        names=names,
        n_features=corpus.X.shape[1],
        class_names=list(corpus.class_names),
        text=_text_units(corpus),
        units=scaling_of(corpus),
        naming=_name_units(corpus),
        table=_table_units(corpus, names),
    ).without_other_columns()


@contextlib.contextmanager
def fitting_model(
    corpus: Any, train: Any, selected: IntArray, *, logistic: bool = False
) -> Iterator[Callable[[], Model]]:
    """Fit the linear model on the selected columns of the training samples once, and beside what
    the block does where one task fits it.

    Where samples and classes are many, a part of the samples trains it: see `training_sample`.
    """
    X, y = training_sample(train.X, train.y)
    columns = np.sort(selected)
    if large_model.choose_strategy(X, y, columns, logistic=logistic) == large_model.IN_MEMORY:
        fitting: Any = linear_model.fitting_columns(X, y, columns, logistic=logistic)
    else:
        fitting = contextlib.nullcontext(
            partial(large_model.fit_columns, X, y, columns, logistic=logistic)
        )
    with fitting as fitted:
        yield cache(lambda: _model_of(corpus, columns, fitted()))


def _text_units(corpus: Any) -> TextUnits | None:
    """Return the vocabulary and the idf of a corpus of text."""
    if not isinstance(corpus, Corpus) or "min_df" not in corpus.manifest.settings:
        return None
    settings = {k: v for k, v in corpus.manifest.settings.items() if k != "tile_rows"}
    terms = None if settings.get("hashing") else b"".join(name_lines(corpus.feature_names))
    return TextUnits(settings, terms, corpus.store.read("var/idf"))


def _name_units(corpus: Any) -> NameUnits | None:
    """Return the names of the columns of a matrix that has some."""
    about = getattr(corpus, "manifest", None)
    settings = {} if about is None else about.settings
    if "min_df" in settings or corpus.X.feature_names is None:
        return None
    by_name = about is not None and bool(about.source.get("by_name"))
    hashing = settings.get("hashing")
    lines = None if hashing else b"".join(name_lines(corpus.feature_names))
    return NameUnits({"by_name": by_name, "hashing": hashing}, lines)


def _table_units(corpus: Any, names: Sequence[str]) -> TableUnits | None:
    """Return what the columns of a table hold."""
    about = {} if not isinstance(corpus, Corpus) else corpus.manifest.source
    if "categorical" not in about or corpus.manifest.settings.get("hashing"):
        return None
    decided, options = about.get("decided", {}), about.get("options", {})
    fill = decided.get("missing") or options.get("missing")
    return TableUnits.of(names, about["categorical"], decided.get("means") or {}, fill)


# --- predict --------------------------------------------------------------------------------------


def predict(
    run: str | Path,
    data: str,
    out: str | Path,
    *,
    part: str | None = None,
    format: str | None = None,
    scores: bool = False,
    memory_limit: int | str | None = None,
) -> Predictions:
    """Predict the samples of a store or a source with the model of a run.

    With `scores` the table has the decision value of each class or label too.
    """
    opened, file = Run.open(run), with_suffix(out, (CSV, PARQUET))
    model = opened.model()
    require_ours(file, _is_ours)
    if scores and model.linear.kind in REAL:
        raise ValueError(f"--scores are of classes, and {run} predicts real values")
    answer, left_out = model.linear.decision if scores else model.linear.predict, 0
    if manifest.exists(manifest.normalize_uri(data)) or open_in_place(data) is not None:
        if format is not None:
            raise ValueError(f"{data} is a store, and --format is for a source: leave it out")
        corpus = storage.open(data)
        corpus = corpus if part is None else corpus.part(part)
        index = _columns_in(model, corpus, str(run))
        answers = map_rows(answer, corpus.X, index)
        names: Any = corpus.sample_names
    else:
        if part is not None:
            raise ValueError(f"{data} is a source, and --part names a part of a store")
        with atomic.workplace(file.absolute()) as scratch:  # where all workers see it
            source = _source_like(opened, data, format)
            source = source.as_decided(opened.metadata.get("decided", {}))
            if isinstance(source, NumericTable) and model.table and not model.needs_all:
                source = source.only(model.names, model.table.numbers)
            names, answers, left_out = _predict_source(
                *(model, answer, source, memory_limit, scratch), run=str(run)
            )
            corpus = None
    predicted = model.linear.answer(answers) if scores else answers
    _write(file, names, model, predicted, answers if scores else None)
    return Predictions(
        file, len(names), {} if corpus is None else _scores(model, corpus, predicted), left_out
    )


def _source_like(run: Run, data: str, format: str | None) -> Source:
    """Return a source, which is read as that of the run but for options of its own, if it is of the
    same kind. The columns of a table that hold labels and the like may be missing.
    """
    about = run.metadata.get("corpus", {})
    name, _, query = about.get("source", "").partition("?")
    file, _, own = (data, "", "") if "://" in data or Path(data).exists() else data.partition("?")
    is_other = not Path(name).suffix == Path(file).suffix != ""
    if format is not None or is_other or ("://" in data and "?" in data):
        return find(data, format=format)
    data, given = file, parse_options(own)
    options = parse_options(query) | about.get("settings", {})
    reading = {option: value for option, value in options.items() if option in READING}
    if "columns" in reading:  # of which the model tells the chosen ones
        reading = {k: v for k, v in reading.items() if k != "categories"} | {"columns": AUTO}
    reading |= given
    source = find(data, **reading)
    roles = {o: value for o, value in options.items() if o in ROLES and o not in given}
    if isinstance(source, Table) and roles:
        there = set(source.column_names())
        found = {o: name for o, name in roles.items() if there.issuperset(split_names(name))}
        source = find(data, **reading, **found)
    return source


def _columns_in(model: Model, corpus: Any, run: str) -> IntArray:
    """Return where the columns of the model lie in a corpus: at the same place, or by name."""
    index, units = _places_in(model, corpus, run), scaling_of(corpus)
    if not _same_units(model.units, None if units is None else units.of_columns(index)):
        raise ValueError(
            f"{corpus.uri} does not have the weight or the scale of {run}: predict from the source "
            f"itself, bigfs predict {run} SOURCE OUT"
        )
    return index


def _places_in(model: Model, corpus: Any, run: str) -> IntArray:
    d, columns = corpus.X.shape[1], model.columns
    if columns.max() < d and list(corpus.feature_names[columns]) == model.names:
        return columns
    is_hashed = model.naming is not None and model.naming.lines is None
    if is_hashed and _name_units(corpus) == model.naming:
        return columns  # other names came first there
    if model.text is not None:
        raise ValueError(
            f"{corpus.uri} does not have the vocabulary of {run}: predict from the texts "
            f"themselves, bigfs predict {run} SOURCE OUT"
        )
    return _by_name(model, corpus.feature_names[:], str(corpus.uri))


def _same_units(ours: Scaling | None, theirs: Scaling | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return ours.settings == theirs.settings and np.array_equal(ours.factors, theirs.factors)


def _by_name(model: Model, names: Sequence[str], place: str) -> IntArray:
    position = {str(name): j for j, name in enumerate(names)}
    missing = [name for name in model.names if name not in position]
    if missing:
        raise ValueError(
            f"{place} lacks {len(missing)} of the {len(model.names)} features of the model, such "
            f"as {missing[0]}"
        )
    return np.array([position[name] for name in model.names], dtype=np.int64)


def _scores(model: Model, corpus: Any, predicted: Any) -> dict[str, float]:
    """Return the scores of predictions, if the corpus has targets of the model's classes."""
    y, linear = corpus.y, model.linear
    if not labeled_rows(y).any() or corpus.spec["target"] != linear.kind:
        return {}
    if linear.kind != "real" and list(corpus.class_names) != model.class_names:
        return {}
    return score_predictions(linear, predicted, y)


# --- a source, in pieces --------------------------------------------------------------------------


def _predict_source(
    model: Model,
    answer: Answer,
    source: Source,
    memory_limit: int | str | None,
    scratch: Path,
    *,
    run: str,
) -> tuple[AnyArray, Any, int]:
    """Return the names of the samples of a source, the answers of the model, and the number of
    values whose names the corpus of the model lacks.
    """
    owns_columns = model.naming is not None and not model.needs_all
    model = model.of_chosen_columns() if owns_columns else model
    data, columns = source.path, _columns_of(model, run)
    is_text = isinstance(source, TextSource)
    if isinstance(source, MatrixSource):
        source = columns.adopt(source)
    room = build.working_memory("predicting", source, memory_limit)
    if is_text != (model.text is not None):
        new, old = ("text", "a matrix") if is_text else ("a matrix", "text")
        raise SourceError(f"{data} is {new}, but the model was made of {old}")
    with engine.limit_memory(room):
        ready = source.prepare(scratch).replace(memory_limit=room)
    left_out = 0
    if model.text is not None:
        assert isinstance(ready, TextSource)
        parts = _predict_texts(model.text, answer, model.columns, ready, scratch, room)
    else:
        assert isinstance(ready, MatrixSource)
        pieces, ready = build.pieces_of(ready, room), columns.number(ready, scratch)
        if (ready.n_features or 0) > model.n_features:
            raise SourceError(
                f"{data} has {ready.n_features} columns, but the model was made of "
                f"{model.n_features}"
            )
        counted = engine.map_tiles(
            *(_predict_piece, pieces, ready, answer, model.columns, model.n_features),
            engine.Shared(model.units),
            label="predict",
        )
        parts = [part for part, _, _ in counted]
        left_out = sum(count for _, count, _ in counted)
        if owns_columns and any(kept for _, _, kept in counted):
            left_out = 0  # most are of columns that were not chosen, whose names it does not keep
    if not parts:
        raise SourceError(f"{data} holds no samples")
    names, answers = zip(*parts, strict=True)
    return _joined(names), _joined(answers), left_out


def _columns_of(model: Model, run: str) -> Columns:
    """Return the columns of the corpus of a model."""
    naming, place = model.naming, f"the corpus of {run}"
    if naming is None:
        return Columns(place, model.n_features)
    kept = naming.lines
    lines: Callable[[], Iterable[bytes]] | None = None
    if kept is not None:
        lines = partial(list, [kept])
    elif not model.needs_all:
        lines = partial(name_lines, model.names)
    return Columns(place, model.n_features, lines, **naming.settings)


def _predict_piece(
    piece: Any,
    source: MatrixSource,
    answer: Answer,
    columns: IntArray,
    d: int,
    units: Scaling | None,
) -> tuple[tuple[Any, Any], int, int]:
    """Return names and answers, and how many values had no known name and how many had one."""
    with seen_by_workers(source.path):
        rows, left_out = read_numbered(source, piece)
    X = rows.X.astype(np.float32)
    X.resize(X.shape[0], d)  # a piece is as wide as its widest row
    if units is not None:
        if units.weighs_rows:
            require_counts(X, source.path, units.settings["weight"])
        Z = units.pick(X, columns)
    else:
        Z = X[:, columns]
    return (_names(rows.samples.get("name"), X.shape[0]), answer(Z)), left_out, X.nnz


def _names(names: Any, n: int) -> AnyArray:
    """Return the names of n samples, "" where one is missing."""
    if names is None:
        return np.full(n, "", dtype=object)
    return np.asarray(names.fill_null("").to_numpy(zero_copy_only=False), dtype=object)


def _predict_texts(
    text: TextUnits,
    answer: Answer,
    columns: IntArray,
    source: TextSource,
    scratch: Path,
    room: int,
) -> list[tuple[Any, Any]]:
    """Count and weigh documents with the vocabulary and the idf of the model, and predict them."""
    weighting = Weighting.from_settings(text.settings)
    source = weighting.with_memory(source)
    pieces = build.pieces_of(source, room)
    terms = None if text.terms is None else [text.terms]
    blocks = weigh_by(_Unlabeled(source), pieces, weighting, text.idf, terms, scratch)
    return engine.map_tiles(_predict_block, blocks, answer, columns, len(text.idf), label="predict")


class _Unlabeled:
    """The documents of a source in their order, without labels and splits."""

    labels_are_typed = True

    def __init__(self, source: TextSource) -> None:
        self.source = source

    def read(self, piece: Any) -> Iterator[Documents]:
        for documents in self.source.read(piece):
            names = documents.samples.get("name")
            yield documents._replace(samples={} if names is None else {"name": names})


def _predict_block(
    block: RowBlock, answer: Answer, columns: IntArray, d: int
) -> tuple[AnyArray, Any]:
    X = read_block(block, d)
    names = open_samples(block.path, "name") if block.told.named else None
    return _names(names, block.rows), answer(X[:, columns])


def _joined(parts: Sequence[Any]) -> Any:
    """Join the names or the predictions of the pieces."""
    if sp.issparse(parts[0]):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts)


# --- the table ------------------------------------------------------------------------------------


def _is_ours(file: Path) -> bool:
    is_parquet_file = file.suffix.lower() == PARQUET
    return is_parquet(file, ABOUT) if is_parquet_file else is_table(file, HEADER, more=True)


def _write(file: Path, names: Any, model: Model, predicted: Any, scores: Any) -> None:
    """Write the table. A label set is a list in Parquet, and joined by commas in CSV. Each of
    several real targets has a column.

    A sample without a name has its number.
    """
    kind, is_set = model.linear.kind, model.linear.kind == "multilabel"
    samples = [name or str(i) for i, name in enumerate(np.asarray(names).tolist())]
    values: list[Any] = (
        label_sets(predicted, model.class_names) if is_set else model.labels_of(predicted).tolist()
    )
    columns: dict[str, Any] = {HEADER[1]: values}
    if kind == "multioutput":
        named = [f"{HEADER[1]} {name}" for name in model.class_names]
        columns = dict(zip(named, predicted.T.tolist(), strict=True))
        kind = "real"
    types = [label_type("class"), *[label_type(kind)] * len(columns)]
    if scores is not None:  # of two classes it is that of the second
        scores = scores.reshape(len(samples), -1)
        classes = model.linear.classes[-scores.shape[1] :]
        named = [f"score {model.class_names[code]}" for code in classes]
        columns |= zip(named, scores.T.tolist(), strict=True)
        types += [label_type("real")] * len(named)
    if file.suffix.lower() == PARQUET:
        fields = list(zip([HEADER[0], *columns], types, strict=True))
        write_parquet(file, fields, iter([[samples, *columns.values()]]), ABOUT)
        return
    if is_set:
        columns[HEADER[1]] = [",".join(labels) for labels in values]
    write_table(file, [HEADER[0], *columns], zip(samples, *columns.values(), strict=True))
