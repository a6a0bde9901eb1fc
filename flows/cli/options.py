"""Arguments and options of the command line, written once."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel

from bigfs.selectors.registry import canonical_name
from flows.job import Job
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


Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="do it again, even if results exist, and replace other results"),
]


WithPrefect = Annotated[
    bool | None,
    typer.Option(
        "--prefect/--no-prefect",
        help="run as a Prefect flow, on a server of its own where Prefect knows none "
        "(default: if Prefect's settings name an API)",
    ),
]


Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


class Fields(NamedTuple):
    """Which fields of a job a command takes, and its own defaults."""

    without: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = MappingProxyType({})


def expand_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the models among the parameters of a command by one option per field.

    A job has the options of its groups too, and `--set`, `--keep` and `--forbid` for the parameters
    of its method.
    """
    signature = inspect.signature(command, eval_str=True)
    options: list[inspect.Parameter] = []
    models: dict[str, Callable[[dict[str, Any]], BaseModel]] = {}
    for name, parameter in signature.parameters.items():
        kind = getattr(parameter.annotation, "__origin__", parameter.annotation)
        if kind is Job:
            models[name] = _build_job
            options += _job_options(parameter.annotation.__metadata__[0])
        elif kind in (Staging, Scoring, Engine):
            models[name] = functools.partial(_build_group, kind)
            options += _group_options(kind)
        else:
            options.append(parameter)

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        built = {name: build(values) for name, build in models.items()}
        command(**values, **built)

    # Typer lists arguments and options in their order, and a switch for JSON last
    options.sort(key=lambda option: option.name == "as_json")
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in options]
    expanded.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]  # Typer reads it
    expanded.__annotations__ = {p.name: p.annotation for p in options}
    return expanded


def _job_options(fields: Fields) -> list[inspect.Parameter]:
    options, groups = [], []
    for name, field in Job.fields().items():
        if name in fields.without:
            continue
        if name == "parameters":
            shared = {"set_": Set, "keep": Keep, "forbid": Forbid}
            options += [_keyword(option, None, kind) for option, kind in shared.items()]
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            groups += _group_options(field.annotation)
        elif name == "source":
            options.append(_keyword(name, inspect.Parameter.empty, Source))
        else:
            own = {"method": Method, "features": Features, "fresh": Fresh}
            option = _option(name, field)
            default = fields.defaults.get(name, field.default)
            options.append(_keyword(name, default, own.get(name, option.annotation)))
    return options + groups


def _group_options(group: type[BaseModel]) -> list[inspect.Parameter]:
    return [_option(name, field) for name, field in group.model_fields.items()]


def _build_job(values: dict[str, Any]) -> Job:
    """Return the job of the options, which it takes out of `values`."""
    pairs, keep, forbid = (values.pop(name) for name in ("set_", "keep", "forbid"))
    given: dict[str, Any] = {"parameters": with_constraints(parse_parameters(pairs), keep, forbid)}
    for name, field in Job.fields().items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            given[name] = _build_group(kind, values)
        elif name in values:
            given[name] = values.pop(name)
    return Job(**given)


def _build_group(group: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    return group(**{name: values.pop(name) for name in group.model_fields})


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


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
    return _keyword(name, field.default, annotation)
