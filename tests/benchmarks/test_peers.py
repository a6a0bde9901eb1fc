"""The pages of the peers say what the stored cells say."""

import json
import re

from benchmarks import peers, peers_scale

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
    """Each figure that it names stands on a generated page."""
    summary = SUMMARY.read_text().split("## The published implementations")[0]
    tables = peers.PAGE.read_text() + peers.PAGE.with_name("scale.md").read_text()
    quoted = set(re.findall(r"\b\d+\.\d+\b", summary))
    assert len(quoted) >= 60
    assert {figure for figure in quoted if figure not in tables} == set()


def test_the_page_of_three_scales_follows_its_cells(tmp_path):
    page, cells = tmp_path / "scale.md", tmp_path / "scale.tsv"
    peers_scale.page(page=page)
    assert page.read_text() == peers.PAGE.with_name("scale.md").read_text()
    cells.write_text(peers_scale.CELLS.read_text().replace("\tanova\t0.2\t", "\tanova\t99.9\t"))
    peers_scale.page(cells, page)
    [row] = [line for line in page.read_text().splitlines() if line.startswith("| `anova`")]
    assert "| 99.9 |" in row
