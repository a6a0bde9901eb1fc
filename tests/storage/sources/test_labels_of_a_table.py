"""What a table tells of the samples of a source, by their names."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage.errors import SourceError

NAMES = [f"AAAC{i}-1" for i in range(30)]
X = sp.random(30, 8, 0.5, format="csr", rng=np.random.default_rng(0))
TYPES = [f"t{i % 3}" for i in range(30)]
META = pd.DataFrame(
    {
        "n_genes": range(30),
        "barcode": NAMES,
        "cell_type": TYPES,
        "donor": [f"d{i % 2}" for i in range(30)],
    }
)
SHUFFLED = META.sample(frac=1, random_state=0)


def matrix(folder):
    sp.save_npz(folder / "x.npz", X)
    (folder / "names.txt").write_text("".join(f"{name}\n" for name in NAMES))
    return folder / "x.npz", {"sample_names": folder / "names.txt"}


def triplets(folder):
    rows, columns = X.nonzero()
    frame = pd.DataFrame({"id": np.array(NAMES)[rows], "f": columns, "v": X.data})
    frame.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv", {"triplets": "id,f,v"}


def csv(frame, folder, **options):
    frame.to_csv(folder / "meta.csv", **{"index": False} | options)
    return folder / "meta.csv"


def staged(folder, write=matrix, **options):
    path, own = write(folder)
    return storage.open(storage.stage(path, folder / "x.zarr", **own, **options))


def told(corpus):
    return [corpus.class_names[code] if code >= 0 else None for code in corpus.y]


@pytest.mark.parametrize("write", [matrix, triplets], ids=lambda f: f.__name__)
def test_a_table_tells_labels_and_roles_by_names(tmp_path, write):
    labels = csv(SHUFFLED, tmp_path)
    corpus = staged(tmp_path, write, labels=labels, label="cell_type", group="donor")
    of = META.set_index("barcode")
    names = corpus.sample_names[:]
    assert sorted(names) == sorted(NAMES)
    assert told(corpus) == of.cell_type[names].tolist()
    donors = [corpus.categories("group")[code] for code in corpus.groups]
    assert donors == of.donor[names].tolist()


def test_the_index_of_pandas_and_parquet_hold_names_too(tmp_path):
    labels = csv(SHUFFLED.set_index("barcode").rename_axis(None), tmp_path, index=True)
    (tmp_path / "p").mkdir()
    SHUFFLED.to_parquet(tmp_path / "p" / "meta.parquet", index=False)
    first = staged(tmp_path, labels=labels, label="cell_type")
    second = staged(tmp_path / "p", labels=tmp_path / "p" / "meta.parquet", label="cell_type")
    assert told(first) == told(second) == TYPES
    assert first.sample_names[:].tolist() == NAMES


def test_samples_that_the_table_lacks_are_unlabeled(tmp_path):
    corpus = staged(tmp_path, labels=csv(META[:20], tmp_path), label="cell_type")
    assert told(corpus) == TYPES[:20] + [None] * 10


def test_another_table_makes_another_store(tmp_path):
    options = {"labels": csv(META, tmp_path), "label": "cell_type"}
    path, own = matrix(tmp_path)
    plan = [storage.find_store(path, tmp_path / "x.zarr", **own, **options)]
    storage.stage(path, tmp_path / "x.zarr", **own, **options)
    plan.append(storage.find_store(path, tmp_path / "x.zarr", **own, **options))
    csv(META.assign(cell_type="x"), tmp_path)
    assert plan[0] is None
    assert plan[1] is not None
    with pytest.raises(storage.StoreError, match="has changed since"):
        storage.find_store(path, tmp_path / "x.zarr", **own, **options)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (META.assign(barcode="x"), {}, r"tells of no sample of .*'AAAC0-1', 'AAAC1-1'.*name="),
        (
            pd.concat([META, META[:1]]),
            {},
            "tells of the sample 'AAAC0-1' twice, by its column 'barc",
        ),
        (META, {"label": "kind"}, "has no column 'kind', only 'n_genes', 'barcode'"),
        (META[:20], {"group": "donor"}, r"row 20 .*group= names a column .*for every sample; got"),
        (META, {"sample_names": None}, r"x\.npz has no names of samples, by which .*meta\.csv"),
    ],
    ids=["other names", "twice", "no label", "no group", "no names"],
)
def test_a_table_that_cannot_tell_is_refused(tmp_path, frame, options, message):
    path, own = matrix(tmp_path)
    given = {**own, "labels": csv(frame, tmp_path), "label": "cell_type", **options}
    with pytest.raises(SourceError, match=message):
        storage.stage(path, tmp_path / "x.zarr", **{k: v for k, v in given.items() if v})
