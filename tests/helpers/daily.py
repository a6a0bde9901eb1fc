"""Which cases of a parametrized test run every day."""

import pytest


def daily(cases, *some):
    """Give all cases as parameters: `make test` runs some of them, `make nightly` the others."""
    cases = list(cases)
    assert all(case in cases for case in some), f"{some} are no cases"
    return [case if case in some else nightly(case) for case in cases]


def nightly(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
