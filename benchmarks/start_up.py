"""A whole run on 20 Newsgroups by date and a scikit-learn script of the same job, by turns.

python benchmarks/start_up.py 20news-bydate.tar.xz --turns 3

A turn: the script, a cold run with ANOVA (of the first turn in a new home), another method, again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import typer
from shared import Timed, show_turns, timed

JOB = Path(__file__).with_name("sklearn_job.py")


def main(archive: Path, turns: int = 3) -> None:
    archive = archive.resolve()
    run = [str(Path(sys.executable).with_name("bigfs")), "run", str(archive), "--features", "500"]
    found: dict[str, list[Timed]] = {}
    with tempfile.TemporaryDirectory() as name:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PREFECT_HOME"] = f"{name}/prefect"

        def call(command: list[str]) -> None:
            subprocess.run(command, cwd=name, env=env, check=True, capture_output=True)

        for turn in range(turns):
            for work in (".bigfs", "runs"):
                shutil.rmtree(Path(name) / work, ignore_errors=True)
            for step, command in {
                "scikit-learn script": [sys.executable, str(JOB), str(archive)],
                "first on the machine" if turn == 0 else "cold": [*run, "--method", "anova"],
                "another method": [*run, "--method", "sparge-lda"],
                "the same again": [*run, "--method", "sparge-lda"],
            }.items():
                found.setdefault(step, []).append(timed(call, command))
    show_turns("20 Newsgroups by date, 500 terms", found)


if __name__ == "__main__":
    typer.run(main)
