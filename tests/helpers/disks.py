"""A disk whose power can fail: ext4 on a loop device, mounted in a namespace of its own.

The mount is gone when the processes in its namespace are, also when the tests are killed, and the
loop device with it.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bigfs.storage import atomic
from tests.helpers.processes import until

SHUTDOWN, WITHOUT_JOURNAL = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
COMMIT = 1  # seconds between the journal's commits: names are on the disk, contents may not be
MEGABYTES = 512


def missing():
    """Return what this machine lacks for a disk of its own, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "loop devices need Linux and root"
    if absent := [p for p in ("mkfs.ext4", "mount", "nsenter", "unshare") if not shutil.which(p)]:
        return f"there is no {absent[0]}: install e2fsprogs, mount and util-linux"
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "there is no /dev/loop-control"
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
    return None if allowed else "this process may make no mount namespaces"


needs_disk = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class Disk:
    """A mounted disk: commands that run on it, its files, and the loss of its power."""

    def __init__(self, holder, image, place):
        self.space, self.image, self.place = f"/proc/{holder.pid}/ns/mnt", image, place
        self.path = Path(f"/proc/{holder.pid}/root{place}")  # the files, seen from outside
        self._mount()

    def on(self, command):
        """Return the command that runs `command` in the disk's folder."""
        here = ["sh", "-c", 'cd "$0" && exec "$@"', self.place]
        return ["nsenter", f"--mount={self.space}", *map(str, [*here, *command])]

    def _call(self, *command):
        inside = ["nsenter", f"--mount={self.space}", *map(str, command)]
        return subprocess.run(inside, capture_output=True).returncode == 0

    def _mount(self):
        assert self._call("mount", "-o", f"loop,commit={COMMIT}", self.image, self.place)

    def stop(self):
        """Let the power fail: from now on nothing reaches the disk, not even its journal."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))
        finally:
            os.close(folder)

    def start(self):
        """Mount the disk again, once no process uses it."""
        until(lambda: self._call("umount", self.place), "the end of all that use the disk", 20)
        self._mount()

    def lose_power(self):
        """Let the power fail after the journal has taken all names, and come back."""
        time.sleep(2.5 * COMMIT)  # a call that waits for the journal would write the contents too
        self.stop()
        self.start()

    def empty_files(self):
        """Return the files without content, but for locks, which have none, and for markers, which
        may be cut short (`atomic.has_marker`)."""
        files = [path for path in self.path.rglob("*") if path.is_file()]
        assert files
        empty = [path for path in files if not path.stat().st_size]
        kept = [path for path in empty if path.suffix != ".lock" and path.name != atomic.MARKER]
        return [str(path.relative_to(self.path)) for path in kept]


@contextlib.contextmanager
def disk(folder):
    """Make a disk whose image and place are in a folder."""
    image, place = folder / "disk.img", folder / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(MEGABYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    holder = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec cat"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(holder, start_new_session=True, **pipes) as held:
        try:
            held.stdout.readline()
            yield Disk(held, image, place)
        finally:
            held.stdin.close()
    image.unlink()
