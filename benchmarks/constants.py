"""The measured constants of `bigfs` and `storage` that a short run can measure again.

Seconds are of the processor, so that other work on the machine counts little.

python benchmarks/constants.py
"""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from shared import timed  # which imports scikit-learn, so that no import is counted as memory

from bigfs import storage
from bigfs.storage.sources import find

NAMES = 20_000
TEXT_BYTES = 1 << 20
# what a worker of the neighbor graph has loaded: the kernels come from numba's cache
WORKER = """
import distributed, numpy, psutil, scipy.sparse
from bigfs import graph
from bigfs.matrix import Matrix
X = scipy.sparse.random_array((400, 50), density=0.2, format="csr", rng=0, dtype=numpy.float32)
for method in ("exact", "approx"):
    graph.knn(Matrix.from_array(X), 5, method=method)
print(psutil.Process().memory_info().rss)
"""


def traced(action: Callable[[], object]) -> int:
    """Peak of the bytes that Python and NumPy allocate during the action."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write_names(path: Path) -> None:
    """An archive of many small documents."""
    names = [f"corpus/group-{number % 20}/{number:06d}" for number in range(NAMES)]
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, b"word")
        return
    with tarfile.open(path, "w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"word"))


def write_texts(path: Path, vocabulary: int | None) -> None:
    """JSON Lines of 200 words each, from a vocabulary or with every word another one."""
    rng, word = np.random.default_rng(0), 0
    with path.open("w") as file:
        while file.tell() < TEXT_BYTES:
            numbers = (
                range(word, word + 200)
                if vocabulary is None
                else (vocabulary * rng.random(200) ** 3).astype(int).tolist()
            )
            word += 200
            text = " ".join(f"w{number:06d}" for number in numbers)
            file.write(json.dumps({"text": text, "label": word % 2}) + "\n")


def write_features(path: Path) -> None:
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        while file.tell() < TEXT_BYTES:
            columns = rng.choice(900_000, 100, replace=False) + 100_000
            file.write(json.dumps({"features": {str(c): 1 for c in columns}, "label": 1}) + "\n")


def rates() -> None:
    """Flops per second of one core."""
    rng = np.random.default_rng(0)
    n = 3000
    K = np.eye(n) + 1e-4 * rng.random((n, n))
    K = K + K.T
    spent = timed(scipy.linalg.cho_factor, K).processor
    print(f"Cholesky: {n**3 / 3 / spent:.1e} flops per second of a core")
    X = sp.random_array((5000, 20_000), density=0.002, format="csr", rng=rng)
    flops = 2 * float((np.bincount(X.indices, minlength=X.shape[1]).astype(float) ** 2).sum())
    spent = timed(lambda: X @ X.T).processor
    print(f"sparse product: {flops / spent:.1e} flops per second of a core")


def main() -> None:
    rates()
    command = [sys.executable, "-c", WORKER]
    subprocess.run(command, capture_output=True, check=True)  # compiles the kernels, if need be
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"worker with libraries and kernels: {int(answer.stdout) >> 20} MB")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("names.tar", "names.zip"):
            write_names(folder / name)
            source = find(folder / name)
            peak = traced(lambda source=source: source.pieces(1 << 30))
            print(f"bytes per document of the list of {name}: {peak / NAMES:.0f}")
        for name, write in (
            ("usual.jsonl", lambda path: write_texts(path, 20_000)),
            ("distinct.jsonl", lambda path: write_texts(path, None)),
            ("features.jsonl", write_features),
        ):
            path = folder / name
            write(path)
            options = {"min_df": 1} if name != "features.jsonl" else {}
            peak = traced(
                lambda path=path, options=options: storage.stage(
                    path, path.with_suffix(".zarr"), **options
                )
            )
            print(f"bytes per byte of {name}: {peak / path.stat().st_size:.0f}")


if __name__ == "__main__":
    main()
