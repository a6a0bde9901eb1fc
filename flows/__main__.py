"""`python -m flows` is the command line."""

from flows.cli import main

main()
