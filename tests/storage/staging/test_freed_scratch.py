"""What staging keeps on scratch, and that its tasks can run again when a worker ends after one."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import engine, storage
from bigfs.storage.staging import build, transpose

ROWS, COLUMNS = 400, 50
SETTINGS = {
    "text": {"min_df": 200},
    "hashed text": {"hashing": 64},
    "matrix": {"weight": "tfidf"},
    "names": {},
    "hashed names": {"hashing": 64},
    "blocks": {},
}


@pytest.fixture
def X(rng):
    return sp.csr_array(rng.integers(1, 9, (ROWS, COLUMNS)) * (rng.random((ROWS, COLUMNS)) < 0.5))


def source_of(kind, X, tmp_path):
    """The rows as texts, as a matrix, as records with names, or as blocks."""
    dense = X.toarray()
    if kind == "blocks":
        return (X[first : first + 100] for first in range(0, ROWS, 100))
    if kind == "matrix":
        np.save(tmp_path / "X.npy", dense)
        return tmp_path / "X.npy"
    named = [{f"w{j}": int(row[j]) for j in np.flatnonzero(row)} for row in dense]
    lines = [{"features": row} for row in named]
    if kind.endswith("text"):
        lines = [{"text": " ".join(" ".join([w] * row[w]) for w in row)} for row in named]
    path = tmp_path / f"{kind}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def sizes_before(module, name, folder, monkeypatch):
    """A list, to which each call of a function adds the files that are there and their sizes."""

    def called(*given, **options):
        files = [file for file in folder.rglob("*") if file.is_file()]
        sizes.append({file.name: file.stat().st_size for file in files})
        return function(*given, **options)

    sizes, function = [], getattr(module, name)
    monkeypatch.setattr(module, name, called)
    return sizes


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_task_of_staging_and_appending_can_run_again(kind, X, tmp_path, monkeypatch):
    run, contents = engine.map_tiles, set()

    def run_twice(*given, **options):
        run(*given, **options)
        return run(*given, **options)

    for how in (run, run_twice):
        monkeypatch.setattr(engine, "map_tiles", how)
        uri = tmp_path / f"{how.__name__}.zarr"
        storage.stage(source_of(kind, X, tmp_path), uri, **SETTINGS[kind])
        storage.append(source_of(kind, X[::-1], tmp_path), uri)
        contents.add(storage.open(uri).manifest.content)
    assert len(contents) == 1


@pytest.mark.parametrize("kind", SETTINGS)
def test_scratch_holds_the_columns_alone_when_they_are_written(kind, X, tmp_path, monkeypatch):
    sizes = sizes_before(transpose, "write_segment", tmp_path / "scratch", monkeypatch)
    uri = storage.stage(
        source_of(kind, X, tmp_path),
        tmp_path / "store.zarr",
        scratch=tmp_path / "scratch",
        **SETTINGS[kind],
    )
    (found,), nnz = sizes, storage.open(uri).manifest.nnz
    columns = sum(size for name, size in found.items() if name.endswith(".columns"))
    assert 8 * nnz < columns < 8.5 * nnz  # and where each column starts
    assert sum(found.values()) - columns < 2 * nnz


def test_a_block_takes_8_bytes_per_non_zero_until_it_is_read(X, tmp_path, monkeypatch):
    sizes = sizes_before(build, "read_blocks", tmp_path / "scratch", monkeypatch)
    blocks = (X for _ in range(10))
    storage.stage(blocks, tmp_path / "store.zarr", scratch=tmp_path / "scratch")
    assert 80 * X.nnz < sum(sizes[0].values()) < 90 * X.nnz
