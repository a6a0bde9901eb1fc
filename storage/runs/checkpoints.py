"""Checkpoints of a run's loops as .npz files of arrays and JSON. No pickles.

A checkpoint that is damaged is deleted, and its loop begins again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bigfs.storage import atomic
from bigfs.storage.errors import DAMAGED

log = logging.getLogger("bigfs.storage")


class Checkpoint:
    """Keep the states of named loops as .npz files, as `bigfs.result.Checkpoint` asks."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self.resumed: dict[str, int] = {}  # loop → its steps in an earlier try

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.lower().replace(' ', '-')}-{self.key}.npz"

    def load(self, name: str) -> tuple[tuple[Any, ...], list[dict[str, float]]] | None:
        with reading_cache(file := self._file(name)):
            with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                flat = {key: arrays[key] for key in arrays.files}
            form = json.loads(str(flat["form"]))
            fields = tuple(_unflatten(flat, f"{i}", kind) for i, kind in enumerate(form["fields"]))
            history = [dict(record) for record in form["history"]]
            if not all(
                isinstance(value, int | float) for record in history for value in record.values()
            ):
                raise ValueError("its history must map names to numbers")
            self.resumed[name] = len(history)
            return fields, history
        return None

    def save(self, name: str, state: Any, history: list[dict[str, float]]) -> None:
        flat: dict[str, Any] = {}
        fields = [_flatten(flat, f"{i}", field) for i, field in enumerate(state)]
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic.write(self._file(name)) as part, part.open("wb") as file:
            np.savez(
                file,
                allow_pickle=False,
                form=json.dumps({"fields": fields, "history": to_json_types(history)}),
                **flat,
            )


@contextlib.contextmanager
def reading_cache(file: Path) -> Iterator[None]:
    """End the block at a file that is missing or damaged.

    A damaged one is deleted, with a word, because it is made again.
    """
    try:
        yield
    except FileNotFoundError:
        pass
    except DAMAGED as error:
        log.warning("%s is damaged (%s): it is made again", file, error or type(error).__name__)
        file.unlink(missing_ok=True)


def _flatten(flat: dict[str, Any], key: str, value: Any) -> Any:
    """Put the arrays of `value` under `key` and return a description that `_unflatten` takes."""
    if sp.issparse(value):
        value = value.tocsr()
        flat |= {
            f"{key}.data": value.data,
            f"{key}.indices": value.indices,
            f"{key}.indptr": value.indptr,
        }
        return ["csr", *value.shape]
    if isinstance(value, tuple | list):
        return ["tuple", [_flatten(flat, f"{key}.{i}", item) for i, item in enumerate(value)]]
    if value is None:
        return ["none"]
    if isinstance(value, np.ndarray):
        flat[key] = value
        return ["array"]
    flat[key] = np.asarray(value)
    return ["number"]


def _unflatten(flat: dict[str, Any], key: str, form: Any) -> Any:
    kind = form[0]
    if kind == "csr":
        array = sp.csr_array(
            (flat[f"{key}.data"], flat[f"{key}.indices"], flat[f"{key}.indptr"]),
            shape=tuple(form[1:]),
        )
        array.check_format(full_check=True)
        return array
    if kind == "tuple":
        return tuple(_unflatten(flat, f"{key}.{i}", item) for i, item in enumerate(form[1]))
    if kind == "none":
        return None
    return flat[key] if kind == "array" else flat[key].item()


def digest(value: Any) -> str:
    """Return the hash of a value of JSON's types and NumPy's. Others go by their text."""
    text = json.dumps(to_json_types(value), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def to_json_types(value: Any) -> Any:
    """Return a value with NumPy's numbers and arrays as Python's, for JSON."""
    if isinstance(value, dict):
        return {str(k): to_json_types(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_types(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
