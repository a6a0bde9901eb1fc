"""Public corpora by name: their shapes and their URLs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bigfs.storage.downloads import downloader
from bigfs.storage.downloads.downloader import File
from bigfs.storage.errors import SourceError

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"
SCIKIT_FEATURE = "https://jundongl.github.io/scikit-feature/files/datasets"
FIGSHARE = "https://ndownloader.figshare.com/files"  # as in scikit-learn's fetchers


class Entry(NamedTuple):
    """A corpus. `shape` is (n, d) over all files. `topics` names the file of labels, if it is separate."""

    title: str
    shape: tuple[int, int]
    classes: int
    files: tuple[File, ...]
    sample_shape: tuple[int, int] | None = None
    topics: str | None = None


def _libsvm(path: str, split: str | None = None, checksum: str | None = None) -> File:
    return File(f"{LIBSVM}/{path}", path.rpartition("/")[2], checksum, split)


def _figshare(number: int, name: str, checksum: str, split: str | None = None) -> File:
    return File(f"{FIGSHARE}/{number}", name, checksum, split)


def _mat(
    title: str,
    name: str,
    n: int,
    d: int,
    classes: int,
    image: tuple[int, int] | None = None,
    checksum: str | None = None,
) -> Entry:
    file = File(f"{SCIKIT_FEATURE}/{name}.mat", f"{name}.mat", checksum)
    return Entry(title, (n, d), classes, (file,), image)


RCV1 = (
    _figshare(5976057, "lyrl2004_vectors_train.dat.gz", "5468f656d0ba7a83afc7ad44841cf9a53048a5c083eedc005dcdb5cc768924ae", "train"),
    _figshare(5976069, "lyrl2004_vectors_test_pt0.dat.gz", "ed40f7e418d10484091b059703eeb95ae3199fe042891dcec4be6696b9968374", "test"),
    _figshare(5976066, "lyrl2004_vectors_test_pt1.dat.gz", "87700668ae45d45d5ca1ef6ae9bd81ab0f5ec88cc95dcef9ae7838f727a13aa6", "test"),
    _figshare(5976063, "lyrl2004_vectors_test_pt2.dat.gz", "48143ac703cbe33299f7ae9f4995db49a258690f60e5debbff8995c34841c7f5", "test"),
    _figshare(5976060, "lyrl2004_vectors_test_pt3.dat.gz", "dfcb0d658311481523c6e6ca0c3f5a3e1d3d12cde5d7a8ce629a9006ec7dbb39", "test"),
    _figshare(5976048, "rcv1v2.topics.qrels.gz", "2a98e5e5d8b770bded93afc8930d88299474317fe14181aee1466cc754d0d1c1"),
)  # fmt: skip

ENTRIES: dict[str, Entry] = {
    "20newsgroups": Entry(
        "20 Newsgroups by date, as text", (18_846, 0), 20,
        (_figshare(5975967, "20news-bydate.tar.gz", "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610"),),
    ),
    "news20": Entry(
        "20 Newsgroups, word counts", (19_928, 62_061), 20,
        (_libsvm("multiclass/news20.bz2", "train"), _libsvm("multiclass/news20.t.bz2", "test")),
    ),
    "news20.binary": Entry("20 Newsgroups in two classes", (19_996, 1_355_191), 2, (_libsvm("binary/news20.binary.bz2"),)),
    "rcv1.binary": Entry(
        "Reuters Corpus Volume 1 in two classes", (697_641, 47_236), 2,
        (_libsvm("binary/rcv1_train.binary.bz2", "train"), _libsvm("binary/rcv1_test.binary.bz2", "test")),
    ),
    "rcv1": Entry(
        "Reuters Corpus Volume 1, LYRL2004, 103 topics, several a document", (804_414, 47_236), 103,
        RCV1,
        topics="rcv1v2.topics.qrels.gz",
    ),
    "real-sim": Entry("real and simulated topics of Usenet, two classes", (72_309, 20_958), 2, (_libsvm("binary/real-sim.bz2"),)),
    "webspam": Entry(
        "Webb Spam Corpus, trigrams, two classes", (350_000, 16_609_143), 2, (_libsvm("binary/webspam_wc_normalized_trigram.svm.xz"),)
    ),
    "url": Entry("malicious URLs, two classes", (2_396_130, 3_231_961), 2, (_libsvm("binary/url_combined.bz2"),)),
    "gisette": Entry(
        "handwritten 4 and 9 with distractors, scaled", (7_000, 5_000), 2,
        (_libsvm("binary/gisette_scale.bz2", "train"), _libsvm("binary/gisette_scale.t.bz2", "test")),
    ),
    "usps": Entry(
        "handwritten digits, 16 × 16", (9_298, 256), 10,
        (
            _libsvm("multiclass/usps.bz2", "train", "md5:ec16c51db3855ca6c91edd34d0e9b197"),
            _libsvm("multiclass/usps.t.bz2", "test", "md5:8ea070ee2aca1ac39742fdd1ef5ed118"),
        ),
    ),
    "mnist": Entry(
        "handwritten digits, 28 × 28 without the last pixels, which are always 0", (70_000, 780), 10,
        (_libsvm("multiclass/mnist.bz2", "train"), _libsvm("multiclass/mnist.t.bz2", "test")),
    ),
    "pcmac": _mat("20 Newsgroups, PC against Mac, word counts", "PCMAC", 1_943, 3_289, 2),
    "basehock": _mat("20 Newsgroups, baseball against hockey, word counts", "BASEHOCK", 1_993, 4_862, 2),
    "relathe": _mat("20 Newsgroups, religion against atheism, word counts", "RELATHE", 1_427, 4_322, 2),
    "coil20": _mat("objects on a turntable, 32 × 32", "COIL20", 1_440, 1_024, 20, (32, 32)),
    "orl": _mat("faces, 32 × 32", "ORL", 400, 1_024, 40, (32, 32)),
    "yale": _mat("faces, 32 × 32", "Yale", 165, 1_024, 15, (32, 32)),
    "colon": _mat(
        "gene expression of colon tissue, discrete, two classes", "colon", 62, 2_000, 2,
        checksum="ffcdeba03eb67cec403fa1dc9f827c22a6e2c57786bf3e01dfe1b4b3e25e0a2f",
    ),
    "tox-171": _mat("gene expression, toxicology", "TOX_171", 171, 5_748, 4),
}  # fmt: skip


def fetch(name: str) -> list[Path]:
    """Return the files of a corpus in the order of its entry, and download those that are missing."""
    if name not in ENTRIES:
        raise SourceError(f"unknown corpus {name!r}; the corpora are {', '.join(ENTRIES)}")
    folder = downloader.data_folder() / name
    return [downloader.get(file, folder) for file in ENTRIES[name].files]
