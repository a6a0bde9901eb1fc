"""What the papers' figures and tables claim, and the rules that decide what holds.

A difference of two methods shows where its mean over the repetitions, paired, is above zero by more
than two standard errors and by more than Student's t asks for at 5 % (6.3 standard errors for two
repetitions, 2.1 for five). So a draw does not show. A claim about several differences holds if all
of them show, holds in part if some do, and does not hold if none does. A figure or table of several
claims likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import t

from benchmarks.papers.results import Results

ERRORS = 2  # a difference shows beyond that many standard errors
LEVEL = 0.05  # of Student's t, one-sided
LEAST = 2  # repetitions for a standard error


class Verdict(StrEnum):
    """What our figures say about a claim."""

    HOLDS = "holds"
    PART = "holds in part"
    FAILS = "does not hold"
    CANNOT = "cannot be tried"
    NOT_RUN = "not run yet"
    NO_CLAIM = "no claim"  # a drawing, or a list of the data


class Outcome(NamedTuple):
    """A verdict and the numbers that it rests on."""

    verdict: Verdict
    evidence: str
    pairs: int = 0  # repetitions that it rests on; 0 where it rests on counts


class Claim(NamedTuple):
    """Something that a figure or table is said to show, and what checks it."""

    text: str
    check: Callable[[], Outcome]
    counts: bool = True  # False for what the paper does not do, which is shown as well


class Item(NamedTuple):
    """A figure or a table of a paper."""

    name: str  # "Fig. 4"
    about: str
    claims: tuple[Claim, ...] = ()
    missing: str = ""  # what of it cannot be tried, and why

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each claim."""
        return [claim.check() for claim in self.claims]

    def pairs(self) -> int:
        """Return the least number of repetitions that the verdict rests on, 0 for none."""
        return least_pairs(claim.check() for claim in self.claims if claim.counts)

    def verdict(self) -> Verdict:
        """Return the verdict on all the claims together."""
        if not self.claims:
            return Verdict.CANNOT if self.missing else Verdict.NO_CLAIM
        return together(claim.check().verdict for claim in self.claims if claim.counts)


def read(name: str, key: str) -> list[list[str]]:
    """Return the rows of a paper in items.tsv or claims.tsv, without its key."""
    lines = (Path(__file__).parent / name).read_text().splitlines()[1:]
    return [line.split("\t")[1:] for line in lines if line.startswith(f"{key}\t")]


def items(key: str, checks: Mapping[str, Sequence[Callable[[], Outcome]]]) -> tuple[Item, ...]:
    """Return the figures and tables of a paper, with what checks each of their claims."""
    claims: dict[str, list[Claim]] = {name: [] for name in checks}
    for name, counts, text in read("claims.tsv", key):
        check = checks[name][len(claims[name])]
        claims[name].append(Claim(text, check, counts == "yes"))
    rows = read("items.tsv", key)
    found = tuple(Item(name, about, tuple(claims.get(name, ())), no) for name, about, no in rows)
    if {i.name: len(i.claims) for i in found if i.claims} != {n: len(c) for n, c in checks.items()}:
        raise ValueError(f"the claims of {key} in claims.tsv are not those that are checked")
    return found


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on several claims. Claims that were not run don't count among others."""
    verdicts = set(verdicts) - {Verdict.NO_CLAIM}
    tried = verdicts - {Verdict.NOT_RUN, Verdict.CANNOT}
    if not tried:
        return Verdict.CANNOT if verdicts == {Verdict.CANNOT} else Verdict.NOT_RUN
    return tried.pop() if len(tried) == 1 else Verdict.PART


def least_pairs(outcomes: Iterable[Outcome]) -> int:
    """Return the least number of repetitions of what has a verdict, or of all where nothing has."""
    found = [outcome for outcome in outcomes if outcome.pairs]
    tried = [outcome.pairs for outcome in found if outcome.verdict != Verdict.NOT_RUN]
    return min(tried or [outcome.pairs for outcome in found], default=0)


class Difference(NamedTuple):
    """The mean of paired differences and its standard error."""

    mean: float
    error: float  # infinite for fewer than two pairs
    pairs: int

    def __str__(self) -> str:
        if self.pairs < LEAST:
            return f"{self.mean:+.3f} (1 repetition)"
        return f"{self.mean:+.3f} ± {self.error:.3f}"

    @property
    def verdict(self) -> Verdict:
        """Return whether the difference shows."""
        if self.pairs < LEAST:
            return Verdict.NOT_RUN
        errors = max(ERRORS, t.ppf(1 - LEVEL, self.pairs - 1))
        return Verdict.HOLDS if self.mean > errors * self.error else Verdict.FAILS


def difference(above: Mapping[int, float], below: Mapping[int, float]) -> Difference | None:
    """Return the difference over the repetitions that both have, or None where there are none."""
    both = sorted(set(above) & set(below))
    if not both:
        return None
    values = np.array([above[r] - below[r] for r in both])
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) >= LEAST else np.inf
    return Difference(float(values.mean()), float(error), len(values))


def above(
    first: Mapping[int, float], others: Mapping[str, Mapping[int, float]], unit: str = ""
) -> Outcome:
    """Return whether one method is above all others, each mapped from repetition to number."""
    found = {name: difference(first, other) for name, other in others.items()}
    present = {name: d for name, d in found.items() if d is not None}
    if not present:
        return Outcome(Verdict.NOT_RUN, "")
    text = ", ".join(f"{d} against {name}" for name, d in present.items())
    pairs = min(d.pairs for d in present.values())
    return Outcome(
        together(d.verdict for d in present.values()),
        f"{unit + ': ' if unit else ''}{text} ({pairs} repetition{'s' * (pairs != 1)})",
        pairs,
    )


def above_on(
    names: Iterable[str],
    score: Callable[[str, str], Mapping[int, float]],
    first: str,
    others: Sequence[str],
) -> Outcome:
    """Return whether a method is above all others on each data set."""
    return all_of(
        [above(score(name, first), {o: score(name, o) for o in others}, name) for name in names]
    )


def share(counts: Mapping[str, tuple[int, int]], text: str = "") -> Outcome:
    """Return whether something is so in all cases: name → (cases where it is so, cases)."""
    present = {name: pair for name, pair in counts.items() if pair[1]}
    if not present:
        return Outcome(Verdict.NOT_RUN, "")
    so = sum(pair[0] for pair in present.values())
    cases = sum(pair[1] for pair in present.values())
    verdict = Verdict.HOLDS if so == cases else Verdict.PART if so else Verdict.FAILS
    evidence = ", ".join(f"{name}: {a} of {b}" for name, (a, b) in present.items())
    return Outcome(verdict, f"{evidence}{'. ' + text if text else ''}")


def all_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a claim that has several parts."""
    evidence = ". ".join(outcome.evidence for outcome in outcomes if outcome.evidence)
    return Outcome(
        together(outcome.verdict for outcome in outcomes), evidence, least_pairs(outcomes)
    )


def all_curves(
    store: Results,
    names: Iterable[str],
    metric: str,
    method: str,
    check: Callable[[np.ndarray], bool],
    text: str = "",
    keep: Callable[[str], bool] | None = None,
) -> Outcome:
    """Return whether all curves of a method pass a check: every data set, cell and repetition."""
    counts = {}
    for name in names:
        found = store.runs(metric, name, method, keep).values()
        values = [curve for curves in found for curve in curves.values()]
        counts[name] = (sum(bool(check(value)) for value in values), len(values))
    return share(counts, text)


def never_rises(objective: np.ndarray) -> bool:
    """Return whether no round raises the objective beyond the five digits that are stored."""
    return bool(np.all(np.diff(objective) <= 2e-5 * objective[:-1]))
