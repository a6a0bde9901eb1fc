"""Only what the program made is deleted: a marker says what that is."""

import os

import pytest

from storage import ownership
from storage.errors import StoreError


@pytest.fixture(params=["local", "remote"])
def place(request, tmp_path):
    """A folder that does not exist yet, on the disk or in an object store."""
    return str(tmp_path / "work") if request.param == "local" else f"memory://{tmp_path.name}/work"


def put(place, name, content=b"x"):
    import fsspec

    fs, path = fsspec.core.url_to_fs(place)
    fs.makedirs(os.path.dirname(f"{path}/{name}"), exist_ok=True)
    fs.pipe_file(f"{path}/{name}", content)


def names(place):
    import fsspec

    fs, path = fsspec.core.url_to_fs(place)
    return sorted(key.removeprefix(path).lstrip("/") for key in fs.find(path))


def test_claim_and_discard_leave_nothing(place):
    assert not ownership.is_ours(place)
    ownership.claim(place)
    put(place, "deep/file")
    ownership.claim(place)  # ours already: its content stays
    assert ownership.is_ours(place)
    assert names(place) == [ownership.MARKER, "deep/file"]
    ownership.discard(place)
    ownership.discard(place)
    assert names(place) == []
    assert not os.path.exists(place)


def test_a_foreign_folder_is_refused_by_name(place):
    put(place, "thesis.txt")
    for action in (ownership.claim, ownership.discard):
        with pytest.raises(StoreError, match=f"{place} is in the way and bigfs did not make it"):
            action(place)
    assert names(place) == ["thesis.txt"]


def test_another_file_of_the_markers_name_is_no_marker(place):
    put(place, ownership.MARKER, b"my own words")
    assert not ownership.is_ours(place)
    with pytest.raises(StoreError, match="is in the way"):
        ownership.discard(place)
    assert names(place) == [ownership.MARKER]


def test_files_and_links_are_never_ours(tmp_path):
    ownership.claim(tmp_path / "ours")
    (tmp_path / "link").symlink_to(tmp_path / "ours")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    for name in ("link", "dangling", "file"):
        for action in (ownership.claim, ownership.discard):
            with pytest.raises(StoreError, match=f"{name} is in the way"):
                action(tmp_path / name)
    assert ownership.is_ours(tmp_path / "ours")


def test_a_link_in_a_folder_of_ours_is_deleted_and_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    ownership.claim(tmp_path / "work")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "mine")
    ownership.discard(tmp_path / "work")
    assert (tmp_path / "mine" / "file").read_text() == "x"
    assert not (tmp_path / "work").exists()


def test_a_killed_discard_leaves_a_folder_that_is_ours(tmp_path, monkeypatch):
    ownership.claim(tmp_path / "work")
    (tmp_path / "work" / "deep").mkdir()
    # what a busy file on a network disk does
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    ownership.discard(tmp_path / "work")
    assert ownership.is_ours(tmp_path / "work")
    monkeypatch.undo()
    ownership.discard(tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_an_empty_folder_is_taken_over(tmp_path):
    (tmp_path / "work").mkdir()
    ownership.claim(tmp_path / "work")
    assert ownership.is_ours(tmp_path / "work")


def test_a_process_killed_before_it_wrote_the_marker_blocks_nobody(tmp_path):
    (tmp_path / "work").mkdir()
    ownership.discard(tmp_path / "work")
    ownership.claim(tmp_path / "work")
    assert ownership.is_ours(tmp_path / "work")


def test_a_lock_file_is_empty_or_refused(tmp_path):
    ownership.require_lock_file(tmp_path / "new")
    (tmp_path / "empty").touch()
    ownership.require_lock_file(tmp_path / "empty")
    (tmp_path / "mine").write_text("my notes")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    for name in ("mine", "folder", "link"):
        with pytest.raises(StoreError, match=f"{name} is in the way"):
            ownership.require_lock_file(tmp_path / name)


def test_a_discard_that_meets_a_late_writer_leaves_a_folder_that_is_ours(place, monkeypatch):
    """A worker's task may write once more after its run has failed."""
    release = ownership.release
    ownership.claim(place)

    def release_and_write(path):
        release(path)
        put(place, "new")

    monkeypatch.setattr(ownership, "release", release_and_write)
    ownership.discard(place)
    assert ownership.is_ours(place)
    monkeypatch.undo()
    ownership.discard(place)
    assert names(place) == []
