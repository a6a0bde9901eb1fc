"""Files that bigfs made and nothing needs any more: found by `find_unused`, deleted by
`delete_unused`.

Old stores: of the stores with names of their own making (`.bigfs/NAME-KEY.zarr`) that were staged
from one source with the same settings, all but the latest, if no run or comparison names them and
nothing was appended. In addition, graphs and counts whose store is gone, folders of killed
commands, and copies of earlier versions of files behind URLs. On request also every such store that
no run names, and the earlier results of runs, if they are old.

Stores lie in the folder and in the `.bigfs` in it. Runs are looked for below the folder, at any
depth, and where the file next to a store says that one lies (`runs.readers_of`).

A folder to delete gets another name first, in a folder with the program's marker. So a store is
whole or absent, and what a killed command leaves is found by the next one.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from bigfs.storage import atomic, versions
from bigfs.storage.downloads import downloader
from bigfs.storage.errors import BusyError, StoreError
from bigfs.storage.format import manifest as manifests
from bigfs.storage.locks import is_held, lock
from bigfs.storage.runs.runs import (
    READERS,
    lock_run,
    name_of,
    names_below,
    readers_of,
    results_of,
    unfinished_of,
)

DEFAULT_STORE = re.compile(r"[\w.-]+-[0-9a-f]{12}\.zarr")  # see `staging.stage.default_store`
COPY = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?")  # see `downloader.copy_folder`
BESIDE = (".graphs", ".counts", READERS)
WORK = re.compile(rf"\.(.+)\.{atomic.KEY}{re.escape(atomic.WORK)}")
RECORDS = ("run.json", "compare.json", "audit.json")  # name the store of what they belong to


class UnusedItem(NamedTuple):
    """A folder or file that nothing needs, its size in bytes, and the reason."""

    path: Path
    bytes: int
    why: str


def find_unused(
    folder: str | os.PathLike[str] = ".",
    *,
    runs: Iterable[str | os.PathLike[str]] = (),
    older_than: float | None = None,
) -> list[UnusedItem]:
    """Return what bigfs made and nothing needs any more.

    Parameters
    ----------
    folder : str or path-like, default="."
        The folder of stores and runs. Nothing above it is looked at, but for the runs that the
        stores say that they have.
    runs : iterable of str or path-like, default=()
        More folders with runs. A store that a run below them names is kept.
    older_than : float or None, default=None
        Age in seconds. With it, stores in the folder that no run names, whatever their settings,
        and the earlier results of runs are unused too, and all that is
        returned is at least as old.

    Returns
    -------
    list of UnusedItem
        Old stores, graphs and counts without a store, folders of killed commands, and earlier
        versions of files behind URLs.

    See Also
    --------
    delete_unused : Delete them.

    Examples
    --------
    >>> from bigfs import storage
    >>> storage.find_unused("nowhere")
    []
    """
    folder = Path(folder).absolute()
    homes, places = (folder, folder / ".bigfs"), [folder, *map(Path, runs)]  # of stores, of runs
    records = _Records([*homes, *places[1:]])
    copies = downloader.data_folder() / "urls"
    found = [
        *(item for home in homes for item in _unnamed(home, records, older_than is not None)),
        *(item for home in homes for item in _orphans(home)),
        *_outgrown(records.stores),
        *_killed([*records.folders, copies]),
        *_old_copies(copies),
    ]
    if older_than is not None:
        readers = [Path(one) for store in records.stores for one in readers_of(str(store))]
        names = [*(name for place in places for name in names_below(place)), *readers]
        found += [*_of_runs(dict.fromkeys(names)), *_caches(records)]
    whys: dict[Path, str] = {}
    for path, why in found:
        whys.setdefault(path, why)
    now, old = time.time(), list[UnusedItem]()
    for path, why in whys.items():
        with contextlib.suppress(FileNotFoundError):  # another command has deleted it
            if older_than is None or now - _changed(path) >= older_than:
                old.append(UnusedItem(path, _size(path), why))
    return old


def delete_unused(found: Iterable[UnusedItem]) -> int:
    """Delete what `find_unused` found. Files that a command is using now stay.

    Parameters
    ----------
    found : iterable of UnusedItem
        What `find_unused` returned.

    Returns
    -------
    int
        The number of bytes that were deleted.

    See Also
    --------
    find_unused : What there is to delete.

    Examples
    --------
    >>> from bigfs import storage
    >>> storage.delete_unused(storage.find_unused("nowhere"))
    0
    """
    return sum(item.bytes for item in found if _delete(item.path))


class _Records:
    """The texts of all runs, comparisons and audits, finished or not, and of what stores list."""

    def __init__(self, places: Iterable[Path]) -> None:
        self.places = list(places)
        self.folders: list[Path] = []  # that are no stores
        self.stores: list[Path] = []
        self.texts = [_text(file) for file in self._files()]

    def _files(self) -> Iterator[Path]:
        """Yield the records below the folders. Earlier results of runs need no store."""
        for place in self.places:
            for folder, folders, files in os.walk(place):
                here = Path(folder)
                if "zarr.json" in files:  # a store has many files, and none of them is a record
                    folders.clear()
                    self.stores.append(here)
                    continue
                self.folders.append(here)
                hidden = [name for name in folders if name[:1] == "."]
                for name in hidden:
                    if not atomic.has_marker(here / name):
                        folders.remove(name)
                if not atomic.has_marker(here.parent) or _is_needed(here):
                    yield from (here / name for name in RECORDS if name in files)

    def name(self, store: Path) -> bool:
        """Return whether a record names a store."""
        files = [
            file
            for place in map(Path, readers_of(str(store)))
            for folder in (place, *results_of(place)[-1:])
            for file in (folder / name for name in RECORDS)
        ]
        return any(store.name in text for text in (*self.texts, *map(_text, files)))


def _is_needed(result: Path) -> bool:
    """Return whether a folder is the latest result of its run, or an unfinished one."""
    return result in results_of(name_of(result))[-1:] or atomic.has_marker(result)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _manifest(store: Path) -> Any:
    """Return the manifest of a store that can be made again from its source, or None."""
    if not DEFAULT_STORE.fullmatch(store.name) or not manifests.is_there(str(store)):
        return None
    try:
        manifest = manifests.manifest_of(str(store))
    except StoreError:
        return None  # damaged, or of another program: nobody knows what it is
    return None if manifest.source.get("appended") else manifest


def _of_runs(names: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for name in names:
        yield from ((path, "an earlier result of a run") for path in results_of(name)[:-1])
        if (path := unfinished_of(name)) is not None:
            yield path, "a run that did not end"


def _changed(path: Path) -> float:
    """Return when a folder was made or last added to: by its record, or by the files in it."""
    for name in ("zarr.json", "run.json"):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return (path / name).stat().st_mtime
    try:
        return max(file.stat().st_mtime for file in (path, *atomic.paths_in(path, "*")))
    except FileNotFoundError:  # somebody works there
        return time.time()


def _unnamed(home: Path, records: _Records, latest: bool) -> Iterator[tuple[Path, str]]:
    """Yield the stores that no record names: earlier states of a source, or also its latest."""
    groups: dict[str, list[tuple[float, Path]]] = {}
    for store in atomic.paths_in(home, "*.zarr"):
        manifest = _manifest(store)
        if manifest is None:
            continue
        source = re.sub(r"(/urls/[0-9a-f]{16})-[0-9a-f]{16}/", r"\1/", manifest.source["uri"])
        options = sorted(manifest.source.get("options", {}).items())
        settings = sorted(manifest.settings.items())
        key = repr((source, manifest.source["format"], options, settings))
        with contextlib.suppress(FileNotFoundError):
            groups.setdefault(key, []).append((_changed(store), store))
    for stores in map(sorted, groups.values()):
        for _, store in stores if latest else stores[:-1]:
            if not records.name(store):
                is_latest = store == stores[-1][1]
                why = "" if is_latest else "an earlier state of its source, and "
                yield store, f"{why}no run names it"
                for path in (store.with_suffix(suffix) for suffix in BESIDE if suffix != READERS):
                    if path.exists():
                        yield path, "it belongs to that store"


def _orphans(home: Path) -> Iterator[tuple[Path, str]]:
    for suffix in BESIDE:
        for path in atomic.paths_in(home, f"*{suffix}"):
            store = path.with_suffix(".zarr")
            if DEFAULT_STORE.fullmatch(store.name) and not store.exists():
                yield path, "its store is gone"


def _killed(homes: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for home in dict.fromkeys(homes):
        for path in atomic.paths_in(home, f".*{atomic.WORK}"):
            is_work = WORK.fullmatch(path.name) and not is_held(path)
            if is_work and atomic.is_remains(path):  # its process unmarks it before it unlocks it
                yield path, "a killed command left it"
        for path in filter(versions.is_left, atomic.paths_in(home, f".*{versions.KEPT}")):
            yield path, "a killed command left it"


def _outgrown(stores: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the graphs of states that their stores do not have any more."""
    for graph in stores:
        if graph.parent.suffix != ".graphs":
            continue
        try:
            about = manifests.read_root(str(graph))
            store = graph.parent.with_suffix(".zarr")
            content = manifests.read_root(str(store)).get("content")
        except StoreError:
            continue  # damaged, or its store is gone or has another name
        if "graph" in about and about.get("of", content) != content:
            yield graph, "a graph of an earlier state of its store"


def _caches(records: _Records) -> Iterator[tuple[Path, str]]:
    """Yield the files that are made again when needed: counts, and the work of comparisons."""
    for folder in records.folders:
        if folder.suffix == ".counts" and folder.with_suffix(".zarr").is_dir():
            counts = atomic.paths_in(folder, "*.npz")
            yield from (
                (file, "the counts of an evaluation, which are made again") for file in counts
            )
        work = folder / ".work"
        marked = filter(atomic.has_marker, atomic.paths_in(work, "*"))
        yield from ((path, "the work of a comparison that did not end") for path in marked)


def _old_copies(home: Path) -> Iterator[tuple[Path, str]]:
    groups: dict[str, list[tuple[float, Path]]] = {}
    for copy in atomic.paths_in(home, "*"):
        if COPY.fullmatch(copy.name) and copy.is_dir():
            with contextlib.suppress(FileNotFoundError):
                groups.setdefault(copy.name[:16], []).append((copy.stat().st_mtime, copy))
    for copies in groups.values():
        yield from ((copy, "a later version was fetched") for _, copy in sorted(copies)[:-1])


def _size(path: Path) -> int:
    files = [path] if not path.is_dir() else []
    files += [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    size = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            size += file.lstat().st_size
    return size


def _delete(path: Path) -> bool:
    """Delete a folder or file, unless somebody works on it. Return whether it was deleted."""
    if work := WORK.fullmatch(path.name):
        atomic.remove_stale(path.with_name(work[1]))
        return not path.exists()
    home = path.parent
    if path.suffix in BESIDE and path.with_suffix(".zarr").exists():
        return False  # its store is used
    try:
        if (name := name_of(path)) != path:  # a result of a run
            with lock_run(name, waits=False):
                if path in results_of(name)[-1:]:
                    return False  # it was finished meanwhile
                atomic.mark_ours(path)
                atomic.delete_marked(path)
        elif path.suffix == versions.KEPT:
            versions.delete(path)
        elif home.suffix == ".counts":
            path.unlink(missing_ok=True)
        elif home.name == ".work":  # of a comparison
            with lock_run(home.parent, waits=False):
                atomic.delete_marked(path)
        else:
            with lock(path, wait=0), _unread(path), atomic.workplace(path) as aside:
                os.rename(path, aside / "pruned")
    except (BusyError, FileNotFoundError):  # used, or another command has just deleted it
        return False
    return True


def _unread(path: Path) -> AbstractContextManager[None]:
    """Hold a store, or the state of it that a graph is of, unless a run reads it."""
    try:
        about = manifests.read_root(str(path))
    except StoreError:
        return contextlib.nullcontext()
    if "graph" not in about:
        return versions.unread(str(path), about["content"])
    return versions.unread(str(path.parent.with_suffix(".zarr")), about["of"])
