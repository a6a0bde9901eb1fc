"""Pages that show what is printed: their commands and Python blocks run in order, in one folder.

A block of `console` holds commands behind a $ and what they print, one of `bash` only commands, and
one of `text` what the Python block before it prints. A line of … stands for any others.

Blocks on data of the reader run on a small corpus of news and one of cells, and on noise.
"""

import ast
import contextlib
import io
import re
import shlex
import shutil
from pathlib import Path

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from scipy import sparse
from sklearn.svm import LinearSVC

import bigfs
from bigfs import storage
from bigfs.evaluation.splits import Split
from tests.helpers.anndata import write_anndata, zarr_text
from tests.helpers.cells import unpack_cells

ROOT = Path(__file__).parents[2]

# A statement with one of these needs what a test does not have. It must only parse.
NOT_HERE = [
    "tls://10.0.0.1:8786",  # a scheduler at an address
    "tcp://127.0.0.1:8786",
    "nightly.deploy(",  # a server of Prefect
    "CustomWebhookNotificationBlock(",
    "Automation(",
    "anndata",  # no dependencies
    "prefect_dask",
    "load_dataset",  # a download
]


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

    def run(page, names=None):
        blocks, printed = blocks_of(page), []
        if names is None:
            names = {}
        else:  # its commands are on data of the reader
            blocks = [block for block in blocks if block[0] in ("python", "text")]
        names["__name__"] = "__main__"
        for language, block in blocks:
            if language == "python":
                code = ast.parse(block)
                code.body = [
                    statement
                    for statement in code.body
                    if not any(words in ast.unparse(statement) for words in NOT_HERE)
                ]
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(code, page, "exec"), names)
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


@pytest.fixture(scope="module")
def readers_folder(tmp_path_factory):
    """The files that the guide names: news, cells, and small ones of other kinds."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    topics = {"rec.sport.hockey": "hockey goal", "sci.space": "nasa orbit", "misc": "market"}
    for i in range(180):
        part, topic = ("test", "train", "train")[i // 3 % 3], list(topics)[i % 3]
        path = folder / "news" / f"20news-bydate-{part}" / topic / str(i)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{topics[topic]} " + " ".join(f"w{j}" for j in rng.integers(600, size=60)))
    shutil.make_archive(folder / "20news-bydate", "xztar", folder / "news")
    storage.stage(folder / "20news-bydate.tar.xz", folder / "news.zarr")
    shutil.move(folder / "news/20news-bydate-test", folder / "later")
    serial = {"workers": 0}
    bigfs.run(folder / "news.zarr", features=20, out=folder / "runs/news", engine=serial)
    unpack_cells(folder)
    X = sparse.random_array((60, 2048), density=0.1, rng=rng, format="csr", dtype=np.float32)
    cells = zarr.open_group(folder / "cells.zarr", mode="w")
    write_anndata(cells, X, "csr_matrix", zarr_text)
    cells["obs"]["cell_type"], cells["obs"]["donor"] = np.arange(60) % 3, np.arange(60) % 2
    texts = pa.table({"text": ["the sea", "the land"] * 10})
    acts = {"top_indices": [[0, 3], [1]] * 10, "top_acts": [[0.5, 0.1], [1.0]] * 10}
    for name, table in (("acts", acts | {"concept": ["a", "b"] * 10}), ("kept", texts)):
        (folder / name).mkdir()
        pq.write_table(pa.table(table), folder / name / "1.parquet")
    with pa.CompressedOutputStream(str(folder / "rejected.jsonl.zst"), "zstd") as file:
        file.write(b'{"text": "a ship at sea"}\n' * 20)
    pq.write_table(BOUGHT, folder / "train.parquet")
    return folder


BOUGHT = pa.table({"x": [0.5, 1.0] * 10, "z": [2, 3] * 10, "bought": ["a", "b"] * 10})


def readers_names(d):
    """The objects that the pages take for granted; X has d columns."""
    X, y = np.random.default_rng(0).random((60, d)), np.arange(60) % 4
    corpus = storage.open("news.zarr")
    train, test = corpus.part("train"), corpus.part("test")
    blocks = train.X.to_dask()
    return {
        **{"X": X, "y": y, "X_test": X, "y_test": y, "names": [f"x{j}" for j in range(d)]},
        **{"corpus": corpus, "train": train, "test": test, "frame": BOUGHT},
        "cells": storage.open("cells.zarr?label=cell_type"),
        "parts": [(X[:30], y[:30]), (X[30:], y[30:])],
        "posts": pa.table({"body": ["the sea", "the land"] * 10, "kind": ["a", "b"] * 10}),
        **{"loader": [{"codes": X, "label": y}], "encode": lambda batch: batch["codes"]},
        **{"y_blocks": da.from_array(train.y, chunks=(blocks.chunks[0],)), "classes": [0, 1, 2]},
        "selector": bigfs.ANOVA(n_features_to_select=100).fit(train.X, train.y),
        "fitted_pipeline": LinearSVC().fit(blocks.compute(), train.y),
        "split": Split(train.X, train.y, test.X, test.y, n_classes=3),
    }


PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for folder in ("guide", "methods")
    for page in (ROOT / "docs" / folder).glob("*.md")
    if page.name != "python.md" and "```python" in page.read_text()
)
NIGHTLY = [pytest.mark.process, pytest.mark.nightly]
MARKS = {"clusters": pytest.mark.process, "compare": NIGHTLY, "jobs": NIGHTLY, "pipelines": NIGHTLY}


@pytest.mark.filterwarnings("ignore::bigfs.result.NotConvergedWarning")  # of noise
@pytest.mark.filterwarnings("ignore:Port 8787 is already in use")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=MARKS.get(Path(page).stem, [])) for page in PAGES]
)
def test_python_blocks_run(page, page_runs, readers_folder, tmp_path, request):
    if page == "docs/guide/compare.md":
        request.getfixturevalue("prefect")
    shutil.copytree(readers_folder, tmp_path, dirs_exist_ok=True)
    page_runs(page, readers_names(1024 if page == "docs/methods/smr.md" else 512))
