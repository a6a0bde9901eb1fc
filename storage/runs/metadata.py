"""run.json of a run directory: what it has to hold, and how it is read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from pathlib import Path
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from bigfs.storage.errors import RunError, explain_read_errors

NUMBERS = ("history", "curves", "size_choice")  # fields whose numbers may be NaN, null in JSON
VERSION = 1
CHECKSUM = "checksum"  # of all other fields


class _Stage(BaseModel):
    stage: str
    seconds: float
    peak_memory: dict[str, int]


class _Point(BaseModel):
    """A point of a curve. Its other fields are scores."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, float | None]

    method: str
    n_features: int
    # of a control, by metric: the standard deviation of the draws, and the draws
    spread: dict[str, float | None] = {}
    draws: dict[str, list[float | None]] = {}


class _Measured(BaseModel):
    metrics: list[str] = ["accuracy"]


class _Parameters(BaseModel):
    store: str
    method: str
    features: int | Literal["auto", "percentile", "fpr", "fdr", "fwe"] | None
    parameters: dict[str, Any]


class _SizeChoice(BaseModel):
    """How a run chose its number of features, where that was asked for as "auto"."""

    n_features: int
    sizes: list[int]
    scores: list[list[float | None]]


class _Metadata(BaseModel):
    """The fields of run.json that the program reads again."""

    model_config = ConfigDict(strict=True)

    version: int
    parameters: _Parameters
    files: dict[str, str] = {}  # the hash of each file of the run
    stages: list[_Stage] = []
    history: list[dict[str, float | None]] = []
    curves: list[_Point] = []
    measured: _Measured = _Measured()
    size_choice: _SizeChoice | None = None
    n_features: int | None = None  # where no number was given
    profile: list[list[float]] = []
    hints: list[str] = []
    resumed: dict[str, int] = {}
    status: str = ""
    evaluation: str = ""
    verdict: str = ""

    @model_validator(mode="after")
    def _require_scores(self) -> Self:
        for i, point in enumerate(self.curves):
            for metric in self.measured.metrics:
                if metric not in point.__pydantic_extra__:
                    raise PydanticCustomError("score", f"curves.{i} has no {metric}")
        return self


def read_metadata(path: Path) -> dict[str, Any]:
    """Read and check the run.json of a run directory."""
    file = path / "run.json"
    with explain_read_errors(file):
        text = file.read_text(encoding="utf-8")
        metadata = json.loads(text)
        version, checksum = metadata["version"], metadata.pop(CHECKSUM, None)
    if checksum is None:
        raise RunError(f"{path} was written by a bigfs before version 1.0: run it again")
    with explain_read_errors(file):
        if checksum != _checksum(metadata):
            raise ValueError("it is not what was written")
        newer = isinstance(version, int) and version > VERSION
    if newer:
        raise RunError(
            f"{path} was written by a newer bigfs (format {version}; this one reads up to "
            f"{VERSION}): upgrade bigfs"
        )
    try:
        _Metadata.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        fault = f"{field}: {first['msg']}" if field else first["msg"]
        raise RunError(f"{file} is damaged ({fault}): repeat the run") from error
    return {name: with_nan(value) if name in NUMBERS else value for name, value in metadata.items()}


def sealed_json(metadata: dict[str, Any], *, indent: bool = True) -> str:
    """Return the text of run.json, or of another record, with its checksum."""
    plain = orjson.loads(strict_json(metadata))
    return strict_json({**plain, CHECKSUM: _checksum(plain)}, indent=indent)


def unseal(text: bytes) -> dict[str, Any] | None:
    """Return a record from its text, or None if it is not what was written."""
    with contextlib.suppress(ValueError):
        record = json.loads(text)
        if isinstance(record, dict) and record.pop(CHECKSUM, None) == _checksum(record):
            return record
    return None


def _checksum(metadata: dict[str, Any]) -> str:
    text = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def strict_json(value: Any, *, indent: bool = False) -> str:
    """Return a value as JSON, with null for numbers that are not finite."""
    return orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 if indent else None).decode()


def with_nan(value: Any) -> Any:
    """Return lists and records of numbers with NaN for null."""
    if isinstance(value, dict):
        return {name: with_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [with_nan(item) for item in value]
    return math.nan if value is None else value
