"""Arrays to files and back."""

import numpy as np
import pytest

from bigfs.storage.format import disk


@pytest.mark.parametrize("read", [disk.load, disk.map_file])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(40), b"PK\x05\x06", b"\x93NUMPY"])
def test_what_is_no_array_is_refused_and_closed(tmp_path, read, content):
    """np.load leaves a file open that begins like a zip archive: a ResourceWarning, an error."""
    path = tmp_path / "X.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"magic|EOF"):
        read(path)


@pytest.mark.parametrize("read", [disk.load, disk.map_file])
@pytest.mark.parametrize("shape", [(3, 4), (0,), ()])
def test_arrays_come_back(tmp_path, read, shape):
    values = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    disk.save(tmp_path / "X.npy", values)
    assert np.array_equal(read(tmp_path / "X.npy"), values)


@pytest.mark.parametrize("read", [disk.load, disk.map_file])
def test_pickled_objects_are_refused(tmp_path, read):
    np.save(tmp_path / "X.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"pickle|objects"):
        read(tmp_path / "X.npy")
