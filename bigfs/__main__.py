"""`python -m bigfs` is the command line, which lies above this package."""

from importlib import import_module

import_module("bigfs.flows.cli").main()
