"""What a run chose, in files that other programs read without bigfs, by their ending.

model.skops    the model as a scikit-learn pipeline. Loading it runs no code
columns.py     a column selector of scikit-learn, by the names of the columns
query.sql      a SELECT of the columns, or of the rows of triplets
genes.h5ad     all features as `var` of AnnData: score, rank, highly_variable
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bigfs import __version__, storage
from bigfs.advice import install_command
from bigfs.flows.use.files import archive_members, begins_with, require_ours, with_suffix
from bigfs.flows.use.transform import require_features
from bigfs.storage import atomic, write_back
from bigfs.storage.runs.models import TableUnits
from bigfs.storage.runs.runs import Run
from bigfs.storage.sources.samples import split_names

MARK = "written by bigfs"  # the first words of a text file, in a comment
SELECTOR = """
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder

columns = ColumnTransformer(
    [
        {},
    ],
    verbose_feature_names_out=False,
)
"""
ONE_HOT = "OneHotEncoder(categories={!r}, handle_unknown='ignore', sparse_output=False)"


def export(run: str | Path, out: str | Path, *, table: str | None = None) -> Path:
    """Write what a run chose, in the format that the ending of the file names.

    A SELECT names `table` as it is given.
    """
    file = with_suffix(out, tuple(WRITERS), ".skops")
    ending = file.suffix.lower()
    if table is not None and ending != ".sql":
        raise ValueError(f"--table names the table of a SELECT, so OUT must end in .sql; got {out}")
    is_ours, content_of = WRITERS[ending]
    require_ours(file, is_ours)
    write = content_of(Run.open(run), table or '"TABLE"')
    with atomic.write(file) as part:
        write(part)
    return file


def facts_of_choice(run: Run) -> dict[str, Any]:
    """Return what `uns` of an AnnData file says of a choice."""
    asked = run.metadata["parameters"]
    return {
        "method": asked["method"],
        "n_features": len(run.selected),
        "parameters": asked["parameters"],
        "status": run.metadata["status"],
        "version": __version__,
    }


def _pipeline(run: Run, table: str) -> Any:
    try:
        from skops import io
    except ImportError as error:
        raise ValueError(
            f"exporting needs skops, which is not installed: {install_command('export')}"
        ) from error
    return partial(io.dump, run.model().to_sklearn(), compression=zipfile.ZIP_DEFLATED)


def _var(run: Run, table: str) -> Any:
    corpus = storage.open(run.store)
    require_features(run, corpus)
    choice = run.scores, run.selected, facts_of_choice(run), run.columns
    return lambda part: write_back.write_choice(part, corpus.feature_names[:], *choice)


def _select(run: Run, table: str) -> Any:
    names, units, options = _columns(run)
    if "triplets" in options:
        columns = list(map(_name, split_names(options["triplets"])))
        rows = f"\nWHERE {columns[1]} IN (\n  {_lines(map(_value, names))}\n)"
    else:
        columns, rows = list(map(_name, units.numbers)), ""
        for column, chosen in units.categories.items():
            for value in chosen:
                test = f"CASE WHEN {_name(column)} = {_value(value)} THEN 1 ELSE 0 END"
                columns.append(f"{test} AS {_name(f'{column}={value}')}")
    return _text(run, "--", f"SELECT\n  {_lines(columns)}\nFROM {table}{rows};\n")


def _selector(run: Run, table: str) -> Any:
    _, units, _ = _columns(run)
    units.require_texts()
    steps = [f"('numbers', 'passthrough', {list(units.numbers)!r})"] if units.numbers else []
    if units.categories:
        encoder = ONE_HOT.format(list(units.categories.values()))
        steps.append(f"('categories', {encoder}, {list(units.categories)!r})")
    return _text(run, "#", SELECTOR.format(",\n        ".join(steps)))


def _columns(run: Run) -> tuple[list[str], TableUnits, dict[str, Any]]:
    """Return the names of the chosen features, best first, their columns in the table, and the
    options of its source."""
    corpus = storage.open(run.store)
    names, manifest = require_features(run, corpus), getattr(corpus, "manifest", None)
    settings, source = ({}, {}) if manifest is None else (manifest.settings, manifest.source)
    if not corpus.is_named or "min_df" in settings or settings.get("hashing"):
        raise ValueError(
            f"the features of {run.store} are no columns with names: write the model, OUT.skops"
        )
    units = TableUnits.of(names, source.get("categorical") or (), {}, None)
    return names, units, source.get("options", {})


def _text(run: Run, comment: str, body: str) -> Any:
    asked = run.metadata["parameters"]
    text = f"{comment} {MARK}: {len(run.selected)} features by {asked['method']}\n{body}"
    return lambda part: part.write_text(text, encoding="utf-8")


def _lines(items: Iterable[str]) -> str:
    return ",\n  ".join(items)


def _name(text: str) -> str:
    """Return a name as the standard of SQL quotes it."""
    return '"' + text.replace('"', '""') + '"'


def _value(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# by the ending: the test of a file of ours, and the maker of its writer
WRITERS: dict[str, Any] = {
    ".skops": (lambda file: "schema.json" in archive_members(file), _pipeline),
    ".py": (partial(begins_with, start=f"# {MARK}"), _selector),
    ".sql": (partial(begins_with, start=f"-- {MARK}"), _select),
    ".h5ad": (write_back.is_ours, _var),
}
