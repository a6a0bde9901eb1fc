"""Stores written by every version so far must open for ever, with the same numbers.

`stores/text-v1.zarr` was made by `bigfs.storage.stage(folder, min_df=1, tile_rows=2)` of TEXTS,
then `bigfs.storage.append(folder, …, split="test")` of LATER. `stores/samples-v3.zarr` was made by
`bigfs.storage.stage(file, columns="x", **ROLES)` of the CSV file SAMPLES.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from bigfs import storage
from tests.helpers.stores import LATER, STORES, TEXTS

SAMPLES = (
    "x,label,donor,lane,w,day\n"
    "1,a,d2,1,0.5,2024-03-01\n2,b,d1,2,1,2024-02-01\n3,a,d2,1,0,2024-03-01T12:30\n"
)
ROLES = {"group": "donor", "batch": "lane", "sample_weight": "w", "time": "day"}


def tfidf():
    """Rows in the store's order: training, test, appended."""
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(
        [text for name, text in TEXTS.items() if "train" in name]
    )
    return vectorizer, vectorizer.transform([*TEXTS.values(), *LATER.values()]).toarray()


@pytest.mark.parametrize("name", ["text-v1.zarr"])
def test_an_old_store_opens(name):
    corpus = storage.open(STORES / name)
    vectorizer, expected = tfidf()
    assert list(corpus.feature_names[:]) == list(vectorizer.get_feature_names_out())
    rows = sp.vstack([tile.load() for tile in corpus.X.row_tiles]).toarray()
    columns = sp.hstack([tile.load() for tile in corpus.X.column_tiles]).toarray()
    np.testing.assert_allclose(rows, expected, rtol=2e-7)  # one float32 rounding
    np.testing.assert_array_equal(columns, rows)
    np.testing.assert_allclose(corpus.X.stats.sums_of_squares, (expected**2).sum(axis=0), rtol=1e-6)
    assert [corpus.class_names[c] for c in corpus.y] == [
        "cats",
        "cats",
        "dogs",
        "cats",
        "dogs",
        "dogs",
        "mice",
    ]
    assert list(corpus.split) == ["train"] * 3 + ["test"] * 4
    assert list(corpus.sample_names) == [*TEXTS, *LATER]
    assert corpus.part("test").X.shape == (4, expected.shape[1])
    assert storage.check(STORES / name).problems == []


def test_groups_batches_weights_and_times_of_version_3():
    corpus = storage.open(STORES / "samples-v3.zarr")
    assert corpus.roles == ROLES
    assert [corpus.categories("group")[code] for code in corpus.groups] == ["d2", "d1", "d2"]
    assert [corpus.categories("batch")[code] for code in corpus.batches] == ["1", "2", "1"]
    assert corpus.sample_weight.tolist() == [0.5, 1.0, 0.0]
    days = ["2024-03-01T00:00", "2024-02-01T00:00", "2024-03-01T12:30"]
    np.testing.assert_array_equal(corpus.times, np.array(days, dtype="datetime64[us]"))
    assert storage.check(STORES / "samples-v3.zarr").problems == []
