"""A whole run on 20 Newsgroups by date beside a scikit-learn script of the same job, by turns.

python benchmarks/start_up.py 20news-bydate.tar.xz --turns 3

Each turn runs: the script; a cold run with ANOVA, no store there; another method on the store; the
same run again. The cold run of the first turn has a new home folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import typer
from shared import table

JOB = Path(__file__).with_name("sklearn_job.py")


def seconds(command: list[str], folder: Path) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PREFECT_HOME"] = str(folder / "prefect")
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def main(archive: Path, turns: int = 3) -> None:
    archive = archive.resolve()
    run = [str(Path(sys.executable).with_name("bigfs")), "run", str(archive), "--features", "500"]
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for turn in range(turns):
            for work in (".bigfs", "runs"):
                shutil.rmtree(folder / work, ignore_errors=True)
            steps = {
                "scikit-learn script": [sys.executable, str(JOB), str(archive)],
                "first on the machine" if turn == 0 else "cold": [*run, "--method", "anova"],
                "another method": [*run, "--method", "sparge-lda"],
                "the same again": [*run, "--method", "sparge-lda"],
            }
            for step, command in steps.items():
                taken.setdefault(step, []).append(seconds(command, folder))
    rows = [
        [step, f"{min(times):.1f}", ", ".join(f"{t:.1f}" for t in times)]
        for step, times in taken.items()
    ]
    table("20 Newsgroups by date, 500 terms", ["run", "best (s)", "all (s)"], rows)


if __name__ == "__main__":
    typer.run(main)
