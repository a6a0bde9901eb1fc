"""A job that is settled: the content that it reads, and the key of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bigfs import storage
from bigfs.flows.job import Job


@dataclass(frozen=True, eq=False)
class Plan:
    """Hold what a run is made of, as it was when the run began. The steps ask nothing again.

    `corpus` is the store with the segments that it had then, and `key` identifies its content, the
    question and the program. It names the run and its checkpoints.
    """

    job: Job
    corpus: Any
    key: str

    @classmethod
    def of(cls, job: Job, corpus: Any = None) -> Plan:
        """Return the plan of a job whose store is there."""
        corpus = storage.open(str(job.store)) if corpus is None else corpus
        job = job.with_method(corpus)
        return cls(job, corpus, job.key(corpus.spec))

    @property
    def folder(self) -> str:
        """The name of the run."""
        return self.job.folder

    @property
    def timeout(self) -> float:
        """The time limit per step, in seconds."""
        return self.job.timeout

    @property
    def method(self) -> str:
        """The method."""
        return str(self.job.method)

    @property
    def features(self) -> Any:
        """The number of features, or how it is chosen."""
        from bigfs.flows.evaluation.selection import number_of

        return number_of(self.job.features, self.corpus)
