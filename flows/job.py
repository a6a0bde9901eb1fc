"""The request of a run. The options of the command line, Prefect's form, run.json and the keys of
results are made of the fields of one model.

It imports neither Prefect nor scikit-learn, so a command that has nothing to do ends at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)
from pydantic.fields import FieldInfo

from bigfs.flows.options import ClusterOptions, RunScoring, SourceOptions, known_methods
from bigfs.flows.reuse import content_key, source_name
from bigfs.flows.use.files import require_local
from bigfs.selectors.registry import BY_TARGET, METHODS, SYNONYMS, WITHOUT_TARGET, decided_by
from bigfs.storage.errors import redact
from bigfs.storage.runs.checkpoints import digest

DAY = 24 * 3600.0
KEY_DIGITS = 8  # of a key in the name of a directory


def said(text: str, **schema: Any) -> Any:
    """Return the help text of a field, for the command line and for Prefect's form.

    Prefect overwrites the description of a parameter, but not what else its schema says.
    """
    return Field(description=text, json_schema_extra={"description": text, **schema})


# --- the fields of requests, which are the parameters of flows too --------------------------------

Source = Annotated[
    str, said("path, URL, or a name that `bigfs datasets` lists, or a staged corpus")
]
Store = Annotated[
    str | None, said("path or URL of the staged corpus (default: .bigfs/NAME-KEY.zarr)")
]
Out = Annotated[
    str | None,
    AfterValidator(lambda out: out if out is None else require_local(out)),
    said("directory of the results (default: runs/NAME-KEY)"),
]
Settings = Annotated[SourceOptions, said("how the source is staged")]
Cluster = Annotated[ClusterOptions, said("where the work is done")]
Overlap = Annotated[
    Literal["wait", "skip"], said("what to do while another run uses the same directory")
]
Fresh = Annotated[bool, said("do it again, even if results exist, and replace other results")]
Timeout = Annotated[float, Field(gt=0), said("time limit per step, in seconds")]
Method = Annotated[
    str | None,
    AfterValidator(lambda name: None if name is None else known_methods([name])[0]),
    said(
        "a method that `bigfs methods` lists, or a synonym; auto tries those that suit the target, "
        "in folds of the training samples (default: sparge-lda, or sparge-cca for several labels "
        "or real targets, or sparge-pca without labels)",
        enum=[*METHODS, *SYNONYMS, None],
    ),
]
Mode = Literal["auto", "percentile", "fpr", "fdr", "fwe"]
MODES = get_args(Mode)


def _number_or_mode(value: Any) -> Any:
    """Read a number of features, or how it is chosen. None is the default number."""
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if value is None or value in MODES or (isinstance(value, int) and value >= 1):
        return value
    raise ValueError(
        f"must be a whole number of at least 1, {', '.join(MODES[:-1])} or {MODES[-1]}; got {value}"
    )


Features = Annotated[
    Annotated[int, Field(ge=1)] | Mode | None,
    BeforeValidator(_number_or_mode),
    said(
        "number of features to select, or auto: the smallest within one standard error of the "
        "best, by folds of the training samples; percentile, fpr, fdr and fwe choose by p-values, "
        "at the level that the parameter param gives (default: 500, or half of the features of a "
        "corpus with fewer than 1,000)"
    ),
]
Parameters = Annotated[
    dict[str, Any],
    said("parameters of the method, by their names in scikit-learn style"),
]
CurveScoring = Annotated[RunScoring, said("how the selection is scored")]


# --- the parameters of other flows and commands ---------------------------------------------------

StagedCorpus = Annotated[str, said("path or URL of a staged corpus")]
RunFolder = Annotated[str, said("a run's directory")]
Format = Annotated[str | None, said("format of the source (default: detected from its content)")]
Split = Annotated[
    Literal["train", "test"],
    said(
        "split of new samples without one (test makes the samples of a store without splits train)"
    ),
]
Data = Annotated[str, said("a store, or a source that is read in pieces")]
Part = Annotated[Literal["train", "test"] | None, said("predict only this part of a store")]
Scores = Annotated[bool, said("also write the decision value of each class")]


class Request(BaseModel):
    """The common part of the requests of a run and of a comparison."""

    model_config = ConfigDict(extra="forbid")
    order: ClassVar[str] = "source"  # the first fields, in the order of their positions

    source: Source
    store: Store = None
    out: Out = None
    settings: Settings = SourceOptions()
    engine: Cluster = ClusterOptions()
    overlap: Overlap = "wait"
    fresh: Fresh = False
    timeout: Timeout = DAY

    # the source to stage, once it was found
    _staging: Any = PrivateAttr(default=None)

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields by their names, in the order of their positions."""
        names = dict.fromkeys([*cls.order.split(), *cls.model_fields])
        return {name: cls.model_fields[name] for name in names}

    @property
    def corpus(self) -> dict[str, Any]:
        """The source, without secrets of its URL, and the settings that differ from the default."""
        settings = self.settings.model_dump(mode="json", exclude_defaults=True)
        if self.settings.test:
            settings["test"] = redact(place_of(self.settings.test))
        return {"source": redact(place_of(self.source)), "settings": settings}

    @property
    def staging(self) -> Any:
        """The store to stage, for which the source is found once."""
        from bigfs.storage.staging.stage import make_plan

        if self._staging is None:
            self._staging = make_plan(self.source, self.store, **self.settings.stage_options())
        return self._staging

    def forget_staging(self) -> None:
        """Find the source again when it is next asked for. A store that has its name from the
        content gets another one.
        """
        from bigfs.storage.format.manifest import normalize_uri
        from bigfs.storage.staging.stage import default_store

        plan, self._staging = self._staging, None
        if plan is not None and plan.uri == normalize_uri(default_store(plan.source, plan.key)):
            self.store = None

    @property
    def folder(self) -> str:
        """The directory of the results, once `with_out` has chosen it."""
        assert self.out is not None
        return self.out

    @property
    def waits(self) -> bool:
        """Whether to wait for another run that uses the same directory."""
        return self.overlap == "wait"

    def with_default_out(self, readable: str, question: Mapping[str, Any]) -> Self:
        """Return the request with a directory: a readable name, and digits of the question's
        hash.
        """
        if self.out is not None:
            return self
        whole = {**self.corpus, "source": place_of(self.source), **question}
        name = f"{readable}-{digest(whole)[:KEY_DIGITS]}"
        return self.model_copy(update={"out": str(Path("runs") / name)})


class Job(Request):
    """A run: the source, the method and how its choice is scored."""

    order = "source method features store out settings parameters"

    method: Method = None
    features: Features = None
    parameters: Parameters = {}
    scoring: CurveScoring = RunScoring()

    @property
    def first_metric(self) -> str | None:
        """The first metric that is given."""
        return next(iter(self.scoring.choices().get("metrics", ())), None)

    @property
    def metric(self) -> str | None:
        """The metric that chooses the number of features, where one is given for that."""
        return self.first_metric if self.features == "auto" else None

    @property
    def question(self) -> dict[str, Any]:
        """The question of the selection: two runs of the same question may have one directory."""
        chosen = {} if self.metric is None else {"metric": self.metric}
        parameters = decided_by(self.method or "", self.parameters, self.first_metric)
        named = {"method": self.method, "features": self.features, "parameters": parameters}
        return {**named, **chosen}

    def with_method(self, corpus: Any) -> Self:
        """Return the job with a method, by the target of its corpus where it names none."""
        method = self.method or default_method(corpus)
        return self.model_copy(update={"method": method})

    def key(self, spec: Mapping[str, Any]) -> str:
        """Return the key of the selection from a store with this description.

        It holds the content and the question, and not where the store lies.
        """
        content = spec["content"]
        if isinstance(self.parameters.get("graph"), str):  # it is read from the source
            from bigfs.storage.sources import find

            content += find(spec["source"]["uri"], format="anndata").fingerprint()
        return content_key(content, *self.question.values())

    def with_out(self) -> Self:
        """Return the job with the directory of its results.

        The default name ends with digits of the question's hash. The content of the source is no
        part of it, so that a folder that grows keeps its directory.
        """
        number = [] if self.features is None else [str(self.features)]
        method = [] if self.method is None else [self.method]
        readable = "-".join([source_name(self.source), *method, *number])
        return self.with_default_out(readable, self.question)


def default_method(corpus: Any) -> str:
    """Return SparGE's method for the target of a corpus."""
    kind = corpus.spec["target"]
    is_labeled = kind != "class" or corpus.class_names
    return BY_TARGET.get(kind, WITHOUT_TARGET) if is_labeled else WITHOUT_TARGET


def place_of(source: str) -> str:
    """Return a source in one spelling: a file or folder relative to the current folder."""
    path, mark, options = source.partition("?")
    if "://" in source or not os.path.exists(path):
        return source
    return os.path.relpath(path) + mark + options


def plain_message(error: ValidationError, name_of: Callable[[str], str] = str) -> str:
    """Return what a model refuses, without pydantic's frame. `name_of` names a field."""
    messages = []
    for detail in error.errors():
        own = detail.get("ctx", {}).get("error")  # of a validator of this program
        text = str(own or detail["msg"]).replace("Input should be", "it must be")
        if own is None:
            text = f"{text.partition(',')[0]}; got {detail['input']!r}"
        is_sentence = own is not None and not text.startswith("must ")
        name = name_of(str(next(iter(detail["loc"]), "")))
        messages.append(text if is_sentence or not name else f"{name}: {text}")
    return "; ".join(dict.fromkeys(messages))
