"""Small random problems: a chooser answers, or says in a sentence why it cannot."""

import traceback

import numpy as np
import pytest
import scipy.sparse as sp

from bigfs import AutoSelector, SelectorCV, SparGE, SparGECV, audit, stability

pytestmark = pytest.mark.filterwarnings("ignore")


def draw(seed):
    """Draw X, a target of any kind, groups and times or none, and a number of features."""
    rng = np.random.default_rng(seed)
    n, d, c = (int(rng.integers(*ends)) for ends in ((6, 50), (2, 15), (2, 5)))
    kind = rng.choice(["class", "few", "multi", "real", "str"])
    X = rng.normal(size=(n, d))
    if rng.random() < 0.15:
        X[:, 0] = 1
    if rng.random() < 0.4:
        X = sp.csr_array(X * (rng.random((n, d)) < 0.4))
    y = rng.integers(0, c, n)
    target = {
        "class": y,
        "few": np.where(rng.random(n) < 0.35, y, -1),
        "multi": (rng.random((n, c)) < 0.3).astype(int),
        "real": rng.normal(size=n),
        "str": np.array(list("abcde"))[y],
    }[kind]
    known = {}
    if rng.random() < 0.35:
        known["groups"] = rng.integers(0, int(rng.integers(2, 8)), n)
    if rng.random() < 0.3:
        known["times"] = rng.integers(0, n, n)
    embedding = "cca" if kind in ("multi", "real") else "lda"
    return X, target, known, embedding, int(rng.integers(1, d + 1))


CHOOSERS = {
    "auto": lambda X, y, known, e, m: AutoSelector(n_features_to_select=m).fit(X, y, **known),
    "candidates": lambda X, y, known, e, m: SparGECV(n_features_to_select=m, embedding=e).fit(
        X, y, **known
    ),
    "gammas": lambda X, y, known, e, m: SparGECV(
        n_features_to_select=m, embedding=e, gammas=[0.1, 1]
    ).fit(X, y, **known),
    "hsl": lambda X, y, known, e, m: SparGECV(n_features_to_select=m, embedding="hsl").fit(
        X, y, **known
    ),
    "number": lambda X, y, known, e, m: SelectorCV(SparGE(embedding=e), cv=3).fit(X, y, **known),
    "number, lpp": lambda X, y, known, e, m: SelectorCV(SparGE(embedding="lpp"), cv=3).fit(
        X, y, **known
    ),
    "stability": lambda X, y, known, e, m: stability(
        SparGE(n_features_to_select=m, embedding=e), X, y, n_subsamples=3
    ),
    "audit": lambda X, y, known, e, m: audit(
        X, y, {"first": list(range(m))}, estimator=SparGE(embedding=e)
    ),
}


def refusals(seeds, name):
    """List the file that raised each ValueError, with what it says. Other errors are raised."""
    found = []
    for seed in seeds:
        try:
            CHOOSERS[name](*draw(seed))
        except ValueError as error:
            where = traceback.extract_tb(error.__traceback__)[-1].filename
            found.append((where, str(error), seed))
    return found


@pytest.mark.parametrize(
    "seeds", [range(5), pytest.param(range(5, 200), marks=pytest.mark.nightly)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", CHOOSERS)
def test_a_chooser_answers_or_says_why_not(name, seeds):
    found = refusals(seeds, name)
    assert len(found) <= len(seeds) / 2
    for where, said, seed in found:
        assert "bigfs" in where or "sklearn" in where, (seed, said)
        assert said.strip(), seed
