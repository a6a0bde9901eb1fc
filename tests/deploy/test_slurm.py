"""deploy/slurm on a real SLURM of two nodes: its daemons on 127.0.0.1, of this user, with all files
in a folder of the tests.
"""

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from bigfs.storage.runs.runs import Run
from tests.helpers.processes import ROOT, environment, free_port, start, stop, until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
SYSTEM = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
MISSING = [name for name in PROGRAMS if shutil.which(name, path=SYSTEM) is None]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.process,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"{', '.join(MISSING)} not installed: apt-get install slurm-wlm munge",
    ),
]
SCRIPT = ROOT / "deploy" / "slurm" / "bigfs.sbatch"
# root can let SLURM end the processes of a job by their control group, as most clusters do, and
# hold them to their memory
CAN_CONTROL = os.geteuid() == 0 and Path("/sys/fs/cgroup/memory/tasks").exists()
CONFIGURATION = """
ClusterName=bigfs
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={home}/munge.socket
ProctrackType=proctrack/{track}
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
KillWait=10
MinJobAge=600
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=65536
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=65536
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
CONTROL_GROUPS = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=yes
"""


class Slurm:
    """A cluster of two nodes, and the commands of who uses it."""

    def __init__(self, env):
        self.env = env

    def call(self, *words, **options):
        ended = subprocess.run(
            words, env=self.env, capture_output=True, text=True, timeout=240, **options
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def submit(self, folder, *words, nodes=1):
        """Submit the script as it is shipped, for two workers of 1 GB, and return the job."""
        memory = {1: "1720M", 2: "2500M"}[nodes]
        size = [f"--nodes={nodes}", f"--ntasks-per-node={2 // nodes}", f"--mem-per-cpu={memory}"]
        slurm, source = words[:-1], words[-1]
        return self.call("sbatch", "--parsable", *size, *slurm, SCRIPT, *source, cwd=folder).strip()

    def state(self, job):
        """Return the state of a job, and its exit status or signal."""
        shown = self.call("scontrol", "show", "job", job)
        return re.search(r"JobState=(\S+)", shown)[1], re.search(r"ExitCode=(\S+)", shown)[1]

    def wait(self, job):
        """Wait until a job has ended."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        until(lambda: self.state(job)[0] in ended, f"the end of job {job}", 300, every=0.2)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    home = tmp_path_factory.mktemp("slurm")
    home.chmod(0o755)
    key = home / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (home / "state").mkdir()
    given = {
        "host": socket.gethostname().partition(".")[0],
        "user": getpass.getuser(),
        "nodes": [f"bigfs-{os.getpid()}-{i}" for i in (1, 2)],  # no host has these names
        "home": home,
        "ports": [free_port() for _ in range(3)],
        "track": "cgroup" if CAN_CONTROL else "linuxproc",
        "task": "cgroup" if CAN_CONTROL else "none",
    }
    (home / "slurm.conf").write_text(CONFIGURATION.format(**given))
    (home / "cgroup.conf").write_text(CONTROL_GROUPS)
    path = os.pathsep.join([str(Path(sys.executable).parent), SYSTEM])
    env = environment(home / "prefect", SLURM_CONF=str(home / "slurm.conf"), PATH=path)
    mine = Slurm(env)
    files = {"key-file": key} | {
        f"{name}-file": home / f"munge.{name}" for name in ("log", "pid", "seed")
    }
    # it would want a folder that all users may enter
    munged = ["munged", "--foreground", "--force", "--socket", home / "munge.socket"]
    munged += [f"--{name}={file}" for name, file in files.items()]

    def remove_groups():
        for group in Path("/sys/fs/cgroup").glob(f"*/slurm_bigfs-{os.getpid()}-*"):
            for folder, _, _ in os.walk(group, topdown=False):
                os.rmdir(folder)

    with contextlib.ExitStack() as stack:
        stack.callback(remove_groups)  # slurmd leaves them
        nodes = [["slurmd", "-D", "-N", node] for node in given["nodes"]]
        for command in (munged, ["slurmctld", "-D"], *nodes):
            daemon = start(command, home / f"{command[0]}.out", env, home)
            stack.callback(stop, daemon)
            if command is munged:
                until((home / "munge.socket").exists, "munge's start", 30)
        try:
            until(
                lambda: mine.call("sinfo", "--noheader", "--states=idle", "--format=%D") == "2\n",
                "SLURM's start",
                60,
            )
            yield mine
        finally:
            mine.call("scancel", "--user", given["user"])
            until(lambda: not mine.call("squeue", "--noheader"), "the end of all jobs", 60)


JOB = ["synthetic:phrases?rows=10000", "--features", "200", "--sizes", "200"]


@pytest.fixture(scope="module")
def alone(slurm, tmp_path_factory):
    """The result of the job on one machine, without SLURM."""
    folder = tmp_path_factory.mktemp("alone")
    slurm.call("bigfs", "run", *JOB, "--workers", "0", "--out", "run", cwd=folder)
    return Run.open(folder / "run")


def assert_same(run, expected):
    np.testing.assert_array_equal(run.selected, expected.selected)
    np.testing.assert_array_equal(run.scores, expected.scores)


def assert_clean(log, folder):
    """No trace of an error in the log, and no key of a cluster left behind."""
    assert "Traceback" not in log
    assert "CommClosedError" not in log
    assert not list(folder.glob(".bigfs-slurm-*"))


def assert_terminated(log, folder):
    """The run's last line says that it was ended, and no other line is of an error."""
    assert_clean(log, folder)
    *before, last = re.findall("^bigfs: (.*)$", log, re.MULTILINE)
    assert last == "terminated"
    assert [line.partition(":")[0] for line in before] in ([], ["Dask dashboard"])


def test_the_script_runs_the_main_job_on_two_nodes(slurm, alone, tmp_path):
    job = slurm.submit(tmp_path, [*JOB, "--out", "runs/r"], nodes=2)
    slurm.wait(job)
    log = (tmp_path / f"slurm-{job}.out").read_text()
    assert slurm.state(job) == ("COMPLETED", "0:0"), log
    assert_clean(log, tmp_path)
    assert "srun" not in log
    assert_same(Run.open(tmp_path / "runs" / "r"), alone)
    # the tiles went to both workers, whose limits leave a third to the run and the scheduler
    record = (tmp_path / "runs" / "r" / "run.json").read_text()
    assert "worker 1" in record


def test_a_canceled_job_ends_with_one_line_and_the_next_goes_on(slurm, alone, tmp_path):
    words = [*JOB, "--out", "runs/r"]
    job = slurm.submit(tmp_path, words)
    log = tmp_path / f"slurm-{job}.out"
    steps = "runs/.r/*/checkpoints/*.npz"
    until(
        lambda: any(tmp_path.glob(steps)) or slurm.state(job)[0] == "FAILED",
        "the first step of the method",
        200,
        every=0.02,
    )
    slurm.call("scancel", job)
    slurm.wait(job)
    assert slurm.state(job) == ("CANCELLED", "143:0"), log.read_text()
    assert_terminated(log.read_text(), tmp_path)
    assert not (tmp_path / "runs" / "r").exists()
    again = slurm.submit(tmp_path, words)
    slurm.wait(again)
    assert slurm.state(again) == ("COMPLETED", "0:0"), (tmp_path / f"slurm-{again}.out").read_text()
    run = Run.open(tmp_path / "runs" / "r")
    assert run.metadata["resumed"]
    assert_same(run, alone)


def test_a_job_whose_time_is_up_ends_by_itself(slurm, tmp_path):
    """SLURM sends the signal at the latest 50 s after the start, and would kill a minute later."""
    source = "synthetic:phrases?rows=400000"
    job = slurm.submit(tmp_path, "--time=2", "--signal=B:TERM@110", [source, "--out", "runs/r"])
    slurm.wait(job)
    log = (tmp_path / f"slurm-{job}.out").read_text()
    assert slurm.state(job) == ("FAILED", "143:0"), log
    assert_terminated(log, tmp_path)
    assert not (tmp_path / "runs" / "r").exists()
    assert not list(tmp_path.glob(".bigfs/[!.]*.zarr"))


def test_a_job_without_its_environment_ends_at_once(slurm, tmp_path):
    job = slurm.submit(tmp_path, "--export=PATH=/usr/bin:/bin", ["synthetic:phrases"])
    slurm.wait(job)
    assert slurm.state(job) == ("FAILED", "127:0")
    log = (tmp_path / f"slurm-{job}.out").read_text()
    assert "bigfs is not on PATH: activate its environment" in log


@pytest.fixture
def adaptive(slurm, tmp_path):
    """deploy/slurm/jobqueue.yaml, the certificates and the file of the guide, for two jobs."""
    pytest.importorskip("dask_jobqueue")
    (tmp_path / "dask").mkdir()
    shutil.copy(ROOT / "deploy" / "slurm" / "jobqueue.yaml", tmp_path / "dask")
    comment = (ROOT / "deploy" / "slurm" / "jobqueue.yaml").read_text()
    specification = yaml.safe_load(
        re.search(r"printf '(.*)' > slurm.yaml", comment)[1].replace(r"\n", "\n")
    )
    specification["adapt_kwargs"] |= {"minimum": 2, "maximum": 2}
    (tmp_path / "slurm.yaml").write_text(yaml.safe_dump(specification))
    printed = slurm.call("bigfs", "certificates", "tls", cwd=tmp_path)
    variables = dict(re.findall(r"^export (\w+)=(\S+)$", printed, re.MULTILINE))
    return slurm.env | variables | {"DASK_CONFIG": str(tmp_path / "dask")}


def test_a_cluster_that_adapts_keeps_its_jobs_and_goes_on_without_a_canceled_one(
    slurm, alone, adaptive, tmp_path
):
    before = set(slurm.call("squeue", "--noheader", "--states=all", "--format=%i").split())

    def jobs(*states):
        rows = slurm.call("squeue", "--noheader", "--states=all", "--format=%i %T").splitlines()
        found = dict(row.split() for row in rows)
        return {
            job
            for job, state in found.items()
            if job not in before and state in (states or (state,))
        }

    command = ["bigfs", "run", *JOB, "--cluster", "slurm.yaml", "--out", "runs/r"]
    run = start(command, tmp_path / "run.log", adaptive, tmp_path)
    try:
        steps = "runs/.r/*/checkpoints/*.npz"
        until(
            lambda: any(tmp_path.glob(steps)) or run.poll() is not None,
            "the first step of the method",
            200,
            every=0.02,
        )
        assert run.poll() is None, (tmp_path / "run.log").read_text()
        working = jobs("RUNNING")
        assert len(working) == 2
        slurm.call("scancel", max(working, key=int))
        assert run.wait(200) == 0, (tmp_path / "run.log").read_text()
    finally:
        stop(run)
    assert "Traceback" not in (tmp_path / "run.log").read_text()
    assert_same(Run.open(tmp_path / "runs" / "r"), alone)
    # one for the canceled one at most: no other was canceled while the run worked
    assert len(jobs()) <= 3
    until(lambda: not jobs("RUNNING", "PENDING", "COMPLETING"), "the end of its jobs", 60)
