"""Token counts are those of scikit-learn's analyzer on every text; vocabularies merge as sets."""

import heapq
import itertools
import sys
import tarfile
import unicodedata
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize

from bigfs import storage
from bigfs.storage.scaling import unit_rows
from bigfs.storage.staging.build import TEXT_PIECE
from bigfs.storage.staging.scratch import save
from bigfs.storage.staging.text import tokens as kernels
from bigfs.storage.staging.text import vocabularies
from bigfs.storage.staging.text.terms import Documents
from bigfs.storage.words import JOINERS, MARKS, SELECTORS, marks, token_pattern

# vowel signs, accents that stand alone and joiners belong to the word, as for \X of other engines
PATTERN = token_pattern().pattern
ANALYZE = CountVectorizer(token_pattern=PATTERN).build_analyzer()


def counted(texts, **options):
    documents = Documents(**options)
    for text in texts:
        documents.add(text)
    return documents.counted()


def by_analyzer(texts, ngram_range=(1, 1), stop_words=()):
    """The same by scikit-learn's analyzer and a Counter."""
    vectorizer = CountVectorizer(
        ngram_range=ngram_range, stop_words=list(stop_words), token_pattern=PATTERN
    )
    analyze = vectorizer.build_analyzer()
    tf = [Counter(analyze(text)) for text in texts]
    terms = sorted(set().union(*tf))
    rank = {term: j for j, term in enumerate(terms)}
    rows = [sorted((rank[term], count) for term, count in row.items()) for row in tf]
    flat = np.array([pair for row in rows for pair in row], dtype=np.int32).reshape(-1, 2)
    lines = np.frombuffer("".join(f"{term}\n" for term in terms).encode(), dtype=np.uint8)
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return lines, sp.csr_array((flat[:, 1], flat[:, 0], starts), shape=(len(rows), len(terms)))


def assert_same(found, expected):
    (lines, X), (wanted, Y) = found, expected
    assert X.shape == Y.shape
    pairs = {"lines": (lines, wanted)} | {
        name: (getattr(X, name), getattr(Y, name)) for name in ("indptr", "indices", "data")
    }
    for name, (a, b) in pairs.items():
        assert a.dtype == b.dtype, name
        np.testing.assert_array_equal(a, b, err_msg=name)


def terms_in(lines):
    return lines.tobytes().decode("utf-8", "surrogatepass").split("\n")[:-1]


CASES = [
    [],
    [""],
    ["", "", ""],
    ["a"],
    ["ab"],
    ["a b c d"],
    ["The cat, the CAT; a cat's tail"],
    ["don't can’t rock'n'roll"],
    ["snake_case __init__ _ __ _a a_"],
    ["x1 1x 12 1 3.14 1,000"],
    ["٣٤ ४५ １２ Ⅷ Ⅷⅷ ²³ ½¾ 一二"],
    ["cafe\u0301 café CAFÉ CAFE\u0301"],
    ["Straße STRASSE ẞß ßß"],
    ["İstanbul ISTANBUL ıstanbul İİ iİi"],
    ["ΑΣ ΑΣΑ ΣΣ Σ ΑΣ' 'ΑΣ ΑΣ\u0301 Α\u00adΣ ς σς"],
    ["plain", "ΟΔΟΣ and ΌΔΟΣ plain", "İI", "plain again"],
    ["ǅ ǅǆ Ǆǅ ﬁﬁ ŉŉ"],
    ["\u212a\u212a \u212bx ȺȾ \u1e9e\u1e9e"],  # lower case is shorter or longer in UTF-8
    ["\U00010400\U00010428 \U0001d54f\U0001d54f 𠀀𠀁 \U0001e900\U0001e922"],
    ["👍🏽 ok👍ok 👩‍👩‍👧 a👍 ❤️"],
    ["नमस्ते दुनिया किताब", "ab\u200dcd ab\u200ccd ab\u200bcd ab\u00adcd"],
    ["שלום עולם", "مرحبا بالعالم", "สวัสดีชาวโลก", "中文 字 中文", "ひらがな カタカナ", "한국어 한"],
    ["a\x00b ab\x00cd", "ab\x1cab\x85ab\u2028ab\xa0ab", "ab\tcd\r\nef\x0bgh\x0c"],
    ["\ufeffBOM bom", "\ufffd\ufffd ab\ufffdcd", "\uffff\uffff ab\ufffecd"],
    ["ab\ud800cd \udfff\udfff", "\ud83d\ude00 ef"],  # lone surrogates
    ["abcdefgh abcdefghi abcdefgh0 abcdefg abcdefghabcdefgh abcdefghabcdefghi"],
    ["x" * 100_000 + " " + "x" * 100_001 + " y"],
    [" ".join(f"w{i}" for i in range(10_000)), "w1 w1 w9999", "w0"],
]


@pytest.mark.slow
@pytest.mark.parametrize("texts", CASES, ids=range(len(CASES)))
def test_counts_are_those_of_the_analyzer(texts):
    assert_same(counted(texts), by_analyzer(texts))


@pytest.mark.slow
def test_every_character_beside_letters():
    """At the beginning, at the end and alone, of all 1,114,112."""
    texts = [
        "".join(f"x{c} {c}X {c}{c}," for c in map(chr, range(start, start + 4096)))
        for start in range(0, sys.maxunicode + 1, 4096)
    ]
    documents = Documents()
    for text in texts:
        documents.add(text)
    lines, X = documents.counted()
    terms = terms_in(lines)
    for i, text in enumerate(texts):
        row = slice(X.indptr[i], X.indptr[i + 1])
        tf = Counter(ANALYZE(text))
        assert {
            terms[j]: n for j, n in zip(X.indices[row], X.data[row].tolist(), strict=True)
        } == tf


def test_marks_belong_to_the_word():
    """Vowel signs of Indic scripts, an accent that stands alone, and joiners. Emoji are none."""
    text = "आधुनिक मानक हिन्दी ప్రధానమంత్రిని cafe\u0301 ශ්\u200dරී ❤\ufe0fok 1\ufe0f\u20e3 x"
    terms = terms_in(counted([text])[0])
    assert sorted(terms) == sorted([*text.split()[:6], "ok"])


def test_lower_case_twice_is_lower_case():
    """What a document is lower-cased for in Python stays so in the kernel."""
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert text.lower().lower() == text.lower()
    assert kernels.tables().special == "İΣ"


PLANES = st.sampled_from(range(17)).flatmap(
    lambda plane: st.characters(min_codepoint=plane << 16, max_codepoint=(plane << 16) | 0xFFFF)
)
LETTERS = st.sampled_from("aAbB1_ '.ßİiıΣσςÉé\u0301\u200dKȺ中Ⅷ\n")
TEXTS = st.lists(st.text(LETTERS | PLANES | st.characters(), max_size=40), max_size=8)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(TEXTS)
@example(["ΑΣ", "aΣ\ud800"])
def test_any_text_has_the_analyzers_tokens(texts):
    assert_same(counted(texts), by_analyzer(texts))


# --- n-grams and stop words -----------------------------------------------------------------------

RANGES = [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3), (2, 5)]
STOPS = ["a", "ab", "bb", "été", "σς", "Ab", "ab bb", "a'b", "中中", ""]


@pytest.mark.slow
@pytest.mark.parametrize("ngram_range", RANGES, ids=str)
@pytest.mark.parametrize("texts", CASES[:-1], ids=range(len(CASES) - 1))
def test_ngrams_are_those_of_the_analyzer(texts, ngram_range):
    options = {"ngram_range": ngram_range, "stop_words": {"ab", "the", "w1", "一二", "ok"}}
    assert_same(counted(texts, **options), by_analyzer(texts, **options))


WORDY = st.lists(st.sampled_from(["ab", "bb", "abb", "Été", "ΑΣ", "x", "a'b", "中中", "ab_"]))


@pytest.mark.filterwarnings("ignore:Your stop_words may be inconsistent")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(LETTERS, max_size=40) | WORDY.map(" ".join), max_size=8),
    st.sampled_from(RANGES),
    st.sets(st.sampled_from(STOPS)),
)
def test_any_text_has_the_analyzers_ngrams(texts, ngram_range, stop_words):
    options = {"ngram_range": ngram_range, "stop_words": stop_words}
    assert_same(counted(texts, **options), by_analyzer(texts, **options))


def test_tables_of_grams_grow():
    """Documents of more grams than the first table has room for, one beside many."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 400, size)) for size in [40] * 90 + [5000]]
    options = {"ngram_range": (1, 3), "stop_words": ["w0", "w7"]}
    assert_same(counted(texts, **options), by_analyzer(texts, **options))


# --- hostile texts --------------------------------------------------------------------------------


def hash_keys(seed):
    """The random numbers of a seed. The hash of None is the same for all tokens."""
    if seed is None:
        return np.zeros(kernels.N_KEYS, dtype=np.uint64)
    return np.random.default_rng(seed).integers(0, 1 << 64, kernels.N_KEYS, dtype=np.uint64)


def hostile_tokens(keys, n):
    """Tokens of four letters that begin their search in few slots of a table of 2^16."""
    letters = np.arange(ord("a"), ord("z") + 1)
    words = np.stack(np.meshgrid(*[letters] * 4), axis=-1).reshape(-1, 4)
    marks = words.astype(np.uint64) @ (1 << np.array([24, 16, 8, 0], dtype=np.uint64))
    slots = kernels.mix(marks * keys[1]) & np.uint64(0xFFFF)
    return ["".join(map(chr, word)) for word in words[np.argsort(slots)[:n]]]


def steps(texts, keys):
    """Slots that a search for each distinct token passes. Their order does not matter."""
    low = np.frombuffer(bytearray(" ".join(texts).replace(" ", "\0").encode() + b"\0"), np.uint8)
    begins, ends = np.empty((2, len(low)), dtype=np.int64)
    words = begins, ends, np.empty(len(low), dtype=np.uint64)
    found = kernels.find_tokens(low, len(low), *words)
    slots = np.zeros((1 << 16, 2), dtype=np.uint64)
    table = slots, np.zeros(found + 1, dtype=np.int64), np.empty(len(low), dtype=np.uint8)
    kernels.number_tokens((low, *words, found), keys, table, np.empty(found, np.int32), (0, 0, 0))
    place = np.flatnonzero(slots[:, 0])
    assert len(place) == len(set(texts))
    home = [int(kernels.home_of(mark, keys)) & 0xFFFF for mark in slots[place, 0]]
    return int(((place - home) % (1 << 16)).sum())


def test_tokens_that_collide_for_one_seed_do_not_for_another():
    tokens = hostile_tokens(hash_keys(0), 4000)
    assert steps(tokens, hash_keys(0)) > 4000**2 // 4
    assert max(steps(tokens, hash_keys(seed)) for seed in range(1, 6)) < 4000
    assert steps(tokens, kernels.hash_keys()) < 4000  # of this process


@pytest.mark.parametrize("ngram_range", [(1, 1), (1, 2)], ids=str)
def test_the_counts_do_not_depend_on_the_seed(monkeypatch, ngram_range):
    tokens = hostile_tokens(hash_keys(0), 2000)
    texts = [" ".join(tokens), " ".join(tokens[::-3]), "x" * 300, "x" * 600 + " " + "x" * 601]
    expected = by_analyzer(texts, ngram_range)
    for seed in (None, 0, 1):
        monkeypatch.setattr(kernels, "hash_keys", lambda seed=seed: hash_keys(seed))
        assert_same(counted(texts, ngram_range=ngram_range), expected)


def test_every_draw_is_another():
    draws = [kernels.hash_keys.__wrapped__().tolist() for _ in range(2)]
    assert len(set(draws[0] + draws[1])) == 2 * kernels.N_KEYS


@pytest.mark.nightly
def test_every_document_of_20_newsgroups(real_data):
    with tarfile.open(real_data / "20news-bydate.tar.xz") as tar:
        texts = [tar.extractfile(m).read().decode("latin-1") for m in tar if m.isfile()]
    assert len(texts) == 18_846
    assert_same(counted(texts), by_analyzer(texts))


def test_rows_have_the_norms_of_scikit_learn(rng):
    X = sp.random_array((200, 300), density=0.3, format="csr", rng=rng)
    X.data[:] = 10.0 ** rng.uniform(-3, 3, X.nnz)
    X.data[X.indptr[7] : X.indptr[8]] = 0
    X.data[X.indptr[8] : X.indptr[9]] = 1e-160  # their squares are denormal
    expected = normalize(X)
    unit_rows(X.indptr, X.data)
    np.testing.assert_array_equal(X.data, expected.data)


# --- vocabularies ---------------------------------------------------------------------------------


def by_heap(parts, least, most=np.inf):
    """The merge of ``[(terms, df), …]`` in Python."""
    streams = (zip(terms, df, strict=True) for terms, df in parts)
    groups = itertools.groupby(heapq.merge(*streams), key=lambda pair: pair[0])
    found = [(term, sum(df for _, df in group)) for term, group in groups]
    return [(term, df) for term, df in found if least <= df <= most]


def written(folder, parts):
    """Vocabularies in files, as `merge_files` takes them."""
    paths = [str(folder / f"part-{k}") for k in range(len(parts))]
    for path, (terms, df) in zip(paths, parts, strict=True):
        with open(f"{path}.terms", "w", encoding="utf-8", newline="") as out:
            out.writelines(f"{term}\n" for term in terms)
        save(path, df=np.array(df, dtype=np.int32))
    return paths


WORDS = st.text("abé中𠀀", min_size=2, max_size=12) | st.sampled_from(["ab a", "ab ab", "a b"])
PARTS = st.lists(
    st.dictionaries(WORDS, st.integers(1, 3), max_size=30).map(
        lambda df: (sorted(df), [df[term] for term in sorted(df)])
    ),
    min_size=1,
    max_size=2,
)


@pytest.mark.nightly
@pytest.mark.parametrize("chunk", [1, 16, 1 << 15])
@settings(max_examples=60, deadline=None)
@given(
    parts=PARTS,
    least=st.sampled_from([0, 1, 2, 2.5, 4]),
    most=st.sampled_from([0, 2, 3.5, 5, np.inf]),
)
def test_vocabularies_merge_as_streams_of_pairs(tmp_path_factory, chunk, parts, least, most):
    folder = tmp_path_factory.mktemp("merge")
    with vocabularies.CHUNK.during(chunk):
        df = vocabularies.merge_files(written(folder, parts), folder / "all.terms", least, most)
    terms = (folder / "all.terms").read_text(encoding="utf-8").split("\n")[:-1]
    assert list(zip(terms, df.tolist(), strict=True)) == by_heap(parts, least, most)


def test_terms_longer_than_a_chunk_merge(tmp_path, change):
    change(vocabularies.CHUNK, 1 << 15)
    long = ["x" * 70_000, "x" * 70_001, "x" * 200_000]
    parts = written(tmp_path, [(["ab", *long], [1, 2, 3, 4]), ([*long[::2], "yz"], [5, 6, 7])])
    assert vocabularies.merge_files(parts, tmp_path / "all.terms", 2).tolist() == [7, 3, 10, 7]
    assert (tmp_path / "all.terms").read_text().split() == [*long, "yz"]


@pytest.mark.parametrize("chunk", [1, 16, 1 << 20])
@settings(max_examples=60, deadline=None)
@given(own=st.sets(WORDS), every=st.sets(WORDS))
def test_terms_are_found_in_a_vocabulary(tmp_path_factory, chunk, own, every):
    path = tmp_path_factory.mktemp("columns") / "all.terms"
    path.write_bytes("".join(f"{term}\n" for term in sorted(every)).encode())
    lines = np.frombuffer("".join(f"{term}\n" for term in sorted(own)).encode(), dtype=np.uint8)
    with vocabularies.CHUNK.during(chunk):
        found = vocabularies.find_columns(lines, str(path))
    column = {term: j for j, term in enumerate(sorted(every))}
    assert found.tolist() == [column.get(term, -1) for term in sorted(own)]


# --- the store ------------------------------------------------------------------------------------


class AnalyzedDocuments:
    """`Documents` by scikit-learn's analyzer."""

    def __init__(self, ngram_range, stop_words):
        self.texts, self.options = [], (ngram_range, stop_words)

    def __len__(self):
        return len(self.texts)

    def add(self, text):
        self.texts.append(text)

    def counted(self):
        return by_analyzer(self.texts, *self.options)


def merged_in_python(parts, terms, least, most=np.inf):
    """`vocabularies.merge_files` by `heapq`."""
    loaded = []
    for path in parts:
        with open(f"{path}.terms", encoding="utf-8", newline="\n") as lines:
            df = np.load(f"{path}.df.npy")
            loaded.append(([line[:-1] for line in lines], df.tolist()))
    kept = by_heap(loaded, least, most)
    with open(terms, "w", encoding="utf-8", newline="") as out:
        out.writelines(f"{term}\n" for term, _ in kept)
    return np.array([df for _, df in kept], dtype=np.int64)


def columns_in_python(lines, vocabulary):
    """`vocabularies.find_columns` by a dictionary."""
    with open(vocabulary, encoding="utf-8", newline="\n") as every:
        column = {line: j for j, line in enumerate(every)}
    own = lines.tobytes().decode().splitlines(keepends=True)
    return np.array([column.get(term, -1) for term in own], dtype=np.int64)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_df": 1},
        {"min_df": 0.1},
        {"sublinear_tf": False},
        {"hashing": 64},
        {"ngram_range": (1, 2), "stop_words": ["ab", "the"], "max_df": 0.5},
        {"ngram_range": (2, 3), "min_df": 1, "max_df": 5},
        {"ngram_range": (1, 2), "hashing": 64},
    ],
    ids=str,
)
def test_a_store_has_the_same_bytes_by_either_way(tmp_path, monkeypatch, change, rng, options):
    words = [" ".join(texts) for texts in CASES if "\ud800" not in "".join(texts)]
    for split, label, i in itertools.product(("train", "test"), ("a", "b"), range(20)):
        path = tmp_path / "texts" / split / label / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        chosen = rng.permutation(" ".join(words[: i + 3]).split())[: rng.integers(200)]
        path.write_text(" ".join(chosen), encoding="utf-8")
    change(TEXT_PIECE, 3000)
    fast = storage.open(storage.stage(tmp_path / "texts", tmp_path / "fast.zarr", **options))
    monkeypatch.setattr(
        "bigfs.storage.staging.text.vectorize.documents_of",
        lambda weighting, stops: AnalyzedDocuments(weighting.ngram_range, stops),
    )
    monkeypatch.setattr("bigfs.storage.staging.text.vocabularies.merge_files", merged_in_python)
    monkeypatch.setattr("bigfs.storage.staging.named.find_columns", columns_in_python)
    slow = storage.open(storage.stage(tmp_path / "texts", tmp_path / "slow.zarr", **options))
    assert fast.X.shape[1] > 30
    assert sp.vstack([tile.load() for tile in fast.X.row_tiles]).nnz > 500
    assert fast.spec["content"] == slow.spec["content"]
    names = sorted(
        p.relative_to(fast.uri) for p in (tmp_path / "fast.zarr").rglob("c/*") if p.is_file()
    )
    assert len(names) > 10
    for name in names:
        assert (tmp_path / "fast.zarr" / name).read_bytes() == (
            tmp_path / "slow.zarr" / name
        ).read_bytes(), name


def test_all_marks_of_words_lie_in_the_planes_that_are_looked_at():
    codes = range(sys.maxunicode + 1)
    every = {c for c in codes if unicodedata.category(chr(c)) in MARKS}
    assert set(marks()) == every.union(JOINERS).difference(SELECTORS)
