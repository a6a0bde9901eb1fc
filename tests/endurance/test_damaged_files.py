"""Damaged files of every format: read as the reference reader reads them, or refused in one line.

A file is a good one with a few mutations, drawn from its number, which a failure names.
BIGFS_FILES is their number per format. A process of its own reads them, within a limit of memory.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import shutil
import tarfile
import warnings
import zipfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from bigfs import storage
from bigfs.engine import MemoryLimitError
from bigfs.storage import sources
from bigfs.storage.errors import StoreError
from tests.helpers.sources import documents_of

FILES = int(os.environ.get("BIGFS_FILES", "40"))
SECONDS = 60  # of one file
NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
ODD = b"1e300 1e-300 -1e39 1e-46 3.4028235e38 nan inf -inf 9007199254740993 4294967297 -1".split()
ODD += b"2147483646 2147483648 100000000 18446744073709551617 0 -0.0 1e5000 0x10 1_0 1. .5".split()
ODD += rb'1e NA 5000000 c0\u0000 \ud800 null [1,2] "'.split()
ODD += [b"", b"1" + b"0" * 400, b"\xff\xfe", b"\0", b"\xef\xbb\xbf"]
TYPES = ["float16", "S8", "uint64", "complex64", "longdouble", "float32", "int8", "U8", ">f8"]
WORDS = ["grain", "wheat", "oil", "naïve", "東京", "x", "said", "bank"]


# --- good files -----------------------------------------------------------------------------------


def table(rng):
    n, d = (int(size) for size in rng.integers(1, 9, 2))
    X = sp.random_array((n, d), density=0.5, format="csr", rng=rng)
    X.data = np.round(X.data, 3) + 0.001
    return X, rng.integers(-1, 3, n)


def documents(rng):
    return [
        {"text": " ".join(rng.choice(WORDS, 5)), "label": str(rng.choice(WORDS[:3])), "id": i}
        for i in range(rng.integers(2, 8))
    ]


def written(write):
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def svm(rng):
    X, y = table(rng)
    return written(lambda out: dump_svmlight_file(X, y, out, zero_based=bool(rng.integers(2))))


def jsonl(rng):
    return "".join(json.dumps(d) + "\n" for d in documents(rng)).encode()


def comma(rng):
    out = io.StringIO()
    writer = csv.DictWriter(out, ["text", "label", "id"])
    writer.writeheader()
    writer.writerows(d | {"text": d["text"] + ', "so"\nit is'} for d in documents(rng))
    return out.getvalue().encode()


def parquet(rng):
    own = pa.Table.from_pylist(documents(rng))
    return written(lambda out: pq.write_table(own, out, row_group_size=3))


def mtx(rng):
    X, _ = table(rng)
    return written(lambda out: scipy.io.mmwrite(out, X if rng.random() < 0.7 else X.toarray()))


def damaged(rng, arrays):
    """Give one array an extreme value, another type, another length or a repeated entry."""
    name = str(rng.choice(list(arrays)))
    array = np.array(arrays[name])
    wide = array.astype(float if array.dtype.kind == "f" else np.int64)
    extremes = [1e300, np.nan, np.inf] if wide.dtype.kind == "f" else [2**31, 2**32 + 1, -1, 2**62]
    wide.flat[rng.integers(array.size) : rng.integers(array.size) + 1] = rng.choice(extremes)
    ways = [wide, array.astype(str(rng.choice(TYPES)))]
    if array.ndim == 1 and array.size:
        ways += [array[:-1], array[::-1], np.append(array, array[-1:])]
        ways += [np.repeat(array[:1], len(array))]
    return arrays | {name: ways[rng.integers(len(ways))]}


def npz(rng):
    X, y = table(rng)
    kind = str(rng.choice(["csr", "csc", "dense"]))
    if kind == "dense":
        parts = damaged(rng, {"X": X.toarray(), "y": y})
        return written(lambda out: np.savez(out, **parts))
    Z = X.asformat(kind)
    parts = damaged(rng, {"data": Z.data, "indices": Z.indices, "indptr": Z.indptr})
    about = {"format": np.array(kind.encode()), "shape": np.array(X.shape)}
    return written(lambda out: np.savez(out, **parts, **about))


def npy(rng):
    return written(lambda out: np.save(out, damaged(rng, {"X": table(rng)[0].toarray()})["X"]))


def mat(rng):
    X, y = table(rng)
    parts = {"X": X if rng.random() < 0.5 else X.toarray(), "Y": y[:, None]}
    packed = bool(rng.integers(2))
    return written(lambda out: scipy.io.savemat(out, parts, do_compression=packed))


def tar(rng):
    def write(out):
        with tarfile.open(fileobj=out, mode="w") as archive:
            for d in documents(rng):
                info = tarfile.TarInfo(f"{d['label']}/{d['id']}.txt")
                info.size = len(raw := d["text"].encode())
                archive.addfile(info, io.BytesIO(raw))

    return written(write)


def zipped(rng):
    def write(out):
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for d in documents(rng):
                archive.writestr(f"{d['label']}/{d['id']}.txt", d["text"])

    return written(write)


MAKERS = {"svm": svm, "jsonl": jsonl, "csv": comma, "parquet": parquet, "mtx": mtx, "npz": npz}
MAKERS |= {"npy": npy, "mat": mat, "tar": tar, "zip": zipped}
PACKED = {"svm.gz": gzip, "mtx.xz": lzma, "jsonl.bz2": bz2, "csv.gz": gzip}
TEXTS = {"jsonl", "csv", "parquet", "tar", "zip"}


# --- mutations ------------------------------------------------------------------------------------


def mutate(chance, raw, lines):
    """Change some bytes, and where it is a file of lines also a line or a number."""
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at, way = chance.randrange(len(raw) + 1), chance.randrange(9 if lines else 5)
        if way == 0:
            raw = raw[:at] + chance.randbytes(1) + raw[at + 1 :]
        elif way == 1:
            raw = raw[:at]
        elif way == 2:
            raw = raw[:at] + chance.choice([*ODD, b" ", b"\n", b":", b","]) + raw[at:]
        elif way == 3:
            raw = raw[:at] + raw[at + chance.randrange(1, 20) :]
        elif way == 4:
            at *= chance.random() > 0.2
            number = chance.choice([2**31, 2**32 - 1, 2**40, 2**63 - 1, 0]).to_bytes(8, "little")
            raw = raw[:at] + number[: chance.choice([4, 8])] + raw[at + 8 :]
        elif way < 7:
            parts = raw.splitlines(keepends=True) or [b""]
            a, b = chance.randrange(len(parts)), chance.randrange(len(parts))
            parts[a], parts[b] = (parts[b], parts[a]) if way == 5 else (parts[a] * 2, parts[b])
            raw = b"".join(parts)
        elif numbers := list(NUMBER.finditer(raw)):
            match = chance.choice(numbers)
            raw = raw[: match.start()] + chance.choice(ODD) + raw[match.end() :]
    return raw


def draw(kind, number):
    """Return the bytes of a damaged file."""
    plain, rng = kind.split(".")[0], np.random.default_rng([number, *kind.encode()])
    chance, raw = random.Random(f"{kind} {number}"), MAKERS[kind.split(".")[0]](rng)
    lines = plain in ("svm", "jsonl", "csv", "mtx")
    if kind in PACKED:
        packed = PACKED[kind].compress
        if chance.random() < 0.5:
            return packed(mutate(chance, raw, lines))
        return mutate(chance, packed(raw), lines=False)
    inside = plain in ("npz", "npy") and chance.random() < 0.6
    return raw if inside else mutate(chance, raw, lines)


# --- readers --------------------------------------------------------------------------------------


def read_texts(path, folder):
    found = documents_of(sources.find(path), folder)
    return sorted((d.text, "" if d.label is None else str(d.label)) for d in found)


def read_matrix(path, folder):
    shutil.rmtree(folder / "X.zarr", ignore_errors=True)
    options = {"memory_limit": "512MB", "scale": "none", "wait": 0}
    corpus = storage.open(storage.stage(path, folder / "X.zarr", **options))
    return sp.vstack([tile.load() for tile in corpus.X.row_tiles], format="csr")


def members(kind, path):
    if kind == "tar":
        with tarfile.open(path) as archive:
            files = [info for info in archive if info.isreg() and info.name.endswith(".txt")]
            return [(archive.extractfile(info).read(), info.name) for info in files]
    with zipfile.ZipFile(path) as archive:
        return [(archive.read(name), name) for name in archive.namelist() if name[-4:] == ".txt"]


def reference(kind, path):
    """Read a file by another library: (text, label) pairs or a matrix."""
    plain = kind.split(".")[0]
    if plain in ("tar", "zip"):
        return sorted((raw.decode(), str(Path(name).parent)) for raw, name in members(plain, path))
    raw = PACKED[kind].open(path).read() if kind in PACKED else path.read_bytes()
    if plain in TEXTS:
        if plain == "jsonl":
            records = [json.loads(line) for line in raw.split(b"\n") if line.strip()]
        elif plain == "parquet":
            records = pq.read_table(path).to_pylist()
        else:
            strings = dict.fromkeys(("text", "label", "id"), "string")
            options = pa.csv.ConvertOptions(column_types=strings, strings_can_be_null=False)
            parse = pa.csv.ParseOptions(newlines_in_values=True)
            records = pa.csv.read_csv(
                io.BytesIO(raw), parse_options=parse, convert_options=options
            ).to_pylist()
        labels = ["" if r.get("label") is None else str(r["label"]) for r in records]
        texts = [(r["text"] or "").encode("utf-8", "replace").decode() for r in records]
        return sorted(zip(texts, labels, strict=True))
    if plain == "svm":
        return load_svmlight_file(io.BytesIO(raw), dtype=np.float64, zero_based="auto")[0]
    if plain == "mtx":
        return sp.csr_array(scipy.io.mmread(io.BytesIO(raw)))
    if plain == "npy":
        return sp.csr_array(np.load(path).astype(np.float64))
    if plain == "mat":
        return sp.csr_array(scipy.io.loadmat(path)["X"]).astype(np.float64)
    with np.load(path) as archive:
        if "X" in archive:
            return sp.csr_array(archive["X"].astype(np.float64))
    return sp.csr_array(sp.load_npz(path)).astype(np.float64)


def agree(found, expected):
    """Return whether two readers say the same, whose matrices may end before empty columns."""
    if isinstance(expected, list):
        return found == expected
    d = max(found.shape[1], expected.shape[1])
    X, Y = sp.csr_array(found), sp.csr_array(expected)
    with np.errstate(all="ignore"):
        Y.sum_duplicates()
        Y = Y.astype(np.float32)
    X.resize(X.shape[0], d)
    Y.resize(Y.shape[0], d)
    return X.shape == Y.shape and not (X != Y).nnz


def limit_memory():
    """Let the process grow by 3 GB of addresses from here on."""
    warnings.simplefilter("ignore")
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (3 << 30), size + (3 << 30)))


def verdict_of(kind, number, folder):
    """Return what is wrong with how a file is read, or nothing, and whether it was read."""
    path = folder / f"case{number}.{kind}"
    path.write_bytes(draw(kind, number))
    of_text = kind.split(".")[0] in TEXTS
    try:
        found = (read_texts if of_text else read_matrix)(path, folder)
    except (StoreError, MemoryLimitError) as error:
        plain = path.name.split(".")[0] in str(error) and "\n" not in str(error)
        return "" if plain else f"{path.name}: {error}", False
    except Exception as error:  # every error that is no refusal is a failure
        return f"{path.name}: {type(error).__name__}: {error}", False
    try:
        expected = reference(kind, path)
    except Exception:  # the reference may fail in any way of its own
        return "", True
    return "" if agree(found, expected) else f"{path.name}: {found} / {expected}", True


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [*MAKERS, *PACKED])
def test_a_damaged_file_is_read_as_the_reference_reads_it_or_refused(kind, tmp_path):
    failures, read = [], 0
    with ProcessPoolExecutor(1, get_context("spawn"), limit_memory) as pool:
        for number in range(FILES):
            said, good = pool.submit(verdict_of, kind, number, tmp_path).result(SECONDS)
            failures += [said] * bool(said)
            read += good
    assert not failures, "\n".join(failures)
    assert read < FILES
    assert read or kind == "mtx.xz"  # xz has a checksum, and few damages leave a Matrix Market file
