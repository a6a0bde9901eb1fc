"""The paper of this package, docs/measured/paper.md, from the stored results.

python -m benchmarks.paper
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import sem

from benchmarks import peers
from benchmarks.choosing import METRICS, PEERS
from benchmarks.choosing_page import FIRST, LABELS, by_set, cost, signed
from benchmarks.papers.__main__ import PAPERS
from benchmarks.papers.claims import Claim, Item, Verdict
from benchmarks.papers.pages import PROTOCOLS, Paper, anchor, table

PAGE = Path(__file__).parents[1] / "docs" / "measured" / "paper.md"
KINDS = ("text", "dense")
SHOWN = (Verdict.HOLDS, Verdict.PART, Verdict.FAILS, Verdict.NOT_RUN)
SAID = dict(zip(SHOWN, ("hold", "hold in part", "do not hold", "were not run"), strict=True))
LEADING = 12  # methods of section 6
SIMPLE = ("anova", "chi2", "mutual-info", "variance")
SHOWS = 2  # standard errors


def claims() -> Iterator[tuple[Paper, Item, Claim, Verdict]]:
    """List the claims of the papers with their verdicts."""
    for paper in PAPERS:
        for item in paper.items:
            for claim in item.claims:
                if claim.counts:
                    yield paper, item, claim, claim.check().verdict


def verdicts() -> str:
    """Return the table of how many claims of each paper hold."""
    counts: dict[str, Counter[Verdict]] = {}
    for paper, _, _, verdict in claims():
        counts.setdefault(paper.title, Counter())[verdict] += 1
    rows = [[title, *(own[verdict] for verdict in SHOWN)] for title, own in counts.items()]
    return table(["paper", *SHOWN], rows)


def failing() -> str:
    """List the claims that do not hold."""
    return "\n".join(
        f"* {paper.title}, [{item.name}](../papers/{paper.key}.md#{anchor(paper, item)}): "
        f"{claim.text}."
        for paper, item, claim, verdict in claims()
        if verdict is Verdict.FAILS
    )


def gaps(other: str, metric: str, kind: str) -> list[float]:
    """Return SparGE's default less another method on each set."""
    return [scores[FIRST] - scores[other] for scores in by_set(metric, kind).values()]


def race() -> str:
    """Return the table of the race: the differences to each peer, and its time."""
    columns = [(metric, kind) for kind in KINDS for metric in METRICS]
    head = [f"{kind}, {metric.replace('_', ' ')}" for metric, kind in columns]
    rows = [
        [
            LABELS[other],
            *(signed(gaps(other, *column)) for column in columns),
            " / ".join(f"{cost(other, kind):.2g}" for kind in KINDS),
        ]
        for other in PEERS
    ]
    return table(["SparGE less", *head, "time, text / dense"], rows)


def standing(other: str) -> str:
    """Say in how many of the four columns SparGE's default is ahead, level and behind."""
    found = Counter[str]()
    for metric in METRICS:
        for kind in KINDS:
            own = gaps(other, metric, kind)
            sure = abs(np.mean(own)) > SHOWS * sem(own)
            found["level" if not sure else "ahead" if np.mean(own) > 0 else "behind"] += 1
    words = [word for word in ("ahead", "level", "behind") if found[word]]
    return ", ".join(f"{word} in {found[word] if len(words) > 1 else 'all'}" for word in words)


def race_line() -> str:
    """Say where SparGE's default stands with each peer."""
    by_standing: dict[str, list[str]] = {}
    for other in PEERS:
        by_standing.setdefault(standing(other), []).append(LABELS[other])
    said = "; ".join(f"{where} against {', '.join(names)}" for where, names in by_standing.items())
    return (
        "By two standard errors, in four comparisons (accuracy and balanced accuracy, on text and "
        f"on dense data), SparGE's default is {said}."
    )


def ranks(found: dict[str, dict[str, Any]]) -> str:
    """Return the leading methods and the simple scores, from the table of all."""
    head, *rows = peers.overview(found)
    names = [row[0].strip("`") for row in rows]
    return table(
        head,
        [
            row
            for place, (name, row) in enumerate(zip(names, rows, strict=True))
            if place < LEADING or name in SIMPLE
        ],
    )


def days(found: dict[str, dict[str, Any]]) -> str:
    """Return by which commits the comparisons were made, and when."""
    return " and ".join(sorted({about["run"]["made"] for about in found.values()}))


def write(page: Path = PAGE) -> None:
    """Write the page."""
    files = {name: peers.KEPT / f"{name}.json" for name in peers.DATA}
    found = {name: json.loads(path.read_text()) for name, path in files.items() if path.exists()}
    sizes = {kind: len(by_set(METRICS[0], kind)) for kind in KINDS}
    by_verdict = Counter(verdict for *_, verdict in claims())
    said = ", ".join(f"{by_verdict[verdict]} {SAID[verdict]}" for verdict in SHOWN)
    text = (PROTOCOLS / "paper.md").read_text()
    page.write_text(
        text.format(
            sets=sum(sizes.values()),
            kinds=" and ".join(f"{count} sets of {kind} data" for kind, count in sizes.items()),
            claims_line=f"Of {sum(by_verdict.values())} claims, {said}.",
            claims=verdicts(),
            failing=failing(),
            race=race(),
            race_line=race_line(),
            ranks=ranks(found),
            first=LEADING,
            peers_made=days(found),
            references="\n".join(f"{i}. {p.reference}" for i, p in enumerate(PAPERS, 1) if p.items),
        )
    )


if __name__ == "__main__":
    write()
