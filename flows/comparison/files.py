"""The files of a comparison and of an audit: all of them appear, or none."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from bigfs.flows.job import Request
from bigfs.flows.options import ClusterOptions
from bigfs.flows.report.page import corpus_facts
from bigfs.flows.report.provenance import provenance
from bigfs.flows.reuse import source_name
from bigfs.flows.run import Call, is_store
from bigfs.flows.staging import stage
from bigfs.storage import atomic, locks
from bigfs.storage.runs.checkpoints import to_json_types
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


@contextlib.contextmanager
def hold_corpus(
    request: Any,
    kind: Kind,
    call: Call,
    cluster: Callable[[ClusterOptions], AbstractContextManager[Any]],
) -> Iterator[Any]:
    """Hold the name of a folder on a cluster, and give the request once its corpus is staged."""
    with holding(request, kind), cluster(request.engine):
        if not is_store(request):
            made = call(stage, request)
            request = request.model_copy(update={"store": made["store"]})
        yield request


def make_record(
    request: Request, kind: Kind, corpus: Any, began: float, **figures: Any
) -> dict[str, Any]:
    """Return what a JSON file holds: these figures, the corpus, and how they came about."""
    facts = corpus_facts(corpus)
    told = {name: facts[name] for name in ("source", "store", "n", "d", "nnz", "split")}
    about = {
        "format": kind.format,
        "asked": request.corpus,
        "corpus": told | {"name": source_name(facts["source"])},
        **figures,
        "seconds": time.perf_counter() - began,
        **provenance(),
    }
    return dict(to_json_types(about))


def write_record(
    folder: Path,
    kind: Kind,
    about: Mapping[str, Any],
    table: tuple[Sequence[str], Iterable[Mapping[str, Any]]],
    texts: Mapping[str, str],
) -> None:
    """Write the record as JSON, the columns of its rows as CSV, and texts by their files' names."""
    header, rows = table
    cells = (["" if row.get(name) is None else row[name] for name in header] for row in rows)
    with atomic.explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    note_reader(str(about["corpus"]["store"]), folder)
    with atomic.write_together(folder) as part:
        write_csv(part(f"{kind.name}.csv"), header, cells)
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
