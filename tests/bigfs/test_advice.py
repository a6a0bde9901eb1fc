"""The command that installs an extra, for how bigfs was installed."""

import json

import pytest

from bigfs import advice


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'bigfs[hdf5]'"),
        ({"url": "file:///home/me/b", "dir_info": {"editable": True}}, "-e '/home/me/b[hdf5]'"),
        (
            {"url": "file:///tmp/bigfs-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'bigfs[hdf5] @ file:///tmp/bigfs-0.1.0-py3-none-any.whl'",
        ),
    ],
)
def test_the_command_installs_an_extra_where_bigfs_came_from(monkeypatch, origin, command):
    """Also in a checkout, whose egg-info is found first."""

    class Installed:
        def __init__(self, origin):
            self.origin = origin

        def read_text(self, name):
            assert name == "direct_url.json"
            return self.origin and json.dumps(self.origin)

    installed = [Installed(None), *([Installed(origin)] if origin else [])]
    monkeypatch.setattr(advice, "distributions", lambda *, name: iter(installed))
    assert advice.install_command("hdf5").endswith(command)


def test_a_name_like_no_other_gets_no_advice():
    assert advice.closest("magic", ["anova", "chi2"]) == ""
    assert advice.closest("anovaa", ["anova", "chi2"]) == ": did you mean anova?"
