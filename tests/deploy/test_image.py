"""The image of deploy/Dockerfile, built by buildah and run by podman: no daemon is needed.

`BIGFS_TEST_BASE` names a base image that is there already, for machines without a registry.
"""

import os
import shutil
import subprocess
import urllib.error
import urllib.request

import pytest

from bigfs.flows.tls import environment, make_certificates
from tests.helpers.processes import ROOT, free_port, until

MISSING = [name for name in ("buildah", "podman") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.process,
    pytest.mark.skipif(
        bool(MISSING), reason=f"{', '.join(MISSING)} not installed: apt-get install buildah podman"
    ),
]
IMAGE = "localhost/bigfs:tests"


def call(*words, seconds=300):
    ended = subprocess.run(
        [str(word) for word in words], cwd=ROOT, capture_output=True, text=True, timeout=seconds
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


@pytest.fixture(scope="module")
def image():
    """Build the image, and remove it at the end."""
    base, options = os.environ.get("BIGFS_TEST_BASE"), []
    if base is None:
        [line] = [
            x for x in (ROOT / "deploy" / "Dockerfile").read_text().splitlines() if "ARG BASE=" in x
        ]
        pulled = subprocess.run(
            ["buildah", "pull", line.partition("=")[2]], capture_output=True, text=True, timeout=200
        )
        if pulled.returncode:
            last = pulled.stderr.strip().splitlines()[-1]
            pytest.skip(f"the base image cannot be pulled, and BIGFS_TEST_BASE names none: {last}")
    else:
        options = ["--pull-never", "--build-arg", f"BASE={base}"]
    build = ["buildah", "bud", "--isolation", "chroot", "--network", "host", *options]
    call(*build, "--file", "deploy/Dockerfile", "--tag", IMAGE, ".", seconds=560)
    yield IMAGE
    call("buildah", "rmi", IMAGE)


@pytest.fixture
def volume():
    name = call("podman", "volume", "create").strip()
    yield name
    call("podman", "volume", "rm", name)


@pytest.fixture
def start_container(image):
    """Return a function that starts a command in the image; all containers are removed."""
    started = []

    def start(options, *command):
        words = ["podman", "run", "--detach", "--network=host", *options, image, *command]
        started.append(call(*words).strip())
        return started[-1]

    yield start
    for container in started:
        call("podman", "rm", "--force", "--time", "5", container)


def test_the_image_runs_as_a_user_and_has_the_extras(image):
    code = "import os, h5py, s3fs, skops, spams, dask_ml, prefect; print(os.getuid())"
    assert call("podman", "run", "--rm", "--network=none", image, "python", "-c", code) == "1000\n"


def test_prefect_shows_its_pages(start_container):
    port = free_port()
    start_container([], "prefect", "server", "start", "--host", "127.0.0.1", "--port", port)

    def page():
        try:
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/", headers={"Accept": "text/html"}
            )
            return urllib.request.urlopen(asked, timeout=10).read().decode()
        except OSError as error:  # it does not listen yet; any answer but a page is an error
            if isinstance(error, urllib.error.HTTPError):
                raise
            return None

    assert "<html" in until(page, "an answer of Prefect's server", 180, every=1)


def test_scheduler_workers_and_run_are_containers(volume, start_container, tmp_path):
    port = free_port()
    tls = make_certificates(tmp_path / "tls")
    tls.chmod(0o755)
    (tls / "node.key").chmod(0o644)  # the user of the image is another
    variables = environment(tls)
    inside = {name: value.replace(str(tls), "/certificates") for name, value in variables.items()}
    (tmp_path / "variables").write_text("".join(f"{k}={v}\n" for k, v in inside.items()))
    address = f"tls://127.0.0.1:{port}"
    here = ["--host", "tls://127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
    options = [f"--volume={tls}:/certificates:ro", f"--volume={volume}:/data"]
    options.append(f"--env-file={tmp_path / 'variables'}")
    start_container(options, "dask", "scheduler", "--protocol", "tls", *here, "--port", port)
    limits = ["--nthreads", "1", "--memory-limit", "1GB", "--local-directory", "/tmp"]
    for _ in range(2):
        start_container(options, "dask", "worker", address, *limits, *here)
    command = ["bigfs", "run", "synthetic:phrases?rows=500", "--features", "20", "--out", "run"]
    run = start_container(options, *command, "--scheduler", address, "--tls", "/certificates")
    assert call("podman", "wait", run).strip() == "0", call("podman", "logs", run)
    record = call("podman", "run", "--rm", *options, IMAGE, "cat", "run/run.json")
    assert "worker 1" in record
