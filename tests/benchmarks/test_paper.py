"""The paper of the package says what the stored results say."""

from benchmarks import paper


def test_the_page_is_written_from_the_stored_results(tmp_path):
    page = tmp_path / "paper.md"
    paper.write(page)
    assert page.read_text() == paper.PAGE.read_text()
