"""Damaged files of every format: read as the reference reader reads them, or refused in one line
that names the file.

python benchmarks/fuzz_sources.py --files 5000 --seed 0 --formats svm,mtx

Each file is a good one with a few mutations. A process of its own stages it within 512 MB, and
reads it as other libraries do. What differs, crashes, or takes too long or too much is kept.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import re
import resource
import shutil
import tarfile
import tempfile
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
import typer
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

MEMORY = 282_000_000  # what 512 MB leave beside the libraries
SECONDS = 60
SPAWN = get_context("spawn")
NUMBER = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
EXTREME = (
    b"1e300 1e-300 -1e39 1e-46 3.4028235e38 nan inf -inf 9007199254740993 4294967297 2147483646 "
    b"2147483647 2147483648 100000000 18446744073709551617 0 -1 -0.0 1e5000 0x10 1_0 1. .5 1e NA "
    b"5000000"
).split()
EXTREME += [b"", b"1" + b"0" * 400]
ODD = rb'c0\u0000 \ud800 9007199254740993 -1 0.5 null [1,2] " =HYPERLINK(1)'.split()
ODD += [b"\xff\xfe", b"\0", b"\xef\xbb\xbf"]
TYPES = ["float16", "S8", "uint64", "complex64", "longdouble", "float32", "int8", "U8", ">f8"]
WORDS = ["grain", "wheat", "oil", "naïve", "東京", "x", "said", "bank"]
FAILURES = ("differs", "crash", "memory", "slow", "unnamed", "error")
Matrix = tuple[sp.csr_array, Any]  # values and labels, None if there are none


# --- good files -----------------------------------------------------------------------------------


def table(rng: np.random.Generator) -> tuple[sp.csr_array, np.ndarray]:
    n, d = (int(size) for size in rng.integers(1, 9, 2))
    X = sp.random_array((n, d), density=0.5, format="csr", rng=rng)
    X.data = np.round(X.data, 3) + 0.001
    return X, rng.integers(-1, 3, X.shape[0])


def documents(rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {"text": " ".join(rng.choice(WORDS, 5)), "label": str(rng.choice(WORDS[:3])), "id": i}
        for i in range(rng.integers(2, 8))
    ]


def written(write: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def svm(rng: np.random.Generator) -> bytes:
    X, y = table(rng)
    return written(lambda out: dump_svmlight_file(X, y, out, zero_based=bool(rng.integers(2))))


def jsonl(rng: np.random.Generator) -> bytes:
    return "".join(json.dumps(d) + "\n" for d in documents(rng)).encode()


def features(rng: np.random.Generator) -> bytes:
    X, y = table(rng)
    rows = [{str(j): X[i, j] for j in range(X.shape[1]) if X[i, j]} for i in range(X.shape[0])]
    found = [{"features": row, "label": int(c)} for row, c in zip(rows, y, strict=True)]
    return "".join(json.dumps(one) + "\n" for one in found).encode()


def comma(rng: np.random.Generator) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["text", "label", "id"], quoting=csv.QUOTE_MINIMAL)
    writer.writeheader()
    writer.writerows(
        d | {"text": d["text"] + ', "so"\nit is'} if rng.random() < 0.3 else d
        for d in documents(rng)
    )
    return out.getvalue().encode()


def parquet(rng: np.random.Generator) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    own = pa.Table.from_pylist(documents(rng))
    return written(lambda out: pq.write_table(own, out, row_group_size=3))


def mtx(rng: np.random.Generator) -> bytes:
    X, _ = table(rng)
    return written(lambda out: scipy.io.mmwrite(out, X if rng.random() < 0.7 else X.toarray()))


def damaged(rng: np.random.Generator, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One of the arrays with an extreme value, another type, another length or a repeated entry."""
    arrays, name = dict(arrays), str(rng.choice(list(arrays)))
    array = np.array(arrays[name])
    kind = int(rng.integers(6))
    if kind == 0 and array.size:
        real = array.dtype.kind == "f"
        wide, extremes = array.astype(np.int64), [2**31, 2**32 + 1, -1, 2**62, 2**53 + 1, 0]
        if real:
            wide, extremes = array.astype(float), [1e300, 1e-300, np.nan, np.inf, 3.4e38]
        wide.flat[rng.integers(array.size)] = extremes[rng.integers(len(extremes))]
        array = wide
    elif kind == 1:
        array = array.astype(str(rng.choice(TYPES)))
    elif kind == 2 and array.ndim == 1:
        array = array[:-1]
    elif kind == 3 and array.ndim == 1:
        array = np.append(array, array[-1:])
    elif kind == 4 and array.ndim == 1 and len(array):
        array = np.repeat(array[:1], len(array))
    elif array.ndim == 1:
        array = array[::-1]
    return arrays | {name: array}


def npz(rng: np.random.Generator) -> bytes:
    X, y = table(rng)
    kind = str(rng.choice(["csr", "csc", "coo", "dense"]))
    Z = X.asformat(kind if kind != "dense" else "csr")
    parts: dict[str, Any] = {"X": X.toarray(), "y": y} if kind == "dense" else {"data": Z.data}
    if kind == "coo":
        parts |= {"row": Z.row, "col": Z.col}
    elif kind != "dense":
        parts |= {"indices": Z.indices, "indptr": Z.indptr}
    if rng.random() < 0.7:
        parts = damaged(rng, parts)
    if kind != "dense":
        parts |= {"format": np.array(kind.encode()), "shape": np.array(X.shape)}
    return written(lambda out: np.savez(out, **parts))


def npy(rng: np.random.Generator) -> bytes:
    X = damaged(rng, {"X": table(rng)[0].toarray()})["X"]
    return written(lambda out: np.save(out, X))


def mat(rng: np.random.Generator) -> bytes:
    X, y = table(rng)
    out = io.BytesIO()
    parts = {"X": X if rng.random() < 0.5 else X.toarray(), "Y": y[:, None]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scipy.io.savemat(out, parts, do_compression=bool(rng.integers(2)))
    return out.getvalue()


def h5ad(rng: np.random.Generator) -> bytes:
    import h5py

    X, y = table(rng)
    kind = str(rng.choice(["csr", "csc", "array"]))
    parts = {"X": X.toarray(), "y": y}
    if kind != "array":
        Z = X.asformat(kind)
        parts = {"data": Z.data, "indices": Z.indices, "indptr": Z.indptr, "y": y}
    parts = damaged(rng, parts) if rng.random() < 0.7 else parts
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        for name, array in parts.items():
            array = array.astype("S8") if array.dtype.kind == "U" else array
            file["obs/label" if name == "y" else "X" if name == "X" else f"X/{name}"] = array
        file["obs/_index"] = np.arange(len(y)).astype("S")
        if kind != "array":
            file["X"].attrs.update({"encoding-type": f"{kind}_matrix", "shape": X.shape})
    return out.getvalue()


def tar(rng: np.random.Generator) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for d in documents(rng):
            info = tarfile.TarInfo(f"{d['label']}/{d['id']}.txt")
            info.size = len(raw := d["text"].encode())
            archive.addfile(info, io.BytesIO(raw))
    return out.getvalue()


def zipped(rng: np.random.Generator) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for d in documents(rng):
            archive.writestr(f"{d['label']}/{d['id']}.txt", d["text"])
    return out.getvalue()


Maker = Callable[[np.random.Generator], bytes]


def packed(compress: Callable[[bytes], bytes], write: Maker) -> Maker:
    """A compressed file; half of them are mutated before they are packed."""

    def make(rng: np.random.Generator) -> bytes:
        raw, chance = write(rng), random.Random(int(rng.integers(2**31)))
        return compress(mutated(chance, raw) if rng.random() < 0.5 else raw)

    return make


MAKERS: dict[str, Maker] = {
    **{"svm": svm, "jsonl": jsonl, "features.jsonl": features, "csv": comma, "parquet": parquet},
    **{"mtx": mtx, "npz": npz, "npy": npy, "mat": mat, "h5ad": h5ad, "tar": tar, "zip": zipped},
    **{"svm.gz": packed(gzip.compress, svm), "mtx.xz": packed(lzma.compress, mtx)},
    **{"jsonl.bz2": packed(bz2.compress, jsonl), "csv.gz": packed(gzip.compress, comma)},
}
TEXT = {"svm", "jsonl", "features.jsonl", "csv", "mtx"}  # mutated by line and number too


# --- mutations ------------------------------------------------------------------------------------


def mutated(chance: random.Random, raw: bytes, text: bool = True) -> bytes:
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        raw = chance.choice([*BYTES, *(LINES * 2 if text else [])])(chance, raw)
    return raw


def place(chance: random.Random, raw: bytes) -> int:
    return chance.randrange(len(raw) + 1)


def flip(chance: random.Random, raw: bytes) -> bytes:
    at = place(chance, raw[:-1])
    return raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :]


def truncate(chance: random.Random, raw: bytes) -> bytes:
    return raw[: place(chance, raw)]


def insert(chance: random.Random, raw: bytes) -> bytes:
    at, more = place(chance, raw), [b" ", b"\n", b":", b",", chance.randbytes(4)]
    return raw[:at] + chance.choice([*EXTREME, *ODD, *more]) + raw[at:]


def delete(chance: random.Random, raw: bytes) -> bytes:
    at = place(chance, raw)
    return raw[:at] + raw[at + chance.randrange(1, 20) :]


def overwrite(chance: random.Random, raw: bytes) -> bytes:
    """An extreme number in binary somewhere, or a wrong beginning."""
    at = 0 if chance.random() < 0.2 else place(chance, raw)
    number = chance.choice([2**31, 2**32 - 1, 2**40, 2**63 - 1, 0, 2**53 + 1]).to_bytes(8, "little")
    return raw[:at] + number[: chance.choice([4, 8])] + raw[at + 8 :]


def swap(chance: random.Random, raw: bytes) -> bytes:
    lines = raw.splitlines(keepends=True) or [b""]
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def repeat(chance: random.Random, raw: bytes) -> bytes:
    """A line, or a part of one, comes twice."""
    lines = raw.splitlines(keepends=True) or [b""]
    at = chance.randrange(len(lines))
    parts = re.split(rb"([ ,])", lines[at])
    if chance.random() < 0.5:
        lines.insert(at, lines[at])
    else:
        lines[at] = b"".join([*parts[:-1], *parts[-2:]])
    return b"".join(lines)


def extreme(chance: random.Random, raw: bytes) -> bytes:
    numbers = list(NUMBER.finditer(raw))
    if not numbers:
        return raw
    match = chance.choice(numbers)
    return raw[: match.start()] + chance.choice([*EXTREME, *ODD]) + raw[match.end() :]


BYTES = [flip, truncate, insert, delete, overwrite]
LINES = [swap, repeat, extreme, extreme]


def case(seed: int, number: int, kinds: list[str]) -> tuple[str, bytes]:
    kind, rng = kinds[number % len(kinds)], np.random.default_rng([seed, number])
    raw = MAKERS[kind](rng)
    # damaged inside already
    whole = kind in ("npz", "h5ad", "npy") or "." in kind.replace("features.", "")
    if whole and rng.random() < 0.6:
        return kind, raw
    return kind, mutated(random.Random(f"{seed} {number}"), raw, kind in TEXT)


# --- the reference readers ------------------------------------------------------------------------


def reference(kind: str, path: Path) -> Any:
    """(matrix, labels) or (text, label) pairs of a file, as another library reads it."""
    opener = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}.get(kind.rsplit(".", 1)[-1], open)
    plain = kind.split(".")[0] if opener is not open else kind
    if plain in ("tar", "zip"):
        return sorted(members(plain, path))
    if plain == "parquet":
        import pyarrow.parquet as pq

        return [(r["text"] or "", r.get("label")) for r in pq.read_table(path).to_pylist()]
    with opener(path, "rb") as file:  # type: ignore[operator]  # openers of other signatures
        raw = file.read()
    if plain == "svm":
        X, y = load_svmlight_file(io.BytesIO(raw), dtype=np.float64, zero_based="auto")
        return sp.csr_array(X), y
    if plain in ("jsonl", "features.jsonl"):
        return json_lines([json.loads(line) for line in raw.split(b"\n") if line.strip()])
    if plain == "csv":
        from pyarrow import csv as tables

        strings = dict.fromkeys(("text", "label", "id"), "string")
        options = tables.ConvertOptions(column_types=strings, strings_can_be_null=False)
        parse = tables.ParseOptions(newlines_in_values=True)
        read = tables.read_csv(io.BytesIO(raw), parse_options=parse, convert_options=options)
        return [(r["text"], r.get("label")) for r in read.to_pylist()]
    if plain == "mtx":
        return sp.csr_array(scipy.io.mmread(io.BytesIO(raw))), None
    return arrays_of(plain, path)


def json_lines(found: list[Any]) -> Any:
    if any("features" in d for d in found):
        columns = [[int(j) for j in d["features"]] for d in found]
        X = sp.lil_array((len(found), 1 + max(map(max, filter(None, columns)), default=-1)))
        for i, d in enumerate(found):
            for j, value in d["features"].items():
                X[i, int(j)] = value
        return sp.csr_array(X), [d.get("label") for d in found]
    return [(d["text"].encode("utf-8", "replace").decode(), d.get("label")) for d in found]


def arrays_of(kind: str, path: Path) -> Matrix:
    if kind == "npy":
        return sp.csr_array(np.load(path).astype(np.float64)), None
    if kind == "npz":
        with np.load(path) as archive:
            if "X" in archive:
                return sp.csr_array(archive["X"].astype(np.float64)), archive.get("y")
        return sp.csr_array(sp.load_npz(path)).astype(np.float64), None
    if kind == "mat":
        content = scipy.io.loadmat(path)
        labels = content["Y"].ravel() if "Y" in content else None
        return sp.csr_array(content["X"]).astype(np.float64), labels
    import h5py

    with h5py.File(path) as file:
        X, y = file["X"], file["obs/label"][:]
        if isinstance(X, h5py.Dataset):
            return sp.csr_array(X[:].astype(np.float64)), y
        parts = X["data"][:].astype(np.float64), X["indices"][:], X["indptr"][:]
        shape, form = tuple(X.attrs["shape"]), str(X.attrs["encoding-type"])
        Z = (sp.csr_array if form == "csr_matrix" else sp.csc_array)(parts, shape=shape)
        Z.check_format(full_check=True)
        return sp.csr_array(Z), y


def members(kind: str, path: Path) -> Iterator[tuple[str, str]]:
    if kind == "tar":
        with tarfile.open(path) as archive:
            for info in archive:
                if info.isreg() and info.name.endswith(".txt"):
                    content = archive.extractfile(info)
                    assert content is not None  # it is a regular file
                    yield content.read().decode(), str(Path(info.name).parent)
    else:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".txt"):
                    yield archive.read(name).decode(), str(Path(name).parent)


# --- one file -------------------------------------------------------------------------------------


def judge(kind: str, path: Path, store: Path) -> Iterator[tuple[str, str]]:
    """(verdict, details) without the reference, whose reader may crash, and then with it."""
    from bigfs import storage
    from bigfs.engine import NotEnoughMemory
    from bigfs.storage.errors import StoreError

    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, refusal, corpus, texts = resident("VmRSS"), None, None, None
    failure: tuple[str, str] | None = None
    try:
        options: dict[str, Any] = {"min_df": 1} if plain_text(kind) else {}
        corpus = storage.open(storage.stage(path, store, memory_limit="512MB", wait=0, **options))
        if plain_text(kind):
            texts = texts_of(path, store.parent)
    except (StoreError, NotEnoughMemory) as error:
        refusal = str(error)
    except MemoryError as error:
        failure = "memory", repr(error)
    except Exception:  # any error that is not a refusal is what the fuzzer looks for
        failure = "error", traceback.format_exc(limit=-4)
    if (grown := resident("VmHWM") - before) > MEMORY:
        failure = "memory", f"{grown >> 20} MB"
    if refusal is not None and (path.name.split(".")[0] not in refusal or "\n" in refusal):
        failure = "unnamed", refusal
    alone = failure or (
        ("laxer", "the reference does not read it") if refusal is None else ("refused", refusal)
    )
    yield alone
    try:
        expected = reference(kind, path)
    except Exception as error:  # a reference reader may fail in any way of its own
        yield (alone[0], repr(error)[:200]) if alone[0] == "laxer" else alone
        return
    if failure or refusal is not None:
        yield failure or ("stricter", str(refusal))
        return
    of_texts = isinstance(expected, list)
    difference = texts_differ(texts, expected) if of_texts else matrices_differ(corpus, *expected)
    yield ("differs", difference) if difference else ("same", "")


def plain_text(kind: str) -> bool:
    return kind.split(".")[0] in ("jsonl", "csv", "parquet", "tar", "zip")


def texts_of(path: Path, scratch: Path) -> Any:
    from bigfs.storage import sources

    source = sources.find(path).prepare(scratch)
    parts = [part for piece in source.pieces(1 << 20) for part in source.read(piece)]  # type: ignore[attr-defined]  # a source of documents
    told = [(list(part.texts), part.samples["label"].to_pylist()) for part in parts]
    return [document for texts, labels in told for document in zip(texts, labels, strict=True)]


def resident(field: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def texts_differ(texts: Any, expected: list[tuple[str, Any]]) -> str:
    same = [(text, None if label in (None, "") else str(label)) for text, label in expected]
    ours = [(text, None if label is None else str(label)) for text, label in texts or []]
    if sorted(ours, key=repr) == sorted(same, key=repr):
        return ""
    only = [[pair for pair in a if pair not in b][:3] for a, b in ((ours, same), (same, ours))]
    return f"{only[0]} where the reference has {only[1]}"


def matrices_differ(corpus: Any, X: sp.csr_array, y: Any) -> str:
    ours = sp.vstack([tile.load() for tile in corpus.X.row_tiles], format="csr")
    with np.errstate(all="ignore"):
        theirs = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
        theirs.sum_duplicates()
        theirs = theirs.astype(np.float32)
    d = max(ours.shape[1], theirs.shape[1])
    ours.resize(ours.shape[0], d)
    theirs.resize(theirs.shape[0], d)
    if ours.shape != theirs.shape:
        return f"{ours.shape} where the reference has {theirs.shape}"
    if (ours != theirs).nnz:
        shown = [part.toarray().tolist() if d < 99 else part for part in (ours, theirs)]
        return f"{shown[0]} where the reference has {shown[1]}"
    if y is None or corpus.spec["target"] not in ("class", "real"):
        return ""
    if len(y) != len(corpus.y):
        return f"{len(corpus.y)} labels where the reference has {len(y)}"
    real = corpus.spec["target"] == "real"
    for code, label in zip(corpus.y.tolist(), list(y), strict=True):
        known = label is not None and label == label and label not in ("", b"")
        name = code if real else corpus.class_names[code] if code >= 0 else None
        if not alike(name, label) if known else (name is not None and name == name):
            return f"label {name!r} where the reference has {label!r}"
    return ""


def alike(name: Any, label: Any) -> bool:
    """Whether a class name is a label, or a float that rounds to the same number."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, bytes):
        label = label.decode("latin-1")
    if isinstance(label, bool):
        label = str(label).lower()
    if isinstance(label, float | np.floating) or isinstance(name, float):
        return float(name) == float(label)
    return str(name) == str(label)


def work(pipe: Connection) -> None:
    """The process that reads: kind and path in, two verdicts out."""
    import h5py  # noqa: F401, what is loaded later would count as a file's memory
    import pyarrow.parquet  # noqa: F401, the same

    from bigfs import storage
    from bigfs.storage.sources.svmlight import kernel  # noqa: F401, the same

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm.svm"
        warm.write_text("1 1:1\n2 2:1\n")
        storage.open(storage.stage(warm, Path(folder) / "warm.zarr"))
        resource.setrlimit(resource.RLIMIT_AS, (resident("VmSize") + (3 << 30),) * 2)
        pipe.send("ready")
        while True:
            for verdict in judge(*pipe.recv(), Path(folder) / "X.zarr"):
                pipe.send(verdict)
            for left in Path(folder).iterdir():
                if left != warm:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()


# --- all files ------------------------------------------------------------------------------------


class Reader:
    """The reading process, begun anew after a crash."""

    process: Any = None

    def judge(self, kind: str, path: Path) -> tuple[str, str]:
        if self.process is None:
            self.pipe, theirs = SPAWN.Pipe()
            self.process = SPAWN.Process(target=work, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
            if (said := self.answer(600)) != "ready":
                raise RuntimeError(f"the reader does not start: {said}")
        self.pipe.send((kind, path))
        alone = self.answer(SECONDS)
        compared = self.answer(SECONDS) if self.process is not None else alone
        return compared if self.process is not None else alone

    def answer(self, seconds: float) -> Any:
        if not self.pipe.poll(seconds):
            self.stop()
            return "slow", f"more than {seconds} s"
        try:
            return self.pipe.recv()
        except EOFError:
            self.stop()
            return "crash", "the process ended"

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def main(
    files: int = 5000, seed: int = 0, formats: str = ",".join(MAKERS), keep: Path = Path("fuzz")
) -> None:
    """Read damaged files and compare; exits with 1 if any fails."""
    kinds, verdicts, reader = formats.split(","), Counter[tuple[str, str]](), Reader()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            kind, raw = case(seed, number, kinds)
            path = Path(folder) / f"case-{number:06d}.{kind}"
            path.write_bytes(raw)
            verdict, details = reader.judge(kind, path)
            verdicts[kind, verdict] += 1
            if verdict in FAILURES:
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, keep)
                (keep / f"{path.name}.{verdict}").write_text(details)
                last = details.strip().splitlines()[-1][:200]
                print(f"{path.name}: {verdict}: {last}", flush=True)
            path.unlink()
    reader.stop()
    columns = ("same", "refused", "stricter", "laxer", *FAILURES)
    print("format".ljust(16), *(c.rjust(8) for c in columns))
    for kind in [*kinds, "all"]:
        own = {c: sum(verdicts[k, c] for k in kinds if kind in (k, "all")) for c in columns}
        print(kind.ljust(16), *(f"{n:8d}" for n in own.values()))
    raise typer.Exit(any(verdict in FAILURES for _, verdict in verdicts))


if __name__ == "__main__":
    typer.run(main)
