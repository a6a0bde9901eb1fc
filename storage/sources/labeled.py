"""A matrix joined with a table of facts about its samples, by their names: ``labels=meta.csv``.

The table is sorted by the names on scratch, and each piece looks its samples up. A sample that the
table lacks is unlabeled. Roles have the rules of all tables.
"""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

from bigfs.engine import require_memory
from bigfs.storage.errors import SourceError
from bigfs.storage.fingerprint import fingerprint_of
from bigfs.storage.lazy import compute, pa
from bigfs.storage.sources import samples
from bigfs.storage.sources.base import MatrixSource, shorten_names
from bigfs.storage.sources.files import open_text, suffix_of
from bigfs.storage.sources.joined import JoinedRows
from bigfs.storage.sources.tables.formats import ArrowSamples, CsvSamples, ParquetSamples
from bigfs.storage.sources.tables.records import Batch
from bigfs.storage.sources.tables.tables import SUFFIXES
from bigfs.storage.sources.tables.triplets import place_of

# options that name columns of the table, or say what its labels are
OPTIONS = (
    *("label", "split", "split_map", "name", "target", "unlabeled", "label_separator"),
    *samples.OBS_ROLES,
)
LOOKED = 1 << 16  # bytes of the source, among whose samples the names of the table are looked for


def table_kind(path: Any) -> Any:
    """Return the class that reads a file of labels as a table, None if its lines are labels."""
    if not isinstance(path, str | os.PathLike) or not os.path.isfile(path):
        return None
    suffix = suffix_of(os.fspath(path))
    if suffix in SUFFIXES:
        with open_text(os.fspath(path)) as file:
            return CsvSamples if SUFFIXES[suffix].encode() in file.readline(1 << 20) else None
    kinds = (ParquetSamples, ArrowSamples)
    return next((kind for kind in kinds if suffix in kind.suffixes), None)


@dataclass(eq=False)
class Labeled(JoinedRows):
    """A matrix whose samples have names, and the table with the facts about them."""

    _: KW_ONLY
    table: Any = None
    found: str | None = field(default=None, init=False, repr=False)  # the sorted table, on scratch

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("target", "unlabeled", "label_separator", "split_map", "labels_are_typed"):
            setattr(self, name, getattr(self.table, name))
        self.class_names, self.label_columns = self.table.class_names, None

    def fingerprint(self) -> str:
        return fingerprint_of("labeled", super().fingerprint(), self.table.fingerprint())

    @property
    def obs_columns(self) -> dict[str, str]:
        return self.table.obs_columns

    def prepare(self, scratch: Path) -> Self:
        ready = super().prepare(scratch)
        part, _ = ready.parts[0]
        names = part.read(part.pieces(LOOKED)[0]).samples.get("name")
        if names is None:
            raise SourceError(
                f"{self.path} has no names of samples, by which {self.table.path} could tell of "
                f"them: give sample_names=, or a file with one label per line as labels="
            )
        ready.found = str(scratch / "told")
        ready.table = self._write_sorted(ready.found, names.drop_null(), scratch)
        return ready

    def _write_sorted(self, path: str, names: Any, scratch: Path) -> Any:
        """Write the table in the order of its names. Return it without a column of names."""
        (folder := scratch / "labels").mkdir(parents=True, exist_ok=True)
        table = self.table.prepare(folder)
        parts = [b for piece in table.pieces(1 << 24) for b in table.batches(piece)]
        fields = {
            name: pa.concat_arrays([batch.array(name) for batch in parts])
            for name in parts[0].fields
        }
        require_memory(4 * sum(c.nbytes for c in fields.values()), f"sorting {table.path}")

        def matches(name: str) -> int:
            try:
                texts = samples.read("name", fields[name], str)
            except SourceError:  # lists, which name nothing
                return 0
            return int(compute.sum(compute.is_in(names, texts)).as_py() or 0)

        named = [table.name] if "name" in table.named else list(fields)
        column = max(named, key=matches)
        if not matches(column):
            raise SourceError(
                f"{table.path} tells of no sample of {self.path}, such as "
                f"{shorten_names(names.slice(0, 2).to_pylist())}: {shorten_names(named)} hold "
                f"other names. Name the column with name="
            )
        keys = samples.read("name", fields[column], samples.row_places(table.path))
        order = compute.sort_indices(keys)
        keys = keys.take(order)
        again = compute.index(compute.equal(keys.slice(1), keys.slice(0, len(keys) - 1)), True)
        if (i := again.as_py()) >= 0:
            raise SourceError(
                f"{table.path} tells of the sample {samples.shorten(keys[i].as_py())} twice, by "
                f"its column {column!r}: leave one row out"
            )
        samples.write(f"{path}.names", {"name": keys.drop_null()})
        samples.write(f"{path}.columns", {n: c.take(order) for n, c in fields.items()})
        return table.replace(name="", on_scratch=None, groups=None)

    def _samples(
        self, columns: Any, split: str | None, n: int, place: samples.Place
    ) -> dict[str, Any]:
        """Return the facts of n samples, and those that the table has under their names."""
        known = samples.open_columns(f"{self.found}.names")["name"]
        at: list[int | None] = []
        for name in columns["name"].to_pylist():
            i = len(known) if name is None else place_of(known, name)
            at.append(i if i < len(known) and known[i].as_py() == name else None)
        table = samples.open_columns(f"{self.found}.columns")
        index = pa.array(at, pa.int64())
        fields = {name: table[name].take(index) for name in table.schema.names}
        told = self.table.samples(Batch(fields, n, place)) | {"name": columns["name"]}
        return {**columns, **told}


def label(source: MatrixSource, path: str, options: dict[str, Any]) -> Labeled:
    """Return a source joined with a table of its samples. Its options name columns of the table."""
    table = table_kind(path)(path, **options)
    table.check()
    made = Labeled(source.path, [(source, None)], table=table.absolute())
    made.given = {**source.given, "labels": path, **options}
    return made
