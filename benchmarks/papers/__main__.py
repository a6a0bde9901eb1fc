"""The command: run unfinished experiments, then write the pages."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.papers import (
    jgsc_page,
    jhlsr_page,
    origin,
    pages,
    smr_page,
    sparge_page,
    srlsr_page,
    unsupervised_page,
)
from benchmarks.papers.experiments import run
from bigfs.result import NotConvergedWarning

PAGES = (sparge_page, srlsr_page, jhlsr_page, jgsc_page, smr_page, unsupervised_page)
PAPERS = tuple(page.PAPER for page in PAGES)


def main(
    data: Annotated[Path | None, typer.Argument(help="Folder of the data.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Papers or experiments.")] = None,
    repetitions: Annotated[int | None, typer.Option(help="At most so many.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Start nothing after this time.")] = None,
    write_pages: Annotated[bool, typer.Option("--pages", help="Compute nothing.")] = False,
    stale: Annotated[
        bool, typer.Option(help="List the cells and the later commits that changed their code.")
    ] = False,
) -> None:
    """Run the papers' experiments and write docs/papers."""
    names = {name for p in PAPERS for name in (p.key, *(e.name for e in p.experiments))}
    if unknown := sorted(set(only or ()) - names):
        raise typer.BadParameter(f"{', '.join(unknown)}: expected some of {', '.join(names)}")
    chosen = [e for p in PAPERS for e in p.experiments if not only or {p.key, e.name} & set(only)]
    if stale:
        head = ("experiment", "data", "made", "cells", "later commits")
        log(pages.table(head, origin.stale(chosen)))
        return
    if not write_pages:
        if data is None or not data.is_dir():
            raise typer.BadParameter("give the folder of the data, or --pages")
        seconds = None if minutes is None else 60 * minutes
        run(chosen, data, repetitions=repetitions, seconds=seconds, say=log)
    pages.write(PAPERS)


def log(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", NotConvergedWarning)
    typer.run(main)
