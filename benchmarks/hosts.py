"""All of RCV1 on hosts of their own: a scheduler, two workers of 1 GB and the command, each in a
network namespace with its address, over mutual TLS. The run on one machine is next to it.

python benchmarks/hosts.py

As root, with iproute2 and /dev/net/tun. Both stage and select. The stores, the features and their
scores must be the same to the byte.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import typer
from shared import ROOT, load, row


def differing(one: Path, other: Path) -> list[str]:
    """Return the files that are not in both folders with the same bytes."""
    names = {
        str(file.relative_to(folder))
        for folder in (one, other)
        for file in folder.rglob("*")
        if file.is_file()
    }
    _, different, missing = filecmp.cmpfiles(one, other, names, shallow=False)
    return sorted(different + missing)


def figures(run: Any) -> str:
    """Return the seconds of each stage and the largest memory of each process."""
    stages = run.metadata["stages"]
    parts = [f"{stage['stage']} {stage['seconds']:.0f} s" for stage in stages]
    for name in dict.fromkeys(name for stage in stages for name in stage["peak_memory"]):
        most = max(stage["peak_memory"].get(name, 0) for stage in stages)
        parts.append(f"{name} {most / 1e6:.0f} MB")
    return ", ".join(parts)


def main(source: str = "synthetic:rcv1", features: int = 500) -> None:
    sys.path.insert(0, str(ROOT))
    from bigfs.storage.runs.runs import Run
    from tests.helpers.hosts import missing
    from tests.helpers.lab import start_lab
    from tests.helpers.processes import environment

    if reason := missing():
        print(f"skipped: {reason}")
        raise typer.Exit(0)
    command = [sys.executable, "-m", "bigfs", "run", source, "--features", str(features)]
    home = Path(tempfile.mkdtemp(prefix="bigfs-hosts-"))
    try:
        began = time.perf_counter()
        with start_lab(home, command) as lab:
            running = lab.run("hosts")
            assert running.wait() == 0, lab.said("hosts")
            changes = lab.said("watch").count("workers:")
        hosts = time.perf_counter() - began
        print(f"hosts: {hosts:.0f} s; workers seen {changes} times; {load()}", flush=True)
        began = time.perf_counter()
        alone = [*command, "--store", "alone.zarr", "--out", "runs/alone"]
        alone += ["--workers", "2", "--memory-limit", "1GB"]
        subprocess.run(alone, cwd=home, env=environment(home), check=True, capture_output=True)
        seconds = time.perf_counter() - began
        print(f"alone: {seconds:.0f} s; {load()}", flush=True)
        runs = [Run.open(home / "runs" / name) for name in ("hosts", "alone")]
        differ = differing(home / "hosts.zarr", home / "alone.zarr")
        same = [
            (runs[0].path / name).read_bytes() == (runs[1].path / name).read_bytes()
            for name in ("selected.csv", "scores.npy", "curves.csv")
        ]
        figure = f"{hosts:.0f} s ({figures(runs[0])})"
        said = f"one machine: {seconds:.0f} s ({figures(runs[1])})"
        figure += f"; selected.csv, scores.npy, curves.csv equal: {same}; files of the store"
        row("hosts", source, f"{figure} that differ: {differ}", said)
        sys.exit(0 if all(same) and not differ else 1)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    typer.run(main)
