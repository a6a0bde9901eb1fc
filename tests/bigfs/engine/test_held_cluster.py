"""A cluster without a block works until it is closed, and a script without a guard starts none."""

import sys
import threading
from importlib.machinery import ModuleSpec

import pytest

from bigfs import engine
from bigfs.engine import clusters
from bigfs.engine.budget import SERIAL, current_session


def test_a_cluster_without_a_block_works_until_it_is_closed():
    before = current_session()
    held = engine.cluster(workers=0, memory_limit="1GB")
    try:
        seen = [current_session()]
        thread = threading.Thread(target=lambda: seen.append(current_session()))
        thread.start()
        thread.join()
        assert [(session.client, session.limit) for session in seen] == [(SERIAL, 10**9)] * 2
        with engine.cluster(workers=0, memory_limit="2GB"):
            assert current_session().limit == 2 * 10**9
        assert current_session().limit == 10**9
    finally:
        held.close()
        held.close()  # no more than once
    assert current_session() == before


def test_a_block_ends_the_cluster_that_it_enters():
    before = current_session()
    with engine.cluster(workers=0, memory_limit="1GB"):
        assert current_session().limit == 10**9
    assert current_session() == before


def test_a_script_without_a_guard_starts_no_workers(tmp_path, monkeypatch):
    """Each worker imports the script, and would start a cluster of its own."""
    script = tmp_path / "script.py"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    script.write_text("import bigfs\nbigfs.cluster(workers=1)\n")
    file = tmp_path / "cluster.yaml"
    file.write_text("cluster_class: distributed.LocalCluster\n")
    for given in ({"workers": 1}, {"scheduler": str(file)}):
        with pytest.raises(
            RuntimeError, match=r"script\.py and would run it again: put its work under"
        ):
            engine.cluster(**given)
    with engine.cluster(workers=0):
        assert current_session().client is SERIAL
    # `python -m package`: no worker imports its `__main__`
    spec = ModuleSpec("package.__main__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    assert clusters._require_guard() is None
