"""The facts of each sample of a source besides its row: its label, split, name, group, weight …

Every format and every object gives columns of Arrow by these roles, and `read` applies the rules to
them. A value is missing if it is null, NaN or an empty text.

* A sample without a label is unlabeled, and so is one with the value that `unlabeled` names.
* Either all samples have a split or none has one. It is train or test.
* A sample without a name is called by its number.
* Every sample has a group, a batch, a weight and a time where the source has such columns.

Every value that is written as a label is a class: −1 in a file labeled ±1 is the class "-1". Two
labels are one class if their texts are. Whole numbers are exact at any size.

Several columns of labels, or lists of one length where the target is real, are a column of lists of
q floats each, NaN where a value is missing. Columns of zeros and ones are labels, each of which a
sample has or not. Others are real targets.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigfs.storage.errors import SourceError
from bigfs.storage.lazy import compute, pa, types
from bigfs.storage.sources.tables.columns import as_numbers, decode, is_text
from bigfs.types import AnyArray, FloatArray

ROLES = ("label", "split", "name", "group", "batch", "sample_weight", "time")
OBS_ROLES = ROLES[3:]  # those that an option names, and a column of obs holds
CATEGORIES = ("group", "batch")  # the roles whose values are texts of which some are alike
SPLITS = ("train", "test")
TARGETS = ("class", "real", "multilabel")
OBSM = "obsm/"  # before the name of a matrix in obsm whose columns are labels
MAX_EXACT = 2**53  # whole numbers below it are exact as floats
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
# a number as people write it: 007 is a text
NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
MOST_DIGITS = 76  # of a whole number, which Arrow holds as a decimal

Place = Callable[[int], object]  # of a sample, which is written out in messages only
Columns = Mapping[str, Any]  # columns of Arrow by their roles


class LabelRules(NamedTuple):
    """The options of a source about its labels."""

    unlabeled: str | None = None  # a label that also means "none"
    target: str | None = None  # one of `TARGETS`, or None to let the labels decide
    separator: str | None = None  # that divides the labels of a sample in one text


def split_words(split_map: str | Mapping[str, str | None] | None) -> dict[str, str | None]:
    """Return the split of each word in ``validation=test,extra=``: None leaves its samples out."""
    if isinstance(split_map, str):
        pairs = [part.partition("=") for part in split_map.split(",") if part.strip()]
        split_map = {word.strip(): split.strip() for word, _, split in pairs}
    words = {word: split or None for word, split in (split_map or {}).items()}
    for word, split in words.items():
        if split not in (*SPLITS, None):
            raise SourceError(
                f"split_map= must say train, test or nothing for each name of a split, such as "
                f"validation=test,extra=; got {shorten(f'{word}={split}')}"
            )
    return {**{split: split for split in SPLITS}, **words}


def split_of(word: object, words: Mapping[str, str | None], place: object) -> str | None:
    """Return the split that a word means by `split_words`, or refuse it."""
    if isinstance(word, str) and word in words:
        return words[word]
    advice = f": say which one it is by split_map={word}=test" if isinstance(word, str) else ""
    raise SourceError(f"{place}: the split must be train or test; got {shorten(word)}{advice}")


def require_target(target: str | None, columns: Sequence[str] = ()) -> None:
    """Refuse a kind of target that there is not, or classes in several columns of labels."""
    if target not in (None, *TARGETS):
        raise SourceError(f"target must be class, real or multilabel; got {shorten(target)}")
    if columns and target == "class":
        raise SourceError(
            "label= names several columns, which are labels that hold 0 or 1, or real targets: "
            "leave target=class out, or name one column"
        )


def shorten(value: object, length: int = 80) -> str:
    """Return a value for a message: in ASCII, and cut if it is long."""
    text = ascii(value)
    return text if len(text) <= length else f"{text[:length]}…"


def without_surrogates(text: str) -> str:
    """Replace each lone half of a surrogate pair by a ?, as it has no bytes in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def place_in(parts: Sequence[tuple[int, Place]]) -> Place:
    """Return the places of the samples of parts, each given by its length and its places."""
    ends = np.cumsum([length for length, _ in parts])

    def place(i: int) -> object:
        part = int(np.searchsorted(ends, i, side="right"))
        length, inside = parts[part]
        return inside(i - int(ends[part]) + length)

    return place


def row_places(origin: str, first: int = 0) -> Place:
    """Return the places of rows, of which the first has a number."""
    return lambda i: f"{origin}: row {first + i} (from 0)"


def take(columns: Columns, index: AnyArray) -> dict[str, Any]:
    """Return the columns of some of the samples."""
    return {role: column.take(from_numpy(np.asarray(index))) for role, column in columns.items()}


def write(path: str | Path, columns: Columns) -> None:
    """Write columns of the same samples to a file."""
    batch = pa.RecordBatch.from_pydict({role: columns[role] for role in sorted(columns)})
    with open(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as out:
        out.write_batch(batch)


def open_columns(path: str | Path) -> Any:
    """Map the columns of a file that `write` wrote, as a batch of Arrow."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)


# --- columns of Arrow -----------------------------------------------------------------------------

# Arrow's own ways between a column and NumPy or Python import pandas: 0.2 s and 29 MB per worker


def from_numpy(values: AnyArray, missing: AnyArray | None = None) -> Any:
    """Return numbers as a column of Arrow, null where `missing` says so."""
    bits = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    kind, values = pa.from_numpy_dtype(values.dtype), np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(values)])


def to_numpy(column: Any, missing: float = 0) -> AnyArray:
    """Return a column of numbers or Booleans of Arrow, with a value in place of missing ones."""
    if pa.types.is_boolean(column.type):
        return to_numpy(column.cast(pa.uint8()), missing).astype(bool)
    buffers = [None, column.buffers()[1]]
    values = pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)
    found: AnyArray = np.from_dlpack(values)
    if column.null_count:
        found = np.where(to_numpy(column.is_valid()), found, found.dtype.type(missing))
    return found


def from_texts(texts: Sequence[str | None]) -> Any:
    """Return texts as a column of Arrow."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    is_text = np.array([text is not None for text in texts], dtype=bool)
    bits = np.packbits(is_text, bitorder="little")
    buffers = [*map(pa.py_buffer, (bits, ends, b"".join(encoded)))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


def as_column(values: Any, what: str, stays_matrix: bool = False) -> Any:
    """Return one value per sample as a column of Arrow.

    An indicator matrix (n × c) becomes lists of column numbers, unless it `stays_matrix`: lists of
    floats, as real targets are. `what` is written out in an error only.
    """
    if sp.issparse(values):
        return _of_matrix(values, what, stays_matrix)
    if isinstance(values, np.ndarray) or (
        hasattr(values, "__array__") and not hasattr(values, "iloc")
    ):
        values = np.asanyarray(values)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.reshape(-1)
        if values.ndim == 2:
            return _of_matrix(values, what, stays_matrix)
        if values.ndim != 1:
            raise SourceError(f"{what}: one value per sample is needed; got {values.shape}")
        if values.dtype.kind == "f" and values.dtype.itemsize > 8:
            if not np.array_equal(values.astype(np.float64), values, equal_nan=True):
                raise SourceError(f"{what}: numbers of {values.dtype} do not fit in float64")
            values = values.astype(np.float64)
        if values.dtype.kind in "SV":
            raise SourceError(f"{what}: the values must be texts or numbers; got {values.dtype}")
        if type(values) is np.ndarray and values.dtype.kind in "iuf" and values.dtype.isnative:
            return from_numpy(values)
        if isinstance(values, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(values)
            return pa.array(np.ma.getdata(values), mask=mask, from_pandas=True)
    elif not hasattr(values, "iloc"):
        values = list(values)
    try:
        column = pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise SourceError(
            f"{what}: the values must be all numbers, all texts or all lists, one per row: "
            f"{str(error).splitlines()[0]}"
        ) from error
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _of_matrix(values: Any, what: str, stays_matrix: bool) -> Any:
    """Return the rows of a matrix as lists: of the columns that hold 1, or of real targets."""
    dense = values.toarray() if sp.issparse(values) and stays_matrix else values
    if not sp.issparse(dense):
        try:
            dense = np.ma.filled(np.ma.asarray(dense, dtype=np.float64), np.nan)
        except (TypeError, ValueError) as error:
            raise SourceError(f"{what}: several targets per sample must be numbers") from error
        is_real = ~np.isin(dense, (0, 1)).all(axis=0)
        if stays_matrix or is_real.all():
            return _rows(dense, f"{what}: row {{}} (from 0)".format)
        if is_real.any():
            raise SourceError(
                f"{what}: a column for each label must hold 0 or 1, and column "
                f"{int(np.argmax(is_real))} (from 0) does not: give target=real if all columns are "
                f"real targets"
            )
    sets = sp.csr_array(values)
    sets.eliminate_zeros()
    if not (sets.data == 1).all():
        raise SourceError(
            f"{what}: a column for each label must hold 0 or 1: give target=real if all columns "
            f"are real targets"
        )
    return pa.ListArray.from_arrays(sets.indptr.astype(np.int32), sets.indices.astype(np.int32))


def _rows(Y: AnyArray, place: Place = "row {}".format) -> Any:
    """Return the rows of a matrix of floats as a column of lists of one length."""
    if (is_wrong := np.isinf(Y).any(axis=1)).any():
        raise _no_scalar("label", np.inf, place(int(np.argmax(is_wrong))))
    return pa.FixedSizeListArray.from_arrays(from_numpy(Y.ravel()), Y.shape[1])


def _listed(values: Sequence[Any]) -> Any:
    """Return values of Python as a column of Arrow, None where one type does not hold them."""
    kinds = set(map(type, values))
    if list in kinds:
        kinds |= {type(value) for some in values if isinstance(some, list) for value in some}
    if bool in kinds and kinds & {int, float}:  # which Arrow takes for numbers
        return None
    try:
        return (
            from_texts(values) if kinds <= {str, type(None)} else pa.array(values, from_pandas=True)
        )
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError):
        return None


# --- what a column says, by its role --------------------------------------------------------------


def read(
    role: str,
    values: Any,
    place: Place,
    rules: LabelRules | None = None,
    words: Mapping[str, str | None] | None = None,
) -> Any:
    """Return the column of a role, as all of staging knows it.

    Labels, groups and batches are codes and categories. A column of label sets holds lists of them.
    Splits and names are texts, weights floats, and times floats or dates in UTC.

    Parameters
    ----------
    role : str
        One of `ROLES`.
    values : array of Arrow or list
        The values as the source has them.
    place : callable
        Gives the place of a sample, for an error.
    rules : LabelRules, default=None
        The rules of the labels.
    words : dict, default=None
        What the words for splits mean, by `split_words`.
    """
    if isinstance(values, np.ndarray):
        values = as_column(values, role)
    elif isinstance(values, list | tuple):
        listed = _listed(values)
        if listed is None and role not in ("sample_weight", "time"):
            values = _mixed(role, values, place)
        elif listed is None:
            values = _listed([value if value is None else str(value) for value in values])
        else:
            values = listed
    if role == "label":
        return _labels(values, place, rules or LabelRules())
    if role == "split":
        return _splits(values, place, split_words(None) if words is None else words)
    if role == "name":
        return _names(values, place)
    if role in CATEGORIES:
        return _category_texts(values, role, place)
    return _weights(values, place) if role == "sample_weight" else _times(values, place)


def _mixed(role: str, values: Sequence[Any], place: Place) -> Any:
    """Return values of several types of Python as a column: whole numbers, floats or texts.

    Where some are lists, all must be.
    """
    is_list = [isinstance(value, list | tuple) for value in values if not _is_none(value)]
    if any(is_list):
        fewer = 2 * sum(is_list) <= len(is_list)
        odd = [
            i
            for i, value in enumerate(values)
            if not _is_none(value) and isinstance(value, list | tuple) == fewer
        ]
        if odd and len(odd) < len(is_list):
            raise mixed_labels(place(odd[0]))
        lists = [[] if _is_none(value) else value for value in values]
        ends = np.cumsum([0, *map(len, lists)])
        owner = np.repeat(np.arange(len(lists)), list(map(len, lists)))
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()),
            _mixed(role, [v for some in lists for v in some], lambda i: place(int(owner[i]))),
        )
    scalars: list[Any] = [
        None if _is_none(v) else _scalar(role, v, place, i) for i, v in enumerate(values)
    ]
    some = [v for v in scalars if v is not None]
    if any(isinstance(v, str) for v in some):
        return pa.array([None if v is None else label_text(v) for v in scalars], pa.large_string())
    if all(isinstance(v, int) or v.is_integer() for v in some):
        most = max((abs(int(v)) for v in some), default=0)
        if most >= 10**MOST_DIGITS:
            i = next(i for i, v in enumerate(scalars) if v is not None and abs(v) == most)
            raise SourceError(
                f"{place(i)}: a {role} has more than {MOST_DIGITS} digits: write it as a text"
            )
        whole = [None if v is None else int(v) for v in scalars]
        return pa.array(whole, pa.int64() if most < 2**63 else pa.decimal256(MOST_DIGITS, 0))
    return pa.array([None if v is None else float(v) for v in scalars], pa.float64())


def _is_none(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def _scalar(role: str, value: Any, place: Place, i: int) -> str | int | float:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        plain = without_surrogates(value)
        if plain != value and role != "name":
            raise SourceError(
                f"{place(i)}: the {role} {shorten(value)} holds half of a surrogate pair, which is "
                f"not a character"
            )
        return plain
    if isinstance(value, int) or (isinstance(value, float) and np.isfinite(value)):
        return value
    raise _no_scalar(role, value, place(i))


def _no_scalar(role: str, value: Any, place: object) -> SourceError:
    kinds = "text, a number or a list of those" if role == "label" else "text or a number"
    return SourceError(f"{place}: a {role} must be a {kinds}; got {shorten(value)}")


def mixed_labels(place: object) -> SourceError:
    """Return the error of a sample whose label is a list where others are not, or the reverse."""
    return SourceError(f"{place}: either all labels or none must be lists, and here it changes")


def mixed_times(place: object) -> SourceError:
    """Return the error of a sample whose time is a date where others are numbers."""
    return SourceError(f"{place}: time= names a column with both numbers and dates: give one kind")


def missing_split(place: object) -> SourceError:
    """Return the error of a sample without a split where others have one."""
    return SourceError(
        f"{place}: the split is missing here, and other samples have one: write train or test for "
        f"every sample, or leave the split out"
    )


# --- scalars: codes and categories ----------------------------------------------------------------


class Coded(NamedTuple):
    """A column as the code of each sample, −1 where it is missing, and the values of the codes."""

    codes: AnyArray
    categories: Any  # distinct values of Arrow, each of which occurs

    def place(self, code: int, place: Place) -> object:
        """Return the place of the first sample with a code."""
        return place(int(np.argmax(self.codes == code)))

    def without(self, missing: AnyArray) -> Coded:
        """Return the column without the categories of a mask, whose samples are missing then."""
        if not missing.any():
            return self
        new = np.where(missing, -1, np.cumsum(~missing) - 1).astype(np.int32)
        kept = from_numpy(np.flatnonzero(~missing))
        return Coded(np.append(new, np.int32(-1))[self.codes], self.categories.take(kept))

    def column(self) -> Any:
        """Return the column as a dictionary of Arrow."""
        codes = from_numpy(self.codes, self.codes < 0)
        return pa.DictionaryArray.from_arrays(codes, self.categories)


def as_codes(column: Any) -> Coded:
    """Return a dictionary of Arrow as codes and the categories that occur."""
    codes = to_numpy(column.indices.cast("int32"), -1)
    used = np.zeros(len(column.dictionary) + 1, dtype=bool)
    used[codes] = True
    return Coded(codes, column.dictionary).without(~used[:-1])


def categories_of(column: Any) -> Any:
    """Return the categories that occur in a column of codes, or in its lists."""
    return as_codes(column if hasattr(column, "dictionary") else column.flatten()).categories


def _coded(values: Any, role: str, place: Place) -> Coded:
    """Return scalars as codes and categories: Booleans as texts, numbers, or texts."""
    if types.is_null(values.type):
        return Coded(np.full(len(values), -1, np.int32), pa.array([], pa.large_string()))
    if not types.is_dictionary(values.type):
        values = decode(values)
        if types.is_float16(values.type):
            values = values.cast(pa.float32())
        if types.is_nested(values.type) or types.is_temporal(values.type):
            raise _no_scalar(role, *_first_value(values, place))
        values = values.dictionary_encode()
    found = as_codes(values)
    categories = decode(found.categories)
    kind = categories.type
    if types.is_boolean(kind):
        categories = compute.if_else(categories, "true", "false").cast(pa.large_string())
    elif types.is_string(kind) or types.is_large_string(kind):
        categories = categories.cast(pa.large_string())
        found = Coded(found.codes, categories).without(
            to_numpy(compute.binary_length(categories)) == 0
        )
        categories = found.categories
        if (bad := to_numpy(compute.match_substring(categories, "\0"))).any():
            code = int(np.argmax(bad))
            raise SourceError(
                f"{found.place(code, place)}: the {role} {shorten(categories[code].as_py())} holds "
                f"the character NUL, which a store cannot hold"
            )
    elif types.is_floating(kind):
        categories = categories.cast(pa.float64())
        found = Coded(found.codes, categories).without(to_numpy(compute.is_nan(categories)))
        categories = found.categories
        if (bad := to_numpy(compute.is_inf(categories))).any():
            code = int(np.argmax(bad))
            raise _no_scalar(role, categories[code].as_py(), found.place(code, place))
    elif types.is_decimal(kind):
        whole = compute.equal(categories, compute.round(categories))
        if to_numpy(whole).all():
            categories = categories.cast(pa.decimal256(MOST_DIGITS, 0))
        else:
            categories = categories.cast(pa.float64())
    elif types.is_integer(kind):
        categories = categories.cast(
            pa.decimal256(MOST_DIGITS, 0) if kind == pa.uint64() else pa.int64()
        )
    else:
        raise _no_scalar(role, *_first_value(values, place))
    return Coded(found.codes, categories)


def _first_value(values: Any, place: Place) -> tuple[Any, object]:
    """Return the first value that is there, and its place."""
    i = int(np.argmax(to_numpy(values.is_valid())))
    return values[i].as_py(), place(i)


def label_text(value: Any) -> str:
    """Return the text of a label. Whole numbers have no point, so that 1.0 and 1 are one class."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, float) and not value.is_integer() else str(int(value))


def parse_number(word: str) -> int | float:
    """Return the number of a word, an integer if it has digits only, or raise a ValueError."""
    if "_" in word:  # Python allows 1_000, files of labels do not
        raise ValueError(word)
    return int(word) if WHOLE.fullmatch(word) else float(word)


def plain_number(text: str) -> int | float | None:
    """Return the finite number that a text is, as people write it, or None."""
    if not NUMBER.fullmatch(text):
        return None
    number = parse_number(text)
    return number if abs(number) != np.inf else None


def require_number(unlabeled: str, origin: str) -> None:
    """Refuse an unlabeled value that is no number, where the labels are numbers."""
    try:
        parse_number(str(unlabeled))
    except ValueError:
        raise SourceError(
            f"{origin} has numeric labels: unlabeled={unlabeled!r} must be a number"
        ) from None


# --- the roles ------------------------------------------------------------------------------------


def _labels(values: Any, place: Place, rules: LabelRules) -> Any:
    kind = values.type
    if is_of_columns(values):
        q = kind.list_size
        flat = values.values.slice(values.offset * q, len(values) * q).cast(pa.float64())
        Y = np.array(to_numpy(flat, np.nan)).reshape(-1, q)
        Y[~to_numpy(values.is_valid())] = np.nan
        if rules.unlabeled is not None:
            require_number(rules.unlabeled, "label= of several columns")
            Y[float(rules.unlabeled) == Y] = np.nan
        return _rows(Y, place)
    if types.is_fixed_size_list(kind) or types.is_list_view(kind):
        values = values.cast(pa.list_(kind.value_type))
    if not (types.is_list(values.type) or types.is_large_list(values.type)):
        labels = _coded(values, "label", place)
        if rules.separator is None or not types.is_large_string(labels.categories.type):
            return _without(_rated(labels, place, rules), rules.unlabeled).column()
        parts = [text.split(rules.separator) for text in labels.categories.to_pylist()]
        parts = [[word.strip() for word in some if word.strip()] for some in parts]
        values = pa.array([*parts, None], pa.list_(pa.large_string())).take(
            pa.array(np.where(labels.codes < 0, len(parts), labels.codes))
        )
    sets = _label_sets(values, place, rules)
    return _of_one_length(sets, place) if rules.target == "real" else sets


def _label_sets(values: Any, place: Place, rules: LabelRules) -> Any:
    """Return a column of lists of labels. A missing entry of a list is no label."""
    lengths = to_numpy(compute.list_value_length(values)).astype(np.int64)
    owner = np.repeat(np.arange(len(values)), lengths)
    labels = _coded(values.flatten(), "label", lambda i: place(int(owner[i])))
    labels = _without(_rated(labels, place, rules), rules.unlabeled)
    kept = labels.codes >= 0
    sizes = np.bincount(owner[kept], minlength=len(values))
    ends = from_numpy(np.append(0, np.cumsum(sizes)))
    inside = Coded(labels.codes[kept], labels.categories).column()
    return pa.LargeListArray.from_arrays(ends, inside)


def _rated(labels: Coded, place: Place, rules: LabelRules) -> Coded:
    """Return labels as numbers where the target is real."""
    if rules.target != "real" or not types.is_large_string(labels.categories.type):
        return labels
    numbers: list[float] = []
    for code, text in enumerate(labels.categories.to_pylist()):
        try:
            numbers.append(float(parse_number(text.strip())))
        except (ValueError, OverflowError):
            numbers.append(np.nan)
        if text != rules.unlabeled and not np.isfinite(numbers[-1]):
            raise SourceError(
                f"{labels.place(code, place)}: the label must be a number, because target=real; "
                f"got {shorten(text)}"
            )
    is_none = np.array([text == rules.unlabeled for text in labels.categories.to_pylist()], bool)
    return Coded(labels.codes, pa.array(numbers, pa.float64())).without(is_none)


def _without(labels: Coded, unlabeled: str | None) -> Coded:
    """Return labels without the one that means "none"."""
    if unlabeled is None or not len(labels.categories):
        return labels
    wanted, values, number = str(unlabeled), labels.categories.to_pylist(), None
    if not isinstance(values[0], str):
        with contextlib.suppress(ValueError):
            number = parse_number(wanted)
    is_none = [value in (wanted, number) or label_text(value) == wanted for value in values]
    return labels.without(np.array(is_none))


def is_of_columns(labels: Any) -> bool:
    """Return whether a column holds a value of each of several columns of labels."""
    kind = labels.type
    return types.is_fixed_size_list(kind) and types.is_floating(kind.value_type)


def label_columns(columns: Mapping[str, Any], place: Place) -> Any:
    """Return several columns of labels by their names as one column, which holds their values."""
    Y = []
    for name, values in columns.items():
        try:
            Y.append(to_numpy(as_numbers(decode(values)), np.nan))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"{place(0)} …: {name!r} is one of several columns of labels, which must hold 0 or "
                f"1, or real targets: {shorten(str(error).splitlines()[0])}"
            ) from error
    return _rows(np.column_stack(Y), place)


def _of_one_length(lists: Any, place: Place) -> Any:
    """Return lists of real targets as rows of one matrix. A sample with an empty one has none."""
    lengths = to_numpy(lists.value_lengths())
    q = int(lengths[np.argmax(lengths > 0)]) if len(lengths) else 0
    if not q:
        return lists  # nobody has a target
    is_there = lengths > 0
    if (odd := is_there & (lengths != q)).any():
        i = int(np.argmax(odd))
        raise SourceError(
            f"{place(i)}: the label has {lengths[i]} real targets, and others have {q}: give "
            f"every sample one value of each, or an empty list"
        )
    found, Y = as_codes(lists.flatten()), np.full((len(lengths), q), np.nan)
    values = np.array([*map(float, found.categories.to_pylist())])
    Y[is_there] = values[found.codes].reshape(-1, q)
    return _rows(Y, place)


def roles_in_obs(
    given: Mapping[str, Any], columns: Sequence[str], origin: str
) -> dict[str, str | tuple[str, ...]]:
    """Return the columns of obs by roles: those given, or those called "label" and "split"."""
    roles: dict[str, Any] = {}
    for role in ("label", "split", *OBS_ROLES):
        name = given.get(role)
        if name is None and role in columns and role not in OBS_ROLES:
            name = role
        names = name if isinstance(name, tuple) else (name,)
        for one in filter(None, names):
            roles[role] = name
            if one not in columns and not (role == "label" and one.startswith(OBSM)):
                raise SourceError(
                    f"{origin} has no obs[{one!r}], only {', '.join(columns) or 'no column'}: name "
                    f"it with {role}="
                )
    return roles


def label_option(label: str | Sequence[str] | None) -> str | tuple[str, ...] | None:
    """Return the name of the column of labels, or the names of several columns, or None."""
    names = split_names(label)
    return None if label is None else names if len(names) > 1 else "".join(names)


def split_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return names of columns, which commas divide in a text."""
    words = names.split(",") if isinstance(names, str) else names or ()
    return tuple(word.strip() for word in words if word.strip())


def _splits(values: Any, place: Place, words: Mapping[str, str | None]) -> Any:
    splits, meant = _coded(values, "split", place), list[str]()
    for code, value in enumerate(splits.categories.to_pylist()):
        split = split_of(value, words, splits.place(code, place))
        if split is None:
            raise SourceError(
                f"{splits.place(code, place)}: split_map= leaves {shorten(value)} out, which it "
                f"does with files and folders: leave rows out by where="
            )
        meant.append(split)
    splits = splits._replace(categories=from_texts(meant))
    if len(splits.categories) and (splits.codes < 0).any():
        raise missing_split(splits.place(-1, place))
    return splits.column().cast(pa.large_string())


def _names(values: Any, place: Place) -> Any:
    values = decode(values)
    kind = values.type
    if types.is_nested(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        raise _no_scalar("name", *_first_value(values, place))
    if types.is_floating(kind):
        names = [None if v is None or v != v else str(v) for v in values.to_pylist()]
        return pa.array(names, pa.large_string())
    names = values.cast(pa.large_string())
    is_empty = to_numpy(compute.binary_length(names)) == 0
    return names.take(from_numpy(np.arange(len(names)), is_empty)) if is_empty.any() else names


def _category_texts(values: Any, role: str, place: Place) -> Any:
    required = "a text or a number"
    if types.is_nested(values.type):
        raise _refusal(role, required, *_first_value(values, place))
    found = _coded(values, role, place)
    if (found.codes < 0).any():
        raise _refusal(role, required, None, found.place(-1, place))
    texts = [label_text(value) for value in found.categories.to_pylist()]
    return Coded(found.codes, from_texts(texts)).column()


def _weights(values: Any, place: Place) -> Any:

    numbers = _numbers(values)
    wrong = ~((numbers >= 0) & (numbers < np.inf))
    if wrong.any():
        i = int(np.argmax(wrong))
        required = "a finite number of at least 0"
        raise _refusal("sample_weight", required, values[i].as_py(), place(i))
    return from_numpy(numbers)


def _times(values: Any, place: Place) -> Any:
    """Return times as floats, or as dates in UTC."""
    if types.is_timestamp(values.type) or types.is_date(values.type):
        dates = values.cast(pa.timestamp("us", getattr(values.type, "tz", None)), safe=False)
        dates = dates.cast(pa.timestamp("us"))  # the same moment in UTC
        is_date = to_numpy(dates.is_valid())
        numbers = np.full(len(values), np.nan)
    else:
        numbers = _numbers(values)
        numbers[np.isinf(numbers)] = np.nan
        dates = _dates(values)
        is_date = to_numpy(dates.is_valid()) & np.isnan(numbers)
    missing = ~is_date & np.isnan(numbers)
    if missing.any():
        i = int(np.argmax(missing))
        required = "a number or a date such as 2024-03-01T12:30"
        raise _refusal("time", required, values[i].as_py(), place(i))
    if is_date.any() and not is_date.all():
        dates = 2 * np.count_nonzero(is_date)  # the kind of fewer samples is the odd one
        odd = is_date if dates < len(is_date) else ~is_date
        fewer = odd if dates != len(is_date) else is_date != is_date[0]
        raise mixed_times(place(int(np.argmax(fewer))))
    return dates if is_date.any() else from_numpy(numbers)


def _dates(values: Any) -> Any:
    """Return texts in ISO 8601 as dates in UTC, null where a text is no date."""
    values = decode(values)
    if not is_text(values):
        return pa.nulls(len(values), pa.timestamp("us"))
    found = values.dictionary_encode()
    dates = pa.array(list(map(_date, found.dictionary.to_pylist())), pa.timestamp("us"))
    return dates.take(found.indices)


def _date(text: str | None) -> datetime.datetime | None:
    try:
        date = None if text is None else datetime.datetime.fromisoformat(text)
        if date is not None and date.tzinfo is not None:
            date = date.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return date


def _numbers(values: Any) -> AnyArray:
    """Return values as floats, NaN where one is no number."""
    values = decode(values)
    kind = values.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        values = values.cast(pa.float64(), safe=False)
        return np.array(to_numpy(values, np.nan), dtype=np.float64)
    if not is_text(values):
        return np.full(len(values), np.nan)
    found = values.dictionary_encode()
    numbers = np.array([*map(_number, found.dictionary.to_pylist()), np.nan])
    return numbers[to_numpy(found.indices, -1)]


def _number(text: str | None) -> float:
    try:
        return np.nan if text is None else float(text)
    except ValueError:
        return np.nan


def _refusal(role: str, required: str, value: Any, place: object) -> SourceError:
    got = "none" if value is None or value == "" else shorten(value)
    return SourceError(
        f"{place}: {role}= names a column that must hold {required} for every sample; got {got}"
    )


# --- parts of a source ----------------------------------------------------------------------------


def join(parts: Sequence[Columns], places: Sequence[tuple[int, Place]]) -> dict[str, Any]:
    """Return the columns of parts of the samples, one after the other."""
    return {role: _join(role, [part[role] for part in parts], places) for role in parts[0]}


def _join(role: str, parts: Sequence[Any], places: Sequence[tuple[int, Place]]) -> Any:
    if role == "time" and len({part.type for part in parts}) > 1:
        at = next(i for i, part in enumerate(parts) if part.type != parts[0].type)
        raise mixed_times(places[at][1](0))
    if role == "split":
        missing = [bool(part.null_count) for part in parts]  # all of a part, or none
        if any(missing) and not all(missing):
            raise missing_split(places[missing.index(True)][1](0))
    if role != "label":
        return pa.concat_arrays(parts)
    widths = {part.type.list_size if is_of_columns(part) else 0 for part in parts}
    if widths != {0} or len({types.is_large_list(part.type) for part in parts}) > 1:
        kinds = [kind_of(part, place) for part, (_, place) in zip(parts, places, strict=True)]
        require_alike([kind for kind in kinds if kind is not None])
    if widths != {0}:
        none = np.full((1, max(widths)), np.nan)
        return pa.concat_arrays(
            [p if is_of_columns(p) else _rows(none.repeat(len(p), axis=0)) for p in parts]
        )
    if len({types.is_large_list(part.type) for part in parts}) > 1:
        parts = [
            part if types.is_large_list(part.type) else pa.nulls(len(part), kind).fill_null([])
            for part in parts
            for kind in [pa.large_list(part.type)]
        ]
    inside = [part.flatten() if types.is_large_list(part.type) else part for part in parts]
    if len({part.type for part in inside}) > 1:
        inside = _promoted([as_codes(part) for part in inside])
    whole = pa.concat_arrays(inside)
    if not types.is_large_list(parts[0].type):
        return whole
    lengths = [to_numpy(part.value_lengths()) for part in parts]
    ends = np.append(0, np.cumsum(np.concatenate(lengths)))
    return pa.LargeListArray.from_arrays(from_numpy(ends), whole)


def _promoted(parts: Sequence[Coded]) -> list[Any]:
    """Return labels of several types as one type: texts, else floats, else whole numbers."""
    values = [value for part in parts for value in part.categories.to_pylist()]
    convert: Callable[[Any], Any] = int
    kind: Any = pa.int64()
    if any(isinstance(value, str) for value in values):
        kind, convert = pa.large_string(), label_text
    elif not all(float(value).is_integer() for value in values):
        kind, convert = pa.float64(), float
    elif any(abs(value) >= 2**63 for value in values):
        kind = pa.decimal256(MOST_DIGITS, 0)
    return [
        Coded(part.codes, pa.array(map(convert, part.categories.to_pylist()), kind)).column()
        for part in parts
    ]


# --- the target of all samples --------------------------------------------------------------------


class LabelKind(NamedTuple):
    """The kind and the classes of the labels of some samples."""

    texts: bool  # whether they are texts and not numbers
    whole: bool  # whether all numbers are whole
    sets: bool  # whether they are lists
    place: object = None  # of the first sample that has one
    # of each of several columns, the first value that is neither 0 nor 1, with its place
    others: Sequence[tuple[object, str] | None] = ()
    gap: object = None  # the place of the first sample that has some of several real targets


class Target(NamedTuple):
    """The target of all samples."""

    # "class", "real", "multilabel", "multioutput" (several real targets), or None without labels
    kind: str | None
    codes: Mapping[str, int] = {}  # the place in `class_names` of the text of a label
    class_names: Sequence[str] = ()  # or the names of several real targets
    texts: bool = True  # whether labels that are texts are not numbers


def kind_of(labels: Any, place: Place, typed: bool = True) -> LabelKind | None:
    """Return the kind of a column of labels, None where no sample has one.

    In a format that has texts only, labels are not `typed`: numbers are what all of them spell.
    """
    if is_of_columns(labels):
        return _kind_of_columns(_matrix(labels), place)
    sets = types.is_large_list(labels.type)
    present = compute.list_value_length(labels) if sets else labels.is_valid().cast("int8")
    present = to_numpy(present)
    if not present.any():
        return None
    first = place(int(np.argmax(present > 0)))
    categories = (labels.flatten() if sets else labels).dictionary
    if types.is_large_string(categories.type):
        numbers = [None if typed else plain_number(text) for text in categories.to_pylist()]
        texts = None in numbers
        return LabelKind(texts, texts or all(float(v) == int(v) for v in numbers), sets, first)  # type: ignore[arg-type]  # none is None
    is_whole = True
    if types.is_floating(categories.type):
        values = to_numpy(categories)
        is_whole = bool(np.all(values == np.rint(values)))
    return LabelKind(False, is_whole, sets, first)


def _matrix(labels: Any) -> FloatArray:
    """Return several columns of labels as they were given, n × q."""
    return to_numpy(labels.flatten()).reshape(-1, labels.type.list_size)


def _kind_of_columns(Y: FloatArray, place: Place) -> LabelKind | None:
    lacks = np.isnan(Y)
    if lacks.all():
        return None
    others: list[tuple[object, str] | None] = []
    for column in Y.T:
        if (is_other := ~np.isin(column, (0, 1))).any():
            i = int(np.argmax(is_other))
            others.append((place(i), "none" if np.isnan(column[i]) else f"{column[i]:g}"))
        else:
            others.append(None)
    first = place(int(np.argmin(lacks.all(axis=1))))
    partly = lacks.any(axis=1) & ~lacks.all(axis=1)
    gap = place(int(np.argmax(partly))) if partly.any() else None
    return LabelKind(False, False, True, first, others, gap)


def require_alike(kinds: Sequence[LabelKind]) -> None:
    """Refuse labels of which some are lists and some are not, or that are of other columns."""
    for kind in kinds:
        if kind.sets != kinds[0].sets:
            raise mixed_labels(kind.place)
        if len(kind.others) != len(kinds[0].others):
            raise SourceError(
                f"{kind.place}: the label has {len(kind.others)} columns here, and "
                f"{len(kinds[0].others)} before: give every sample the same ones"
            )


def common_target(
    categories: Iterable[Any],
    kinds: Sequence[LabelKind],
    kind: str | None,
    class_names: Sequence[str] | None,
) -> Target:
    """Return the target that fits parts with these categories and kinds of labels."""
    if not kinds:
        return Target(None)
    if any(labels.others for labels in kinds):
        return _target_of_columns(kinds, kind, class_names)
    texts = any(labels.texts for labels in kinds)
    sets = kind == "multilabel" or any(labels.sets for labels in kinds)
    whole = all(labels.whole for labels in kinds)
    if not texts and not whole and any(labels.sets for labels in kinds):
        raise SourceError(
            "the lists of labels hold numbers that are not whole: give target=real if they are "
            "several real targets per sample, or whole numbers as labels"
        )
    if not texts and not sets and (kind == "real" or (kind is None and not whole)):
        return Target("real", texts=False)
    if class_names is not None and not texts:
        keys = [str(i) for i in range(len(class_names))]
        names = [str(name) for name in class_names]
    else:
        distinct = {text for part in categories for text in category_texts(part, texts)}
        keys = names = sorted(distinct, key=None if texts else parse_number)
    codes = {key: i for i, key in enumerate(keys)}
    return Target("multilabel" if sets else "class", codes, names, texts)


def _target_of_columns(
    kinds: Sequence[LabelKind], kind: str | None, class_names: Sequence[str] | None
) -> Target:
    """Return the target of several columns: labels if they hold 0 or 1, else real targets."""
    require_alike(kinds)
    names = [str(name) for name in class_names or range(len(kinds[0].others))]
    firsts = [
        next(filter(None, some), None) for some in zip(*(k.others for k in kinds), strict=True)
    ]
    is_real = kind in ("real", "multioutput") or (kind is None and all(firsts))
    odd = next(((name, at) for name, at in zip(names, firsts, strict=True) if at), None)
    if odd is not None and not is_real:
        name, (place, got) = odd
        raise SourceError(
            f"{place}: {name!r} is one of several columns of labels, which must hold 0 or 1 for "
            f"every sample; got {got}: give one column as the label, of classes or lists, or "
            f"target=real if all are real targets"
        )
    gap = next((k.gap for k in kinds if k.gap is not None), None)
    if is_real and gap is not None:
        raise SourceError(
            f"{gap}: some of the real targets {', '.join(names)} are missing here: give all of "
            f"them or none"
        )
    codes = {str(j): j for j in range(len(names))}
    return Target("multioutput" if is_real else "multilabel", codes, names, texts=False)


def category_texts(categories: Any, texts: bool) -> list[str]:
    """Return the text of each category. Where labels are no `texts`, it is its number's."""
    values = categories.to_pylist()
    if not texts:
        values = [parse_number(value) if isinstance(value, str) else value for value in values]
    return [label_text(value) for value in values]


def encode(labels: Any, target: Target) -> AnyArray:
    """Return the targets of samples: codes, −1 where unlabeled, or real values (NaN: unlabeled)."""
    found = as_codes(labels)
    if target.kind == "real":
        values = [*map(float, found.categories.to_pylist()), np.nan]
        return np.array(values, dtype=np.float64)[found.codes]
    texts = category_texts(found.categories, target.texts)
    if unknown := [text for text in texts if text not in target.codes]:
        raise SourceError(
            f"the label {unknown[0]} is not among the {len(target.codes)} "
            f"classes that the source names"
        )
    # the code −1 takes the last entry, which is −1
    return np.array([*(target.codes[text] for text in texts), -1], dtype=np.int64)[found.codes]


def encode_matrix(labels: Any, target: Target) -> sp.csr_array:
    """Return the labels of samples, n × c, with a one for each, or several real targets.

    Of real targets all values are stored, NaN where a sample is unlabeled.
    """
    c = len(target.class_names)
    if target.kind == "multioutput":
        Y = np.full((len(labels), c), np.nan)
        if is_of_columns(labels):
            Y[:, [target.codes[str(j)] for j in range(c)]] = _matrix(labels)
        rows = np.tile(np.arange(c), len(Y)), np.arange(0, Y.size + 1, c)
        return sp.csr_array((Y.ravel(), *rows), shape=Y.shape)
    if is_of_columns(labels):
        row, column = np.nonzero(_matrix(labels))
        code = np.array([target.codes[str(j)] for j in range(labels.type.list_size)])[column]
        sizes: AnyArray = np.bincount(row, minlength=len(labels))
    elif types.is_large_list(labels.type):
        code, sizes = encode(labels.flatten(), target), to_numpy(labels.value_lengths())
    else:
        code = encode(labels, target)
        code, sizes = code[code >= 0], code >= 0
    rows = sp.csr_array(
        (np.ones(len(code), dtype=np.int8), code, np.cumsum([0, *sizes])),
        shape=(len(sizes), c),
    )
    rows.sum_duplicates()
    rows.data[:] = 1
    return rows
