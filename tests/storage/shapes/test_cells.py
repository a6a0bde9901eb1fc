"""Cells as their tools keep them, genes × cells: read as cells × genes, with the names."""

import gzip
import io

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from bigfs import storage
from bigfs.storage.errors import SourceError

GENES, CELLS = 12, 30
C = sp.random(GENES, CELLS, 0.4, format="csc", rng=np.random.default_rng(0))
C.data = np.ceil(9 * C.data).astype(np.int32)
IDS, SYMBOLS = [f"ENSG{i}" for i in range(GENES)], [f"G{i // 2}" for i in range(GENES)]
BARCODES = [f"AAAC{i:02d}-1" for i in range(CELLS)]
LABELS = [f"t{i % 3}" for i in range(CELLS)]


def lines(*columns):
    return "".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)).encode()


def market(X=C, prefix=""):
    out = io.BytesIO()
    scipy.io.mmwrite(out, X.tocoo())
    return {f"{prefix}matrix.mtx": out.getvalue()}


def ranger3(prefix="", kinds=("Gene Expression",) * GENES):
    names = {"barcodes.tsv": lines(BARCODES), "features.tsv": lines(IDS, SYMBOLS, kinds)}
    plain = market() | names
    return {f"{prefix}{name}.gz": gzip.compress(raw) for name, raw in plain.items()}


def ranger2(folder="hg19/"):
    names = {f"{folder}barcodes.tsv": lines(BARCODES), f"{folder}genes.tsv": lines(IDS, SYMBOLS)}
    return market(prefix=folder) | names


def kallisto():
    names = {"x.barcodes.txt": lines(BARCODES), "x.genes.txt": lines(IDS)}
    return {"x.mtx": market(C.T)["matrix.mtx"]} | names | {"x.genes.names.txt": lines(SYMBOLS)}


def hdf5(*genomes, kinds=("Gene Expression",) * GENES):
    """The arrays of Cell Ranger 3, or of 2 by genomes."""
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        for name in genomes or ("matrix",):
            group = file.create_group(name)
            parts = {"data": C.data, "indices": C.indices, "indptr": C.indptr, "shape": C.shape}
            names = {"genes": IDS, "gene_names": SYMBOLS}
            if not genomes:
                names = {"features/id": IDS, "features/name": SYMBOLS}
                names |= {"features/feature_type": kinds, "features/_all_tag_keys": ["genome"]}
            for key, values in {**parts, "barcodes": BARCODES, **names}.items():
                group[key] = np.array(values, "S" if isinstance(values[0], str) else None)
    return {"c.h5": out.getvalue()}


def loom(cells="CellID"):
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("matrix", data=C.toarray(), chunks=(4, 4), compression="gzip")
        file["layers/spliced"] = 2 * C.toarray()
        texts = {f"col_attrs/{cells}": BARCODES, "col_attrs/Cluster": LABELS}
        for key, values in (texts | {"row_attrs/Gene": IDS, "row_attrs/Symbol": SYMBOLS}).items():
            file.create_dataset(key, data=values, dtype=h5py.string_dtype())
        file["col_attrs/pca"] = np.zeros((CELLS, 2))
    return {"c.loom": out.getvalue()}


def write(folder, files):
    for name, raw in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
    return folder


def saved(X):
    out = io.BytesIO()
    sp.save_npz(out, X)
    return {"x.npz": out.getvalue()}


def array(X):
    out = io.BytesIO()
    np.save(out, X)
    return {"x.npy": out.getvalue()}


def listed(**files):
    return {f"{name}.txt": lines(values) for name, values in files.items()}


BESIDE = listed(genes=IDS, barcodes=BARCODES)
OTHERS = ("Gene Expression",) * (GENES - 1) + ("Antibody Capture",)
# the files, what is staged of their folder, and the options
SHAPES = {
    "a folder of Cell Ranger 3": (ranger3(), "", {}),
    "a folder of Cell Ranger 2": (ranger2(), "", {}),
    "a folder of a genome in it": (ranger2(), "hg19", {}),
    "a folder with a prefix": (ranger3("GSM1_"), "", {}),
    "a matrix of several": (
        ranger3("GSM1_") | ranger3("GSM2_"),
        "GSM1_matrix.mtx.gz",
        {},
    ),
    "a matrix of kallisto": (kallisto(), "", {}),
    "HDF5 of Cell Ranger 3": (hdf5(), "c.h5", {}),
    "HDF5 of Cell Ranger 2": (hdf5("hg19"), "c.h5", {}),
    "a genome of two": (hdf5("hg19", "mm10"), "c.h5", {"layer": "mm10"}),
    "Loom": (loom(), "c.loom", {}),
    "Matrix Market without lists": (market(), "matrix.mtx", {"transpose": True}),
    "csr": (saved(C.tocsr()), "x.npz", {"transpose": True}),
    "csc": (saved(C), "x.npz", {"transpose": True}),
    "coo": (saved(C.tocoo()), "x.npz", {"transpose": True}),
    "an array": (array(C.toarray()), "x.npy", {"transpose": True}),
    "an array in Fortran's order": (
        array(np.asfortranarray(C.toarray())),
        "x.npy?transpose=true",
        {},
    ),
}


def read(uri):
    corpus = storage.open(uri)
    X = corpus.X.rows(range(corpus.X.shape[0])).toarray()
    return X, list(corpus.feature_names[:]), list(corpus.sample_names[:]), corpus


@pytest.mark.parametrize("name", SHAPES)
def test_cells_are_read_as_rows_with_their_names(tmp_path, name):
    files, inside, options = SHAPES[name]
    if "transpose" in f"{inside}{options}":
        lists = write(tmp_path / "lists", BESIDE)
        options = options | {"names": lists / "genes.txt", "sample_names": lists / "barcodes.txt"}
    source = write(tmp_path / "s", files) / inside
    X, features, samples, corpus = read(storage.stage(source, tmp_path / "x.zarr", **options))
    assert np.array_equal(X, C.T.toarray())
    assert (features, samples) == (IDS, BARCODES)
    assert corpus.manifest.shape == (CELLS, GENES)


@pytest.mark.parametrize(
    ("files", "source"), [(ranger3(), ""), (hdf5(), "c.h5")], ids=["folder", "hdf5"]
)
def test_symbols_name_genes_on_request(tmp_path, files, source):
    path = write(tmp_path, files) / source
    _, features, _, _ = read(storage.stage(path, tmp_path / "x.zarr", names="name"))
    assert features[:4] == ["G0", "G0-1", "G1", "G1-1"]  # as var_names_make_unique of anndata


@pytest.mark.parametrize(
    ("files", "source"),
    [(ranger3(kinds=OTHERS), ""), (hdf5(kinds=OTHERS), "c.h5")],
    ids=["folder", "hdf5"],
)
def test_kinds_of_features_are_said(tmp_path, caplog, files, source):
    storage.stage(write(tmp_path, files) / source, tmp_path / "x.zarr")
    assert "11 Gene Expression, 1 Antibody Capture: all are read" in caplog.text


def test_loom_has_labels_and_layers(tmp_path):
    path = write(tmp_path, loom()) / "c.loom"
    X, _, _, corpus = read(
        storage.stage(path, tmp_path / "x.zarr", label="Cluster", layer="spliced")
    )
    assert np.array_equal(X, 2 * C.T.toarray())
    assert [corpus.class_names[code] for code in corpus.y] == LABELS


def test_loom_without_names_of_cells_numbers_them(tmp_path):
    path = write(tmp_path, loom("cell")) / "c.loom"
    assert read(storage.stage(path, tmp_path / "x.zarr"))[2][:2] == ["0", "1"]


def test_another_run_of_cells_is_appended_by_the_same_guess(tmp_path):
    first, second = (write(tmp_path / name, ranger3()) for name in ("a", "b"))
    reversed_genes = lines(IDS[::-1], SYMBOLS[::-1], ("Gene Expression",) * GENES)
    write(second, market(C[::-1]) | {"features.tsv.gz": gzip.compress(reversed_genes)})
    (second / "matrix.mtx.gz").unlink()
    uri = storage.stage(first, tmp_path / "x.zarr")
    assert storage.open(uri).manifest.source["decided"]["transpose"]
    X, _, names, _ = read(storage.append(second, uri))
    assert np.array_equal(X, sp.hstack([C, C]).T.toarray())
    assert names == 2 * BARCODES


def square(folder=""):
    names = [f"x{i}" for i in range(GENES)]
    lists = {"barcodes.tsv": lines(names), "genes.tsv": lines(names)}
    return market(C[:, :GENES]) | lists


@pytest.mark.parametrize(
    ("files", "inside", "options", "message"),
    [
        (square(), "", {}, "do not tell which are the samples: give transpose=true"),
        (
            ranger3("a_") | ranger3("b_"),
            "",
            {},
            r"2 files \.mtx, each of which is a corpus: stage one of them",
        ),
        (ranger3("a_") | ranger3("b_"), "", {"format": "mtx"}, "holds 2 matrices"),
        (hdf5("hg19", "mm10"), "c.h5", {}, "the genomes hg19, mm10: name one of them by layer="),
        (hdf5(), "c.h5", {"layer": "mm10"}, r"has no layers/mm10"),
        (array(np.zeros((2, 3, 4))), "x.npy", {"transpose": True}, "images, which cannot"),
    ],
    ids=["square", "two matrices", "two by format", "two genomes", "no genome", "images"],
)
def test_what_does_not_tell_the_cells_is_refused(tmp_path, files, inside, options, message):
    with pytest.raises(SourceError, match=message):
        storage.stage(write(tmp_path / "s", files) / inside, tmp_path / "x.zarr", **options)


def test_a_selection_is_not_written_into_a_file_that_is_no_anndata(tmp_path):
    from bigfs import Variance

    path = write(tmp_path, hdf5()) / "c.h5"
    corpus = storage.open(storage.stage(path, tmp_path / "x.zarr"))
    selector = Variance(n_features_to_select=2).fit(corpus.X)
    with pytest.raises(SourceError, match="no var of a current AnnData"):
        corpus.write_var(selector)


def test_a_wide_array_is_transposed_in_squares(tmp_path):
    X = np.random.default_rng(0).integers(0, 9, (1500, 1100)).astype(float)
    path = write(tmp_path, array(X)) / "x.npy"
    assert np.array_equal(read(storage.stage(path, tmp_path / "x.zarr", transpose=True))[0], X.T)
