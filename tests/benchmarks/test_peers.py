"""The pages of the peers say what the stored cells say."""

import json
import re

from benchmarks import peers

SUMMARY = peers.PAGE.with_name("peers.md")


def test_the_tables_are_those_of_the_cells_and_follow_each_change(tmp_path):
    page = tmp_path / "tables.md"
    peers.pages(pictures=tmp_path, page=page)
    assert page.read_text() == peers.PAGE.read_text()
    about = json.loads((peers.KEPT / "ORL.json").read_text())
    shown = dict(row[:2] for row in peers.overview({"ORL": about}))
    first = about["rows"][0]
    first["mean"] += 0.05
    changed = dict(row[:2] for row in peers.overview({"ORL": about}))
    assert changed == shown | {f"`{first['method']}`": f"{first['mean']:.3f}"}


def test_the_summary_quotes_the_tables():
    """Each accuracy that it names stands on a generated page."""
    summary = SUMMARY.read_text().split("## The published implementations")[0]
    tables = peers.PAGE.read_text() + peers.PAGE.with_name("scale.md").read_text()
    quoted = set(re.findall(r"\b0\.\d{3}\b", summary))
    assert len(quoted) >= 60
    assert {figure for figure in quoted if figure not in tables} == set()
