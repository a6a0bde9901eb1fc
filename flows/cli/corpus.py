"""The commands on corpora: stage, append, info, check, prune, datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bigfs.flows.cli.options import Json, JsonList, Source, UsageError, split
from bigfs.flows.cli.output import (
    cluster_and_progress,
    print_json,
    print_record,
    print_rows,
    readable,
    show,
)
from bigfs.flows.job import Format, Request, Split, StagedCorpus
from bigfs.flows.options import ClusterOptions, SourceOptions, seconds_of


def stage(
    source: Source,
    store: Annotated[str, typer.Argument(help="path or fsspec URL of the store to write")],
    *,
    staging: SourceOptions,
    engine: ClusterOptions,
    as_json: Json = False,
) -> None:
    """Read a source into a corpus store. An existing store of the same source is reused."""
    engine.prepare("bigfs.storage.staging.stage", "pyarrow")  # which holds what labels say
    from bigfs.flows import staging as step
    from bigfs.storage.sources import find

    find(source, format=staging.format)
    with cluster_and_progress(engine, as_json):
        record = step.stage(Request(source=source, store=store, settings=staging, engine=engine))
    print_record(
        record,
        as_json,
        f"{'reused' if record['reused'] else 'staged'} {record['store']} "
        f"in {record['seconds']:.1f} s: {record['read']}"
        + (f"\n{record['other']}" if "other" in record else ""),
    )


def look(
    source: Source,
    format: Format = None,
    as_json: Json = False,
) -> None:
    """Tell what would be read of a source, by its first records, and show three of them."""
    from bigfs import storage

    about = storage.look(source, format=format)
    part = "all of it" if about["is_whole"] else "its first records"
    lines = [f"{about['source']}, {part}: {about['read']}"]
    lines += [f"{name} = {value}, which is guessed" for name, value in about["guessed"].items()]
    for sample in about["samples"]:
        entries = ", ".join(f"{name} {value:g}" for name, value in sample["entries"].items())
        lines.append(f"{sample['name']}, {readable(sample['label'])}: {entries or 'no values'}")
    print_record(about, as_json, "\n".join(lines))


def append(
    source: Source,
    store: Annotated[str, typer.Argument(help="a staged corpus on a local disk")],
    format: Format = None,
    split: Split = "train",
    *,
    engine: ClusterOptions,
    as_json: Json = False,
) -> None:
    """Add the samples of a source to a store. Appending the same source again changes nothing.

    A folder must hold the new samples only. One that has grown is another source, and all its
    samples would be added.
    """
    from bigfs import storage
    from bigfs.storage.sources import find

    n_before = storage.open(store).X.shape[0]
    find(source, format=format)
    with cluster_and_progress(engine, as_json):
        uri = storage.append(
            source, store, format=format, split=split, memory_limit=engine.staging_memory
        )
    n = storage.open(uri).X.shape[0]
    text = (
        f"added {n - n_before:,} samples to {uri}, which now has {n:,}"
        if n > n_before
        else f"{uri} already holds the samples of {source}"
    )
    print_record({"store": uri, "added": n - n_before, "samples": n}, as_json, text)


def datasets(as_json: JsonList = False) -> None:
    """List the corpora that have a name: public ones and generated ones."""
    from bigfs.storage.downloads.catalog import ENTRIES
    from bigfs.storage.sources.synthetic.generators import TextSpec
    from bigfs.storage.sources.synthetic.source import CORPORA, PREFIX

    corpora = [(name, *entry.shape, entry.classes, entry.title) for name, entry in ENTRIES.items()]
    for name, spec in CORPORA.items():
        d = spec.d if isinstance(spec, TextSpec) else spec.shape[0] * spec.shape[1]
        corpora.append((PREFIX + name, spec.n, d, len(spec.classes), "generated"))
    columns = ("name", "samples", "features", "classes", "title")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in corpora])
        return
    table = Table(*columns, box=None, pad_edge=False)
    for name, n, d, classes, title in corpora:
        table.add_row(name, f"{n:,}", f"{d:,}" if d else "text", f"{classes:,}", title)
    for column in table.columns[1:4]:
        column.justify = "right"
    show(table)


def info(store: StagedCorpus, as_json: Json = False) -> None:
    """Show the contents of a store, its size per layout and the settings it was staged with."""
    from bigfs import storage

    facts = storage.info(store)
    if as_json:
        print_json(facts)
        return
    print_rows([[name, readable(value)] for name, value in facts.items()], n_texts=2, head=False)


def check(
    store: StagedCorpus,
    *,
    engine: ClusterOptions,
    as_json: Json = False,
) -> None:
    """Read the whole store and verify every checksum. The exit status is 1 if it is damaged."""
    from bigfs import storage

    with cluster_and_progress(engine, as_json):
        report = storage.check(store)
    problems = "\n".join(report.problems)
    print_record(
        report._asdict(),
        as_json,
        problems or f"{report.uri} is intact: {report.documents:,} documents read",
    )
    if report.problems:
        raise typer.Exit(1)


def prune(
    folder: Annotated[str, typer.Argument(help="folder of stores and runs")] = ".",
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="another folder with runs, whose stores are kept (divided by commas or repeated)",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="only files that are as old as this, such as 30d or 12h; then also every store in "
            "the folder that no run names, and earlier results of runs",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes/--dry-run", help="delete the listed files, or only list them")
    ] = False,
    as_json: Json = False,
) -> None:
    """List what bigfs made and nothing needs any more, and its size. --yes deletes it.

    That is old stores of changed sources that no run names, graphs without a store, what killed
    commands left, and earlier versions of files behind URLs. With --older-than it is also what you
    may want to keep: every store with a name of its own making that no run names, the results of a
    run before its latest one, and those that did not end. The latest result is never deleted, and
    nothing that bigfs did not make. Nothing above the folder is looked at, but for the runs that
    the stores say that they have.
    """
    from bigfs import storage
    from bigfs.engine import format_bytes

    try:
        age = None if older_than is None else seconds_of(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than {error}") from error
    found = storage.find_unused(folder, runs=split(also) or (), older_than=age)
    size = storage.delete_unused(found) if yes else sum(item.bytes for item in found)
    here = Path.cwd()
    lines = [
        f"{format_bytes(size):>9}  "
        f"{path.relative_to(here) if path.is_relative_to(here) else path}: {why}"
        for path, size, why in found
    ]
    end = "deleted" if yes else "can be deleted: repeat the command with --yes"
    lines.append(f"{format_bytes(size)} {end}" if found else "nothing to delete")
    record = {"found": [item._asdict() for item in found], "bytes": size, "deleted": yes}
    print_record(record, as_json, "\n".join(lines))
