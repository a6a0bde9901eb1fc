"""The command line. The workers of a cluster import the script of a command, so it imports no more
than this."""

import atexit
import gc
import signal


def main() -> None:
    """Run the command line; an error is one line on stderr and a non-zero exit status."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports in silence
    from bigfs.flows.cli.app import run

    signal.signal(signal.SIGINT, before)
    atexit.register(gc.freeze)  # or the collections at the exit look at every module: 0.7 s
    run()
