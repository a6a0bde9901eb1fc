"""A small disk that is full when each command needs it.

python benchmarks/full_disk.py

As root: the disk is a tmpfs. A command first runs on a disk with space, which tells how many bytes
it writes. With a share of them left it must fail in one line that names the disk and not the
source, and leave the files as they were. With space again it must give what it gave there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from shared import ROOT, clean_environment, table

SHARES = (0.0, 0.5, 0.9)  # of what a command writes: the space that is left
PAGE = 4096  # bytes; a tmpfs gives space in pages
SERIAL = ["--workers", "0"]
SELECT = ["--method", "sparge-lpp", "--features", "20", *SERIAL]
COMMANDS = {
    "stage": ["stage", "SOURCE", "s.zarr", *SERIAL],
    "append": ["append", "MORE", "s.zarr", *SERIAL],
    "graph": ["graph", "s.zarr", *SERIAL],
    "select": ["select", "s.zarr", "--out", "r", *SELECT],
    "evaluate": ["evaluate", "r", *SERIAL],
    "transform": ["transform", "r", "s.zarr", "x.npz"],
    "run": ["run", "SOURCE", "--out", "w", *SELECT],
}


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[None]:
    """A tmpfs at `place` for the block."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        print(f"skipped: a tmpfs can't be mounted here ({mounted.stderr.strip()})")
        raise typer.Exit(0)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def bigfs(words: list[str], disk: Path, home: Path) -> tuple[int, list[str]]:
    """Run a command on the disk. Returns its status and its lines of error."""
    files = {"SOURCE": str(home / "corpus"), "MORE": str(home / "more")}
    command = [sys.executable, "-m", "bigfs", *(files.get(word, word) for word in words)]
    env = clean_environment(home, TMPDIR=str(home))
    ended = subprocess.run(command, cwd=disk, env=env, capture_output=True, text=True)
    told = re.findall(r"^bigfs: .*|^.*Traceback.*", ended.stderr, re.M)
    return ended.returncode, told


def fill(disk: Path, free: int) -> Path:
    """Fill the disk but for `free` bytes."""
    filler = disk / "filler"
    space = shutil.disk_usage(disk).free - free
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, space))
    return filler


def contents(disk: Path) -> dict[str, bytes]:
    """The files on a disk and what they hold, without lock files, which stay."""
    files = [path for path in disk.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(disk)): path.read_bytes() for path in files}


def listing(disk: Path) -> dict[str, bytes]:
    """What a command left, with the contents that do not hold times."""
    timeless = (".csv", ".npz", ".npy")
    return {
        name: content if name.endswith(timeless) else b""
        for name, content in contents(disk).items()
    }


def versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files of a folder; a file that is written anew has another version."""
    files = [(path, path.stat()) for path in folder.rglob("*") if path.is_file()]
    return {path: (about.st_ino, about.st_mtime_ns) for path, about in files}


def space(folder: Path, before: dict[Path, tuple[int, int]]) -> int:
    """Bytes on a tmpfs of the files that a command wrote."""
    written = [path for path, version in versions(folder).items() if before.get(path) != version]
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in written)


def tried(name: str, words: list[str], disk: Path, home: Path, free: int) -> tuple[list[Any], bool]:
    """Run a command with `free` bytes of space. Returns the table's row, and if it is right."""
    before = contents(disk)
    filler = fill(disk, free)
    status, lines = bigfs(words, disk, home)
    filler.unlink()
    says = " ".join(lines)
    of_the_disk = ("full" in says or "No space left" in says) and "can't be read" not in says
    plain = status != 0 and len(lines) == 1 and of_the_disk
    clean = finished(before) == finished(contents(disk))
    said = says.replace(str(home), "")[:110]
    return [name, free, status, plain, clean, "", said], plain and clean


def finished(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files without checkpoints, and without the work folder that holds some."""
    working = tuple({file.partition("checkpoints/")[0] for file in files if "checkpoints/" in file})
    return {
        file: content
        for file, content in files.items()
        if "checkpoints/" not in file and not file.startswith(working)
    }


def main(rows: int = 9000, megabytes: int = 64) -> None:
    """Of so many documents, on a disk of that size."""
    home = Path(tempfile.mkdtemp(prefix="bigfs-full-disk-"))
    disk, whole = home / "disk", home / "whole"
    disk.mkdir()
    whole.mkdir()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the disk is unmounted
    rows_shown: list[list[Any]] = []
    bad = 0
    sys.path.insert(0, str(ROOT))
    from tests.helpers.processes import write_corpus

    try:
        for file, seed in (("corpus", 3), ("more", 4)):
            write_corpus(home / file, seed=seed, rows=rows)
        with small_disk(disk, megabytes):
            for name, words in COMMANDS.items():
                before = versions(whole)
                status, lines = bigfs(words, whole, home)
                assert status == 0, lines
                needed = space(whole, before)
                for share in SHARES:
                    row, good = tried(name, words, disk, home, int(share * needed))
                    rows_shown.append(row)
                    bad += not good
                    print(*row, flush=True)
                status, lines = bigfs(words, disk, home)
                same = status == 0 and listing(disk) == listing(whole)
                bad += not same
                differ = {file for file, _ in listing(disk).items() ^ listing(whole).items()}
                print(name, "then:", "the same" if same else [status, lines, differ], flush=True)
                rows_shown[-1][-2] = same
        head = ["command", "bytes left", "status", "one plain line", "files as before"]
        table("a full disk", [*head, "then the same", "says"], rows_shown)
        sys.exit(f"{bad} of {len(rows_shown)} were not as they should be" if bad else 0)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
