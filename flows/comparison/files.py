"""The files of a comparison and of an audit: all of them appear, or none."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bigfs.flows.job import Request
from bigfs.flows.report.page import corpus_facts
from bigfs.flows.reuse import source_name
from bigfs.storage import atomic, locks
from bigfs.storage.runs.metadata import sealed_json, unseal, with_nan
from bigfs.storage.runs.runs import RunError, lock_run, note_reader, write_csv

log = logging.getLogger("bigfs.flows")


class Kind(NamedTuple):
    """The content of a folder: the name of its files, and the first words of its record."""

    name: str
    format: str


COMPARISON = Kind("compare", "bigfs comparison 1")
AUDIT = Kind("audit", "bigfs audit 1")


def require_folder(folder: Path, kind: Kind = COMPARISON) -> None:
    """Refuse a folder that holds something, but no files of this kind."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise locks.name_taken(folder)
    atomic.complete(folder)
    file = folder / f"{kind.name}.json"
    ours = (folder / "results").is_dir() or (folder / ".work").is_dir()
    if not ours and file.is_file():
        ours = kind.format in file.read_text(encoding="utf-8", errors="replace")[:200]
    if any(folder.iterdir()) and not ours:
        raise locks.name_taken(folder)


def _require_same(request: Request, kind: Kind) -> None:
    """Refuse a folder with the result on another corpus, unless it is to be replaced."""
    folder = Path(request.folder)
    require_folder(folder, kind)
    if request.fresh or not (folder / f"{kind.name}.json").exists():
        return
    if (held := _record(folder, kind)) is None:
        log.warning("%s/%s.json is damaged: it is made again", folder, kind.name)
    elif held["corpus"]["store"] != request.store and held.get("asked") != request.corpus:
        raise RunError(
            f"{folder} holds a result on {held['corpus']['source']}: give another --out, or "
            f"--fresh to replace it"
        )


@contextlib.contextmanager
def holding(request: Request, kind: Kind) -> Iterator[None]:
    """Hold the name of a folder, which has no result on another corpus."""
    with lock_run(request.folder, waits=request.waits):
        _require_same(request, kind)
        yield


def facts_of(corpus: Any) -> dict[str, Any]:
    """Return the facts about a corpus that the files tell."""
    facts = corpus_facts(corpus)
    kept = {name: facts[name] for name in ("source", "store", "n", "d", "nnz", "split")}
    return kept | {"name": source_name(facts["source"])}


def write_record(
    folder: Path,
    kind: Kind,
    about: Mapping[str, Any],
    table: tuple[Sequence[str], Iterable[Sequence[Any]]],
    texts: Mapping[str, str],
) -> None:
    """Write the record as JSON, its table as CSV, and texts by the names of their files."""
    with atomic.explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    note_reader(str(about["corpus"]["store"]), folder)
    with atomic.write_together(folder) as part:
        write_csv(part(f"{kind.name}.csv"), *table)
        for name, text in texts.items():
            part(name).write_text(text, encoding="utf-8")
        part(f"{kind.name}.json").write_text(sealed_json(dict(about)), encoding="utf-8")


def _record(folder: Path, kind: Kind) -> dict[str, Any] | None:
    """Return the record that `write_record` wrote, or None if it is not what was written."""
    atomic.complete(folder)
    return unseal((folder / f"{kind.name}.json").read_bytes())


def read_comparison(folder: str | Path) -> dict[str, Any]:
    """Return the content of compare.json in the folder of a comparison."""
    about = _record(Path(folder), COMPARISON)
    if about is None:
        raise RunError(f"{folder}/compare.json is damaged: repeat the comparison")
    for row in about["rows"]:
        row["points"] = with_nan(row["points"])
    return about
