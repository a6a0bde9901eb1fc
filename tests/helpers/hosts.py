"""Hosts on one machine: network namespaces with an address each, joined by a switch that delays,
drops and cuts.

The namespaces have no names. They are gone when the switch and the processes in them are. The
switch is a process of its own (`python -m tests.helpers.hosts NAME …`). It ends when its standard
input does, also when the tests are killed, and then kills what still runs on its hosts.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NETWORK, MTU = "10.78.0", 9000
CLONE_NEWNET, TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x40000000, 0x400454CA, 1, 0x1000


def missing():
    """Return what this machine lacks for hosts of its own, or None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if absent := [name for name in ("ip", "nsenter") if shutil.which(name) is None]:
        return f"there is no {absent[0]}: install iproute2 and util-linux"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "there is no /dev/net/tun"
    allowed = subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
    return None if allowed else "this process may make no network namespaces"


needs_hosts = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class Hosts:
    """Running hosts: how to start a process on one, and to disturb its link."""

    def __init__(self, switch):
        self.switch = switch
        self.spaces = json.loads(switch.stdout.readline())
        self.address = {name: f"{NETWORK}.{i}" for i, name in enumerate(self.spaces, 1)}

    def on(self, name, command):
        """Return the command that runs `command` on a host."""
        return ["nsenter", f"--net={self.spaces[name]}", *map(str, command)]

    def set(self, name, **link):
        """Set `delay` (seconds, one way), `loss` (share of packets) or `up` of a host's link."""
        self.switch.stdin.write(json.dumps({"name": name, **link}) + "\n")
        self.switch.stdin.flush()

    @contextlib.contextmanager
    def cut(self, name):
        """Cut a host off for the block."""
        self.set(name, up=False)
        try:
            yield
        finally:
            self.set(name, up=True)

    def kill(self, name):
        """Let a host die: nothing more comes from it, not even the end of its connections."""
        self.set(name, up=False)
        _kill_all(self.spaces[name])


@contextlib.contextmanager
def hosts(*names):
    """Make hosts of these names, whose addresses count up in their order."""
    command = [sys.executable, "-m", "tests.helpers.hosts", *names]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as switch:
        try:
            yield Hosts(switch)
        finally:
            switch.stdin.close()


def _kill_all(space):
    """Kill all processes in a network namespace."""
    wanted = os.stat(space).st_ino
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(entry / "ns" / "net").st_ino == wanted:
                    os.kill(int(entry.name), signal.SIGKILL)


# --- the switch -----------------------------------------------------------------------------------


def _enter(descriptor):
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _make_host(address):
    """Make a namespace with a device eth0. Returns the descriptors of both."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN | IFF_NO_PI))
    for words in (
        f"addr add {address}/24 dev eth0",
        f"link set eth0 mtu {MTU} txqueuelen 10000 up",
        "link set lo up",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    return os.open("/proc/self/ns/net", os.O_RDONLY), device


def main(names):
    home, links, spaces = os.open("/proc/self/ns/net", os.O_RDONLY), {}, {}
    watch = selectors.DefaultSelector()
    for i, name in enumerate(names, 1):
        space, device = _make_host(f"{NETWORK}.{i}")
        _enter(home)
        links[name] = {"device": device, "delay": 0.0, "loss": 0.0, "up": True}
        spaces[name] = f"/proc/{os.getpid()}/fd/{space}"
        watch.register(device, selectors.EVENT_READ, links[name])
    by_address = {
        bytes(map(int, f"{NETWORK}.{i}".split("."))): link
        for i, link in enumerate(links.values(), 1)
    }
    watch.register(0, selectors.EVENT_READ, None)
    os.set_blocking(0, False)
    print(json.dumps(spaces), flush=True)
    try:
        _switch(watch, links, by_address)
    finally:
        for space in spaces.values():
            _kill_all(space)


def _switch(watch, links, by_address):
    waiting, order, said = [], 0, b""
    while True:
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, link, packet = heapq.heappop(waiting)
            with contextlib.suppress(BlockingIOError):  # a full queue drops it
                os.write(link["device"], packet)
        patience = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        for key, _ in watch.select(patience):
            if key.data is None:
                told = os.read(0, 65536)
                if not told:
                    return
                *lines, said = (said + told).split(b"\n")
                for line in lines:
                    change = json.loads(line)
                    links[change.pop("name")].update(change)
                continue
            for packet in _packets(key.data["device"]):
                target = by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
                ends = (key.data, target)
                if target is None or not all(end["up"] for end in ends):
                    continue
                if any(random.random() < end["loss"] for end in ends):
                    continue
                order += 1
                due = time.monotonic() + sum(end["delay"] for end in ends)
                heapq.heappush(waiting, (due, order, target, packet))


def _packets(device):
    for _ in range(64):
        try:
            yield os.read(device, 65536)
        except BlockingIOError:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
