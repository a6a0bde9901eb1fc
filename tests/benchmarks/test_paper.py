"""The paper of the package, and the pages of the papers, say what the stored results say."""

import pytest

from benchmarks import paper
from benchmarks.papers import pages
from benchmarks.papers.__main__ import PAPERS


def test_the_page_is_written_from_the_stored_results(tmp_path):
    page = tmp_path / "paper.md"
    paper.write(page)
    assert page.read_text() == paper.PAGE.read_text()


@pytest.mark.nightly
def test_the_pages_of_the_papers_are_written_from_the_stored_cells(tmp_path):
    pages.write(PAPERS, tmp_path)
    for page in tmp_path.glob("*.md"):
        assert page.read_text() == (pages.DOCS / page.name).read_text(), page.name
