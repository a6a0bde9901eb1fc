"""Importing this module makes numba ready to load compiled functions.

Numba does that at the first call of any of them, which takes a third of a second. The process that
workers are forked from does it once for all of them, and a driving process beside its waiting.
"""

from __future__ import annotations

from numba.core.registry import cpu_target

cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()
