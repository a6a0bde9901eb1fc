"""Options of staging, scoring and the Dask cluster, for Prefect's form and the command line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from bigfs.advice import closest, install_command
from bigfs.engine.budget import count_as_idle
from bigfs.engine.clusters import cluster, prepare_workers, require_size, write_report
from bigfs.engine.specification import configured_scheduler, is_specification
from bigfs.flows.messages import inform
from bigfs.flows.use.files import require_local
from bigfs.selectors.registry import METHODS, canonical_name
from bigfs.storage.messages import read_parts


def count_or_share(value: int | float | str) -> int | float:
    """Read a number of documents, or the share of all documents."""
    number: int | float = 0
    with contextlib.suppress(ValueError):
        number = value if isinstance(value, int | float) else float(value)
    if isinstance(value, str) and value.strip().isdigit():
        number = int(value)
    if number >= 1 if isinstance(number, int) else 0 < number <= 1:
        return number
    raise ValueError(f"must be a whole number of at least 1 or a share in (0, 1]; got {value}")


def seconds_of(age: str) -> float:
    """Read an age such as 30d, 12h or 2w."""
    if (found := re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", age)) is None:
        raise ValueError(f"must be a number of hours, days or weeks: 12h, 30d or 4w; got {age!r}")
    return float(found[1]) * {"h": 3600, "d": 86400, "w": 7 * 86400}[found[2]]


def _english_or_file(words: str | list[str] | None) -> str | list[str] | None:
    if isinstance(words, str) and words != "english" and not Path(words).is_file():
        raise ValueError(
            f"must be english, or a file with one word per line; there is no file {words}"
        )
    return words


def _ordered(ngram_range: tuple[int, int]) -> tuple[int, int]:
    if not 1 <= ngram_range[0] <= ngram_range[1]:
        raise ValueError(
            f"ngram_range must be two whole numbers from 1 on, the least first; got {ngram_range}"
        )
    return ngram_range


def _message_parts(text: str | None) -> str | None:
    read_parts(text)
    return text


Count = Annotated[int | float, BeforeValidator(count_or_share)]
# URLs that Prefect's pages must not show: with names of users, or signed
SECRET = (
    r"^\w+://([^/?#]*@|[^#]*[?&][^=&#]*"
    r"([Ss]ig|[Ss]ignature|[Tt]oken|[Ss]ecret|[Pp]assword|[Cc]redential|[Kk]ey)=)"
)
UNSIGNED: dict[str, Any] = {"not": {"type": "string", "pattern": SECRET}}


class SourceOptions(BaseModel):
    """Options for reading a source. A format may add options of its own."""

    model_config = ConfigDict(extra="allow")

    format: str | None = Field(
        default=None, description="format of the source (default: detected from its content)"
    )
    label: str | None = Field(
        default=None,
        description="column with the labels, or several columns of 0 and 1, separated by commas "
        "(default: the column label)",
    )
    test: str | None = Field(
        default=None,
        description="source of the test samples, where they lie apart; it is read as the first is",
        json_schema_extra=UNSIGNED,
    )
    split_map: str | None = Field(
        default=None,
        description="what other names of splits mean, such as validation=test,extra= (which leaves "
        "extra out)",
    )
    min_df: Count = Field(
        default=2,
        description="drop terms that occur in fewer documents: a count, or a share of the "
        "documents such as 0.01",
    )
    max_df: Count = Field(
        default=1.0,
        description="drop terms that occur in more documents: a count, or a share of the "
        "documents such as 0.5",
    )
    ngram_range: Annotated[tuple[int, int], AfterValidator(_ordered)] = Field(
        default=(1, 1), description="least and greatest number of tokens of a term"
    )
    stop_words: Annotated[str | list[str] | None, AfterValidator(_english_or_file)] = Field(
        default=None,
        description='tokens to leave out: "english" (the list of scikit-learn), or a file with '
        "one word per line",
    )
    analyzer: Literal["word", "char", "char_wb"] = Field(
        default="word",
        description="what --ngram-range counts: tokens, characters (for scripts without blanks "
        "between words), or the characters of each word with a blank at both ends",
    )
    token_pattern: str | None = Field(
        default=None,
        description="regular expression of a token (default: two word characters or more, with "
        "their marks)",
    )
    strip_accents: Literal["ascii", "unicode"] | None = Field(
        default=None,
        description="leave out accents: ascii those of letters of ASCII, with all other "
        "characters, unicode all that Unicode decomposes",
    )
    remove: Annotated[str | None, AfterValidator(_message_parts)] = Field(
        default=None,
        description="parts of messages to leave out, separated by commas: headers, footers, quotes",
    )
    sublinear_tf: bool = Field(
        default=True, description="replace each term count tf by 1 + log(tf)"
    )
    hashing: int | None = Field(
        default=None,
        ge=2,
        description="hash terms into this many columns instead of learning a vocabulary",
    )
    weight: Literal["tfidf", "lognorm"] | None = Field(
        default=None,
        description="weigh the counts of a matrix: as text is weighed, or by the sum of their row "
        "and a logarithm (scanpy's normalize_total and log1p)",
    )
    target_sum: float | None = Field(
        default=None,
        gt=0,
        description="sum of a row for --weight lognorm, before the logarithm (default: the median "
        "of the sums of the training samples)",
    )
    scale: Literal["auto", "standard", "max", "none"] = Field(
        default="auto",
        description="divide the columns of a matrix by their standard deviation, or by their "
        "largest absolute value, of the training samples; auto standardizes a table of which the "
        "largest deviation is over ten times the median one",
    )
    tile_rows: int | None = Field(
        default=None,
        ge=1,
        description="rows per tile (default: chosen from the number of non-zeros)",
    )

    def stage_options(self) -> dict[str, Any]:
        """Return the options of `bigfs.storage.stage`. Not every format has each of them."""
        unset = {name for name in ("label", "split_map") if getattr(self, name) is None}
        return self.model_dump(exclude=unset)


def known_metrics(names: list[str]) -> list[str]:
    """Return names of metrics, each of which must be one."""
    from bigfs.evaluation.metrics import METRICS  # loads scikit-learn, as the methods do

    known = dict.fromkeys(name for names in METRICS.values() for name in names)
    return _require_known(names, list(known), "metric")


def known_methods(names: list[str]) -> list[str]:
    """Return names of methods without their synonyms, each of which must be one."""
    return _require_known(list(dict.fromkeys(map(canonical_name, names))), list(METHODS), "method")


def _require_known(names: list[str], known: list[str], what: str) -> list[str]:
    if not names:
        raise ValueError(f"must name one {what} or more")
    for name in names:
        if name not in known:
            rest = f"; the {what}s are {', '.join(known)}"
            raise ValueError(f"unknown {what} {name!r}{closest(name, known) or rest}")
    return names


def _require_two(names: list[str]) -> list[str]:
    if {"anova", "fisher"} <= set(names):
        raise ValueError("anova and fisher rank features alike: compare with one of them")
    return names


Sizes = Annotated[
    list[Annotated[int, Field(ge=1)]],
    Field(min_length=1),
    AfterValidator(lambda sizes: sorted(set(sizes))),
]
Methods = Annotated[list[str], AfterValidator(known_methods)]
Control = Literal["shuffled-labels", "random-list"]


class Scoring(BaseModel):
    """Options for scoring choices of features."""

    model_config = ConfigDict(extra="forbid")

    metrics: Annotated[list[str], AfterValidator(known_metrics)] | None = Field(
        default=None,
        description="metrics, the first of which is drawn and decides (default: accuracy; "
        "micro_f1 and macro_f1 for several labels per sample; r2 for real targets)",
    )
    cv: int | None = Field(
        default=None,
        ge=2,
        description="score by this many folds, with the features selected again in each (default: "
        "5 folds, or a held-out fifth where folds are too much work; for corpora without test "
        "samples)",
    )
    classifier: Literal["svm", "logistic"] = Field(
        default="svm",
        description="model that scores classes and labels: a linear SVM, or a logistic "
        "regression, which also measures auc and neg_log_loss by default",
    )
    test_size: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="score on this share of the samples, with the features selected again without "
        "them (for corpora without test samples)",
    )

    controls: list[Control] | None = Field(
        default=None,
        description="lists that know nothing of the labels, to compare the choice with: "
        "shuffled-labels, which the method (of a comparison the first one) chooses after the "
        "labels were shuffled, and random-list",
    )
    draws: int | None = Field(
        default=None, ge=2, description="number of draws of each control (default: 10)"
    )

    @field_validator("test_size")
    @classmethod
    def _require_one_split(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("cv") is not None:
            raise ValueError("cv and test_size exclude one another: give one of them")
        return value

    @field_validator("draws")
    @classmethod
    def _require_controls(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and not info.data.get("controls"):
            raise ValueError("draws are of controls: give controls too")
        return value

    @property
    def protocol(self) -> dict[str, Any]:
        """The choices without the controls, which change no other score."""
        choices = self.choices()
        return {name: choices[name] for name in choices if name not in ("controls", "draws")}

    def choices(self) -> dict[str, Any]:
        """Return what differs from the default, as `bigfs.flows.steps.score` takes it."""
        names = {"cv": "folds", "against": "baselines"}
        given = self.model_dump(exclude_defaults=True)
        return {names.get(name, name): value for name, value in given.items()}


class RunScoring(Scoring):
    """Options for scoring the selection of a run, on a curve with other methods."""

    sizes: Sizes | None = Field(
        default=None,
        description="numbers of features on the curve (default: 10, 20, 50 and 100 % of the "
        "features selected)",
    )
    against: Annotated[Methods, AfterValidator(_require_two)] | None = Field(
        default=None,
        description="methods to compare with (default: anova and, without negative features, "
        "chi2; f-regression for real targets)",
    )


def _size(memory_limit: str) -> str:
    require_size(memory_limit)
    return memory_limit


def _with_scheduler(tls: str | None, info: ValidationInfo) -> str | None:
    if tls is not None and (info.data.get("scheduler") or configured_scheduler()) is None:
        raise ValueError("tls is for a cluster that runs: give its scheduler (tls://…) too")
    return tls


def _specification(path: str | None, info: ValidationInfo) -> str | None:
    if path is not None and not is_specification(path):
        raise ValueError(f"must be the path of a .yaml file; got {path}")
    if path is not None and info.data.get("scheduler") is not None:
        raise ValueError("scheduler and cluster exclude one another: give one of them")
    return path


def _require_bokeh(what: str) -> None:
    if find_spec("bokeh") is None:
        raise ValueError(f"{what} is drawn by bokeh: {install_command('flows')}")


def _require_dashboard(dashboard: bool) -> bool:
    if dashboard:
        _require_bokeh("the dashboard")
    return dashboard


def _drawable(file: str | None, info: ValidationInfo) -> str | None:
    if file is None:
        return None
    if info.data.get("workers") == 0:
        raise ValueError("a performance report is about workers: give 1 worker or more")
    _require_bokeh("a performance report")
    return require_local(file)


class ClusterOptions(BaseModel):
    """Options for the Dask cluster that does the work."""

    model_config = ConfigDict(extra="forbid")

    scheduler: str | None = Field(
        default=None,
        description="address of a Dask scheduler (default: DASK_SCHEDULER_ADDRESS, or start local "
        "processes)",
    )
    cluster: Annotated[str | None, AfterValidator(_specification)] = Field(
        default=None,
        description="YAML file of a cluster to start and close: cluster_class, such as "
        "dask_jobqueue.SLURMCluster, cluster_kwargs and adapt_kwargs",
    )
    tls: Annotated[str | None, AfterValidator(_with_scheduler)] = Field(
        default=None,
        description="folder of certificates for a tls:// scheduler, written by `bigfs "
        "certificates`",
    )
    workers: int | None = Field(
        default=None,
        ge=0,
        description="number of local processes; 0 runs serially (default: one per core)",
    )
    memory_limit: Annotated[str, AfterValidator(_size)] = Field(
        default="1GB",
        description="memory limit per local process. A limit that is given counts all that the "
        "process holds (default: 1GB, on top of what this process held before)",
    )
    dashboard: Annotated[bool, AfterValidator(_require_dashboard)] = Field(
        default=False,
        description="serve Dask's dashboard for the local processes, open to all users of this "
        "machine",
    )
    performance_report: Annotated[str | None, AfterValidator(_drawable)] = Field(
        default=None, description="HTML file for Dask's report on what each worker did when"
    )

    @property
    def is_local(self) -> bool:
        """Whether this process does the work, or processes that it starts on this machine."""
        elsewhere = self.scheduler or self.cluster
        return not (elsewhere or (self.workers is None and configured_scheduler()))

    @property
    def staging_memory(self) -> str | None:
        """The memory limit of a staging task started here.

        None leaves the limit to the scheduler's workers, or to "auto".
        """
        return self.memory_limit if self.is_local and self.memory_limit != "auto" else None

    def prepare(self, *modules: str) -> None:
        """Import modules for all local workers at once, while this process does other work.

        Its tasks' libraries take longer to import than a small selection takes to compute.
        """
        if self.is_local and self.workers != 0:
            prepare_workers(*modules)

    @contextlib.contextmanager
    def start(self) -> Iterator[Any]:
        """Start or reach the Dask cluster that these options name. Say where its dashboard is."""
        running = cluster(
            self.cluster or self.scheduler,
            workers=self.workers,
            memory_limit=self.memory_limit,
            security=self.tls,
            dashboard=self.dashboard,
        )
        is_given = "memory_limit" in self.model_fields_set
        with running as client, contextlib.nullcontext() if is_given else count_as_idle():
            if (link := self.dashboard_link(client)) is not None:
                inform(f"Dask dashboard: {link}")
            if self.performance_report is None:
                yield client
                return
            with write_report(client, self.performance_report):
                yield client
            inform(f"performance report: {self.performance_report}")

    def dashboard_link(self, client: Any) -> str | None:
        """Return the address of the dashboard of a cluster that has one and is meant to show it."""
        wanted = client is not None and (self.dashboard or not self.is_local)
        if not wanted or "dashboard" not in client.scheduler_info()["services"]:
            return None
        return str(client.dashboard_link)
