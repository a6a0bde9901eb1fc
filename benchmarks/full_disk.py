"""A small disk that is full when each command needs it.

python benchmarks/full_disk.py

As root: the disk is a tmpfs, mounted and unmounted here. Before each command the disk is filled up
to a few bytes. The command must fail in one line that names the disk or the place and not the
source. Then space is freed, and the same command must give what it gives on a disk that was never
full.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from shared import table

ROOT = Path(__file__).parent.parent
FREE = (0, 8 << 10, 64 << 10)  # bytes that are left
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
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        print(f"skipped: a tmpfs can't be mounted here ({mounted.stderr.strip()})")
        raise typer.Exit(0)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def bigfs(words: list[str], disk: Path, home: Path) -> tuple[int, list[str]]:
    """Run a command on the disk. Returns its status and its lines of error."""
    given = [
        {"SOURCE": str(home / "corpus"), "MORE": str(home / "more")}.get(word, word)
        for word in words
    ]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "DASK_"))}
    env = clean | {
        "PYTHONPATH": str(ROOT),
        "PREFECT_HOME": str(home / "prefect"),
        "TMPDIR": str(home),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "flows", *given], cwd=disk, env=env, capture_output=True, text=True
    )
    return ended.returncode, [
        line
        for line in ended.stderr.splitlines()
        if line.startswith("bigfs: ") or "Traceback" in line
    ]


def fill(disk: Path, free: int) -> Path:
    """Fill the disk but for `free` bytes."""
    filler = disk / "filler"
    space = shutil.disk_usage(disk).free - free
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, space))
    return filler


def listing(disk: Path) -> dict[str, bytes]:
    """What a command left, with the contents that do not hold times."""
    files = [path for path in disk.rglob("*") if path.is_file()]
    return {
        str(p.relative_to(disk)): p.read_bytes() if p.suffix in (".csv", ".npz", ".npy") else b""
        for p in files
    }


def write_corpora(home: Path, rows: int) -> None:
    """Documents of two generated corpora, as svmlight files."""
    sys.path.insert(0, str(ROOT))
    from tests.helpers.processes import write_corpus

    write_corpus(home / "corpus", seed=3, rows=rows)
    write_corpus(home / "more", seed=4, rows=rows)


def main(
    rows: Annotated[int, typer.Option(help="documents of the corpus")] = 9000,
    megabytes: Annotated[int, typer.Option(help="size of the disk")] = 64,
) -> None:
    home = Path(tempfile.mkdtemp(prefix="bigfs-full-disk-"))
    disk, whole = home / "disk", home / "whole"
    disk.mkdir()
    whole.mkdir()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the disk is unmounted
    rows_shown, bad = [], 0
    try:
        write_corpora(home, rows)
        with small_disk(disk, megabytes):
            for name, words in COMMANDS.items():
                status, lines = bigfs(words, whole, home)
                assert status == 0, lines
                for free in FREE:
                    before = listing(disk)
                    filler = fill(disk, free)
                    status, lines = bigfs(words, disk, home)
                    filler.unlink()
                    if status == 0:
                        print(name, free, "bytes were enough", flush=True)
                        continue
                    plain = (
                        len(lines) == 1
                        and ("full" in lines[0] or "No space left" in lines[0])
                        and "can't be read" not in lines[0]
                    )
                    # for the next try
                    clean = listing(disk) == before or any(
                        disk.glob(".r.run-partial/checkpoints/*.npz")
                    )
                    rows_shown.append(
                        [
                            name,
                            free,
                            status,
                            plain,
                            clean,
                            " ".join(lines).replace(str(home), "")[:110],
                        ]
                    )
                    bad += not plain or not clean
                    print(*rows_shown[-1], flush=True)
                status, lines = bigfs(words, disk, home)
                bad += status != 0 or listing(disk) != listing(whole)
                print(
                    name,
                    "then:",
                    "the same"
                    if listing(disk) == listing(whole)
                    else sorted(
                        {name for name, _ in listing(disk).items() ^ listing(whole).items()}
                    ),
                )
        table(
            "a full disk",
            ["command", "bytes left", "status", "one plain line", "nothing left", "what it says"],
            rows_shown,
        )
        sys.exit(f"{bad} of {len(rows_shown)} were not as they should be" if bad else 0)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
