"""Lists of features that somebody chose, read from the files that other tools leave.

    list.txt             a name or an index per line
    table.csv, .tsv      a column of names or indices, such as `selected.csv` of a run
    cells.h5ad, .zarr    a column of AnnData's var: marks of the chosen ones, or their ranks
    selector.skops       a fitted selector of scikit-learn
    a folder             a run of bigfs

The column follows the file as in ``genes.csv?column=symbol``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigfs.constraints import indices_of
from bigfs.flows.comparison.request import list_name
from bigfs.storage.runs.runs import Run
from bigfs.storage.sources.anndata import AnnData
from bigfs.types import AnyArray, IntArray

# of a table or of var, in the order in which they are looked for, if none is given
COLUMNS = ("name", "feature", "gene", "term", "index")
MARKS = ("bigfs_selected", "highly_variable")
Features = Sequence[str] | IntArray


def read_lists(given: Sequence[str], d: int, names: Any) -> dict[str, IntArray]:
    """Read lists of some of d features with these names, by the names of the lists.

    The indices of each are in the order of the list. That is the best first where it has ranks.
    """
    lists: dict[str, IntArray] = {}
    for one in given:
        if (name := list_name(one)) in lists:
            raise ValueError(f"two lists are called {name}: rename the file of one")
        lists[name] = _in_order(_read(one), one, d, names)
    return lists


def _in_order(features: Features, what: str, d: int, names: Any) -> IntArray:
    """Return the indices of features, in their order."""
    if not len(features):
        raise ValueError(f"{what} holds no feature")
    index = indices_of(features, what, d, names)
    if len(index) < len(features):
        raise ValueError(f"{what} names a feature twice")
    is_numbered = np.asarray(features).dtype.kind in "iu"
    found = index.tolist() if is_numbered else np.asarray(names[index], dtype=object).tolist()
    place = {feature: position for position, feature in enumerate(np.asarray(features).tolist())}
    return index[np.argsort([place[feature] for feature in found])]


def _read(given: str) -> Features:
    """Read the names or the indices of a list."""
    file, question, column = given.partition("?column=")
    if not question and "?" in file and not Path(file).exists():
        raise ValueError(f"{given}: the only option of a list is column=")
    path = Path(file)
    if path.is_dir() and (path / "selected.csv").exists():
        return Run.open(path).selected
    if not path.exists():
        raise ValueError(f"{file} does not exist: give the file of a list, or the folder of a run")
    if path.suffix == ".h5ad" or path.is_dir():
        return _of_var(file, column)
    if path.suffix == ".skops":
        return _of_selector(path)
    if path.suffix in (".csv", ".tsv"):
        return _of_table(path, column)
    lines = path.read_text(encoding="utf-8").splitlines()
    return _names_or_numbers([line.strip() for line in lines if line.strip()])


def _names_or_numbers(words: list[str]) -> Features:
    """Return indices where all words are whole numbers, as for --keep."""
    return np.array(words, dtype=np.int64) if all(map(str.isdigit, words)) else words


def _of_table(path: Path, column: str) -> Features:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        header, *body = [row for row in rows if row] or [[]]
    chosen = column or next((name for name in COLUMNS if name in header), None)
    if chosen not in header:
        raise ValueError(
            f"{path} has the columns {', '.join(header) or 'none'}: say which holds the features, "
            f"as {path}?column=NAME"
        )
    place = header.index(chosen)
    return _names_or_numbers([row[place].strip() for row in body if len(row) > place])


def _of_var(file: str, column: str) -> Features:
    """Return the features that a column of var marks, or those it ranks, best first."""
    source = AnnData(file)
    if not column:
        there = source.var_columns()
        column = next((name for name in MARKS if name in there), "")
        if not column:
            raise ValueError(
                f"{file} has var columns {', '.join(there) or 'none'}: say which marks the "
                f"features, as {file}?column=NAME"
            )
    values = source.var_column(column)
    if values.dtype.kind == "b":
        return np.flatnonzero(np.ma.filled(values, False))
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{file}: var[{column!r}] must hold marks (true or false) or ranks")
    ranks: AnyArray = np.ma.filled(values.astype(np.float64), np.nan)
    is_ranked = np.flatnonzero(~np.isnan(ranks))
    return is_ranked[np.argsort(ranks[is_ranked], kind="stable")]


def _of_selector(path: Path) -> Features:
    """Return what a fitted selector of scikit-learn keeps, in the order of the columns."""
    try:
        from skops import io
    except ImportError as error:
        raise ValueError(f"reading {path} needs skops, of bigfs's extra export") from error
    named = io.get_untrusted_types(file=path)  # scores of scikit-learn are such functions
    if unknown := [name for name in named if not name.startswith("sklearn.feature_selection.")]:
        raise ValueError(f"{path} holds {', '.join(unknown)}, which is not loaded for safety")
    selector = io.load(path, trusted=named)
    if not hasattr(selector, "get_support"):
        raise ValueError(f"{path} holds {type(selector).__name__}, which selects no features")
    index = np.flatnonzero(selector.get_support())
    if hasattr(selector, "feature_names_in_"):
        return [str(name) for name in selector.feature_names_in_[index]]
    return index
