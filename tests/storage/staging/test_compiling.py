"""What numba compiles in a new installation: each kernel once, and beside the decompression."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter

import pytest
from distributed import Client, LocalCluster

from bigfs import engine, storage
from bigfs.storage import sources
from bigfs.storage.staging import build
from bigfs.storage.staging.text import tokens, vectorize

MOST_KERNELS = 22  # that staging text and selecting by SparGE compile
began = threading.Event()


@pytest.fixture
def documents(tmp_path):
    """120 documents of 60 terms in 3 classes, as compressed JSON Lines."""
    path = tmp_path / "documents.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for i in range(120):
            text = " ".join(f"term{i % 3 * 20 + (i * k) % 20}" for k in range(1, 9))
            file.write(json.dumps({"text": f"{text} the{i % 7}", "label": i % 3}) + "\n")
    return path


@pytest.mark.nightly
def test_a_first_run_compiles_each_kernel_for_one_type(tmp_path, documents):
    command = [sys.executable, "-m", "bigfs", "run", str(documents)]
    command += ["--features", "10", "--method", "sparge-lda", "--workers", "0"]
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    # numba names a file of compiled code after the kernel, with a number at its end
    names = [path.name for path in (tmp_path / "cache").rglob("*.nbc")]
    compiled = Counter(re.sub(r"-\d+\.py\d+.*", "", name) for name in names)
    assert {"tokens.read_documents", "dual_svm._sweep"} <= set(compiled)
    assert {name: k for name, k in compiled.items() if k > 1} == {}
    assert len(names) <= MOST_KERNELS


def note_beginning(ngram_range):
    began.set()


def test_a_worker_compiles_while_the_source_is_decompressed(tmp_path, documents, monkeypatch):
    source = type(sources.find(documents))
    prepare = source.prepare
    began.clear()
    monkeypatch.setattr(source, "prepare", lambda *given: began.wait(60) and prepare(*given))
    monkeypatch.setattr(build, "compile_kernels", note_beginning)
    with (
        LocalCluster(1, processes=False, dashboard_address="127.0.0.1:0") as running,
        Client(running, set_as_default=False) as client,
        engine.cluster(client),
    ):
        assert storage.open(storage.stage(documents, tmp_path / "s.zarr")).X.shape[0] == 120


def test_it_counts_so_many_words_that_the_table_grows(monkeypatch):
    grown = []
    place = tokens.place
    monkeypatch.setattr(tokens, "place", lambda *arrays: grown.append(1) or place(*arrays))
    vectorize.compile_kernels((1, 1))
    assert grown
