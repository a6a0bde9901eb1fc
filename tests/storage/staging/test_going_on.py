"""Staging that was killed goes on: the pieces that were read are not read again."""

import json
import signal
import subprocess
import sys

import pytest

from bigfs import storage
from bigfs.storage.sources.svmlight.source import Svmlight
from bigfs.storage.sources.tables.jsonl import JsonFeatures, JsonLines
from bigfs.storage.staging import build
from tests.helpers.daily import daily
from tests.helpers.listing import names_in

PIECES, KILLED = 20, 12  # the process dies while it reads piece number KILLED
SCRIPT = """
import os, signal, sys
from pathlib import Path
from bigfs import storage
from bigfs.storage.staging import build
from {module} import {kind}
build.TEXT_PIECE.value = build.MATRIX_PIECE.value = {size}
reads, read = [], {kind}.read
def dying(source, piece):
    reads.append(piece)
    if len(reads) > {killed}:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(source, piece)
{kind}.read = dying
storage.stage(*sys.argv[1:])
"""


def svmlight(i):
    return f"{i % 3} {1 + i % 7}:{1 + i % 5} 9:{2**24 + 1}\n"


def texts(i):
    return json.dumps({"text": f"word{i % 7} thing{i % 5}", "label": f"c{i % 3}"}) + "\n"


def names(i):
    return json.dumps({"features": {f"a{i % 7}": 1.5}, "split": ("train", "test")[i % 2]}) + "\n"


SOURCES = {"svm": (Svmlight, svmlight), "texts": (JsonLines, texts), "names": (JsonFeatures, names)}


@pytest.mark.process
@pytest.mark.parametrize("name", daily(SOURCES, "names"))
def test_a_killed_staging_goes_on(tmp_path, monkeypatch, change, name):
    kind, line = SOURCES[name]
    source = tmp_path / "rows"
    source.write_text("".join(map(line, range(400))))
    size = source.stat().st_size // PIECES + 1
    change(build.TEXT_PIECE, size)
    change(build.MATRIX_PIECE, size)
    whole = storage.open(storage.stage(source, tmp_path / "whole.zarr"))
    script = SCRIPT.format(module=kind.__module__, kind=kind.__name__, size=size, killed=KILLED)
    store = str(tmp_path / "goes-on.zarr")
    child = subprocess.run([sys.executable, "-c", script, str(source), store], check=False)
    assert child.returncode == -signal.SIGKILL
    reads, read = [], kind.read
    monkeypatch.setattr(kind, "read", lambda self, piece: reads.append(piece) or read(self, piece))
    corpus = storage.open(storage.stage(source, store))
    assert len(reads) == PIECES - KILLED <= 0.45 * PIECES
    assert corpus.spec["content"] == whole.spec["content"]
    assert names_in(tmp_path) == ["goes-on.zarr", "rows", "whole.zarr"]
