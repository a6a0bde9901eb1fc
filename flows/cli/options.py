"""Arguments and options of the command line, written once."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError

from bigfs.synonyms import canonical_name
from flows.options import Engine, Scoring, Staging, count_or_share


def parse_parameters(pairs: list[str] | None) -> dict[str, Any]:
    """Parse `name=value` pairs. A value that is not JSON is text."""
    parameters: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set must be name=value; got {pair!r}")
        if name in parameters:
            raise ValueError(f"--set {name} is given twice: give it once")
        try:
            parameters[name] = json.loads(value)
        except json.JSONDecodeError:
            parameters[name] = value
    return parameters


def with_constraints(
    parameters: dict[str, Any], keep: str | None, forbid: str | None
) -> dict[str, Any]:
    """Return the parameters with the kept and forbidden features of the command line."""
    for name, text in (("keep", keep), ("forbid", forbid)):
        if text is None:
            continue
        if name in parameters:
            raise ValueError(f"--{name} is given twice: leave out --set {name}=")
        parameters = {**parameters, name: _parse_feature_list(name, text)}
    return parameters


def _parse_feature_list(name: str, text: str) -> list[str] | list[int]:
    """Read names, or indices where all are whole numbers."""
    is_file = Path(text).is_file()
    parts = Path(text).read_text(encoding="utf-8").splitlines() if is_file else text.split(",")
    words = [word.strip() for word in parts if word.strip()]
    if not words:
        raise ValueError(f"--{name} must name one or more features; got {text!r}")
    return [int(word) for word in words] if all(word.isdigit() for word in words) else words


def _parse_count_or_share(text: str) -> int | float:
    try:
        return count_or_share(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _parse_features(value: int | str) -> int | str:
    if value in ("auto", "percentile", "fpr", "fdr", "fwe"):
        return value
    try:
        number = int(value)
    except ValueError:
        number = 0
    if number < 1:
        raise typer.BadParameter(
            f"must be a whole number of at least 1, auto, percentile, fpr, fdr or fwe; got {value}"
        )
    return number


def _parse_stop_words(text: str) -> str:
    if text != "english" and not Path(text).is_file():
        raise typer.BadParameter(
            f"must be english, or a file with one word per line; there is no file {text}"
        )
    return text


Source = Annotated[str, typer.Argument(help="path, URL, or a name that `bigfs datasets` lists")]


Store = Annotated[str, typer.Argument(help="path or URL of a staged corpus")]


Method = Annotated[
    str,
    typer.Option(help="a method that `bigfs methods` lists, or a synonym", callback=canonical_name),
]


Features = Annotated[
    Any,
    typer.Option(
        help="number of features to select, or auto: the smallest within one standard error of the "
        "best, by folds of the training samples; percentile, fpr, fdr and fwe choose by p-values, "
        "at the level --set param=",
        parser=_parse_features,
        metavar="INTEGER|auto|fdr|…",
    ),
]


Out = Annotated[str | None, typer.Option(help="directory of the run (default: runs/NAME)")]


Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="parameter of the method, as name=value (repeatable)"),
]


Keep = Annotated[
    str | None,
    typer.Option(
        help="features that must be chosen: names or indices, separated by commas, or a file with "
        "one per line"
    ),
]


Forbid = Annotated[
    str | None,
    typer.Option(help="features that must not be chosen, as for --keep"),
]


Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def expand_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the groups of options among the parameters of a command by one option per field."""
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: p.annotation
        for name, p in signature.parameters.items()
        if p.annotation in (Staging, Scoring, Engine)
    }

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        models = {
            name: _build_model(group, {field: values.pop(field) for field in group.model_fields})
            for name, group in groups.items()
        }
        command(**values, **models)

    options = [p for name, p in signature.parameters.items() if name not in groups]
    options += [
        _option(name, field)
        for group in groups.values()
        for name, field in group.model_fields.items()
    ]
    expanded.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]  # Typer reads it
    expanded.__annotations__ = {p.name: p.annotation for p in options}
    return expanded


def _build_model(group: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return the group with these values. An error keeps the message, without pydantic's frame."""
    try:
        return group(**values)
    except ValidationError as error:
        messages = [
            str(detail.get("ctx", {}).get("error", f"{detail['loc'][0]}: {detail['msg']}"))
            for detail in error.errors()
        ]
        raise ValueError("; ".join(messages)) from error


def _option(name: str, field: Any) -> inspect.Parameter:
    minimum = next((check.ge for check in field.metadata if hasattr(check, "ge")), None)
    annotation: Any
    if field.annotation == int | float:
        annotation = Annotated[
            Any,
            typer.Option(
                help=field.description, parser=_parse_count_or_share, metavar="INTEGER|SHARE"
            ),
        ]
    elif field.annotation == str | list[str] | None:
        annotation = Annotated[
            Any,
            typer.Option(help=field.description, parser=_parse_stop_words, metavar="english|FILE"),
        ]
    else:
        annotation = Annotated[field.annotation, typer.Option(help=field.description, min=minimum)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=annotation
    )
