"""Pages that show what is printed: their commands and Python blocks run in order, in one folder.

A block of `console` holds commands behind a $ and what they print, one of `bash` only commands, and
one of `text` what the Python block before it prints. A line of … stands for any others.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def blocks_of(page):
    """Each fenced block that has a language, with it, in order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / page).read_text(), flags=re.S | re.M)


def commands_of(console):
    """Each command of a block, and the lines that are shown below it."""
    for part in re.split(r"^\$ ", console, flags=re.M)[1:]:
        command, *shown = part.splitlines()
        yield command, shown


@pytest.fixture
def page_runs(bigfs, monkeypatch):
    """A function that runs a page, and asserts that it prints what it shows."""
    monkeypatch.setenv("BIGFS_WORKERS", "0")

    def call(command):
        program, *words = shlex.split(command, comments=True)
        assert program == "bigfs"
        status, out, err = bigfs(*words)
        assert status == 0, err
        return out.splitlines(), err.splitlines()

    def run(page):
        names, printed = {"__name__": "__main__"}, []
        for language, block in blocks_of(page):
            if language == "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block, page, "exec"), names)
                printed = out.getvalue().splitlines()
            elif language == "text":
                assert block.splitlines() == printed
            elif language == "bash":
                lines = block.replace("\\\n", " ").splitlines()
                for command in [line for line in lines if not line.startswith("#")]:
                    call(command)
            elif language == "console":
                for command, shown in commands_of(block):
                    out, err = ([line.rstrip() for line in lines] for lines in call(command))
                    assert set(shown) - {"…"} <= {*out, *err}
                    assert "…" in shown or set(out) <= set(shown)

    return run


def prepare(folder):
    """The files that README's commands name: a customer's table, and documents of two kinds."""
    [customers, *_] = [
        block for kind, block in blocks_of("docs/first-table.md") if kind == "python"
    ]
    exec(customers, {})
    (folder / "mine.txt").write_text("income\nusage_3\n")
    for i in range(12):
        path = folder / "my-documents" / ("sea" if i % 2 else "land") / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{'ship harbor' if i % 2 else 'field plough'} in the year {i}")


@pytest.mark.slow
def test_readme_prints_what_it_shows(page_runs, tmp_path):
    prepare(tmp_path)
    page_runs("README.md")
    assert (tmp_path / "runs/synthetic-phrases-200-1a2159b7/report.html").is_file()
    assert len(list((tmp_path / "runs").glob("my-documents*"))) == 1


def test_the_first_table_prints_what_it_shows(page_runs):
    page_runs("docs/first-table.md")


@pytest.mark.process  # it opens a cluster
def test_the_python_page_prints_what_it_shows(page_runs):
    page_runs("docs/guide/python.md")
