"""Staging deletes what it made and nothing else; a full disk is named, and the next run is
right.
"""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage.atomic import building
from bigfs.storage.errors import StoreError
from bigfs.storage.format import manifest
from tests.helpers.listing import names_in

ROWS = "1 1:0.5 3:2\n2 2:1\n1 3:4\n"


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows.svm").write_text(ROWS)
    return tmp_path / "rows.svm"


@pytest.mark.parametrize("name", [".a.zarr.staging", f".a.zarr.{'0' * 16}.staging", ".a.zarr.old"])
def test_stage_deletes_no_folder_of_the_user(rows, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("mine")
    storage.stage(rows, tmp_path / "a.zarr")
    assert (tmp_path / name / "thesis.txt").read_text() == "mine"
    assert names_in(tmp_path) == [name, "a.zarr", "rows.svm"]


def test_stage_empties_no_file_of_the_user_that_has_the_name_of_its_lock(rows, tmp_path):
    (tmp_path / ".a.zarr.lock").write_text("mine")
    with pytest.raises(StoreError, match=r"\.a\.zarr\.lock is in the way"):
        storage.stage(rows, tmp_path / "a.zarr")
    assert (tmp_path / ".a.zarr.lock").read_text() == "mine"


def test_stage_deletes_nothing_in_an_object_store(rows, tmp_path):
    fs = fsspec.filesystem("memory")
    url = f"memory://{tmp_path.name}/a.zarr"
    fs.pipe(f"/{tmp_path.name}/a.zarr/thesis.txt", b"mine")
    with pytest.raises(StoreError, match="is in the way and bigfs did not make it"):
        storage.stage(rows, url, scratch=tmp_path / "scratch")
    assert fs.cat(f"/{tmp_path.name}/a.zarr/thesis.txt") == b"mine"
    assert len(fs.find(f"/{tmp_path.name}/a.zarr")) == 1


def test_a_failed_staging_leaves_nothing_in_an_object_store(rows, tmp_path):
    url = f"memory://{tmp_path.name}/b.zarr"
    rows.write_text(ROWS + "1 1:x\n")
    with pytest.raises(StoreError, match="line 4"):
        storage.stage(rows, url, scratch=tmp_path / "scratch")
    assert fsspec.filesystem("memory").find(f"/{tmp_path.name}/b.zarr") == []
    rows.write_text(ROWS)
    storage.stage(rows, url, scratch=tmp_path / "scratch")
    assert not any(
        "made-by-bigfs" in key
        for key in fsspec.filesystem("memory").find(f"/{tmp_path.name}/b.zarr")
    )


def test_stores_of_one_name_share_a_scratch_folder(rows, tmp_path):
    scratch = tmp_path / "scratch"
    with building(str(tmp_path / "x" / "a.zarr"), manifest.exists, scratch=scratch) as (_, spills):
        (spills / "count").write_text("of x")
        storage.stage(rows, tmp_path / "y" / "a.zarr", scratch=scratch)
        assert (spills / "count").read_text() == "of x"
    assert names_in(scratch) == []


def test_a_graph_deletes_no_folder_of_the_user(rows, tmp_path):
    corpus = storage.open(storage.stage(rows, tmp_path / "a.zarr"))
    uri = storage.graph(corpus, 1, method="exact").uri
    work = Path(uri).with_name(f".{Path(uri).name}.staging")
    Path(uri).rename(tmp_path / "moved")
    work.mkdir()
    (work / "thesis.txt").write_text("mine")
    assert storage.graph(corpus, 1, method="exact").made
    assert (work / "thesis.txt").read_text() == "mine"


FULL_DISK = """
import json, os, sys
from bigfs import storage
from bigfs.storage.errors import SourceError, StoreError
from bigfs.storage.sources.tables import columnar

columnar.MAX_GROUP_BYTES.value = 1 << 14  # bytes: the Parquet file is cut first
disk, *sources = sys.argv[1:]
answers = []
for number, source in enumerate(sources):
    store = f"{disk}/{number}.zarr"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    with open(f"{disk}/filler", "wb") as filler:
        filler.write(bytes(free - 100_000))
    try:
        storage.stage(source, store)
        answer = ["no error"]
    except StoreError as error:
        cause = getattr(error.__cause__, "errno", None)
        answer = [str(error), isinstance(error, SourceError), cause]
    left = sorted(name for name in os.listdir(disk) if not name.endswith(".lock"))
    os.remove(f"{disk}/filler")
    answers.append([*answer, left, storage.open(storage.stage(source, store)).spec["content"]])
    assert storage.check(store).problems == []
    __import__("shutil").rmtree(store)
print(json.dumps(answers))
"""


def write_large(folder):
    """Sources of which every one takes some megabytes of scratch, each by another way of
    writing.
    """
    rng = np.random.default_rng(0)
    X = np.round(rng.random((150, 300)), 3).astype(np.float32)
    scipy.io.savemat(folder / "dense.mat", {"X": X, "Y": np.arange(150)[:, None] % 3})
    np.save(folder / "dense.npy", X)
    sp.save_npz(folder / "csc.npz", sp.csc_array(X))
    scipy.io.mmwrite(folder / "dense.mtx", X)
    lines = [
        " ".join([str(i % 3), *(f"{j + 1}:{v}" for j, v in enumerate(row))])
        for i, row in enumerate(X.tolist())
    ]
    (folder / "rows.svm").write_text("\n".join(lines) + "\n")
    texts = [" ".join(f"w{v}" for v in rng.integers(0, 3000, 300)) for _ in range(150)]
    (folder / "texts.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts)
    )
    pq.write_table(pa.table({"text": texts}), folder / "texts.parquet")
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.mark.nightly
def test_a_full_disk_is_named_and_the_next_run_is_right(tmp_path):
    """On a real file system of 40 MB, in a mount namespace of its own."""
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this system lets no user mount a file system of their own")
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "sources").mkdir()
    (tmp_path / "full.py").write_text(FULL_DISK)
    sources = write_large(tmp_path / "sources")
    mounted = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=40m none {disk} && exec "$@"',
        "sh",
    ]
    job = subprocess.run(
        [*mounted, sys.executable, str(tmp_path / "full.py"), str(disk), *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    for source, (message, blames_source, number, left, content) in zip(
        sources, json.loads(job.stdout), strict=True
    ):
        assert message.startswith(f"the disk of {disk} is full: "), source
        assert not blames_source
        assert number == errno.ENOSPC
        assert left == ["filler"]
        name = Path(source).name
        assert (
            content
            == storage.open(storage.stage(source, tmp_path / f"{name}.zarr")).spec["content"]
        )
