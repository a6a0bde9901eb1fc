"""The options of text mean what they mean in scikit-learn, on every source and later appends."""

import csv
import json
import string
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.utils import murmurhash3_32

from bigfs import storage
from bigfs.flows.use.predict import predict
from bigfs.storage import appending
from bigfs.storage.runs.runs import Run
from bigfs.storage.sources.tables.jsonl import JsonLines
from bigfs.storage.staging import build
from bigfs.storage.staging.named import save_named
from bigfs.storage.staging.scratch import SampleFacts
from bigfs.storage.staging.text.terms import documents_of
from bigfs.storage.staging.text.weighting import STOP_WORDS_LIMIT, Weighting, make_weighting
from bigfs.storage.words import token_pattern
from tests.helpers import stages
from tests.helpers.daily import daily
from tests.helpers.stores import dense_tiles

WORDS = [
    *("the", "a", "is", "of", "not", "THE", "Of", "cat", "cats", "dog", "sat", "ran", "far"),
    *("été", "ΑΣ", "naïve", "x1", "under_score", "don't", "a+b", "中文", "字", "Être", "being"),
]
OPTIONS = [
    {"ngram_range": (1, 2)},
    {"ngram_range": (2, 3), "min_df": 1},
    {"stop_words": "english"},
    {"stop_words": ["cat", "été", "x1"], "ngram_range": (1, 3), "min_df": 1},
    {"max_df": 0.4},
    {"max_df": 6, "min_df": 3},
    {"max_df": 1.0, "min_df": 0.2, "stop_words": "english", "ngram_range": (1, 2)},
    {"analyzer": "char", "ngram_range": (1, 3)},
    {"analyzer": "char_wb", "ngram_range": (2, 3), "strip_accents": "unicode"},
    {"token_pattern": r"(?u)\b(\w)\w*", "stop_words": ["c", "τ"], "ngram_range": (1, 2)},
]
# in Chinese, Japanese, Thai, Hindi, Turkish, Greek and German, with signs and line breaks
TEXTS = [
    *(
        "我喜欢读书。他喜欢喝茶，\n不喜欢咖啡！",
        "我们今天去北京图书馆读书",
        "吾輩は猫である。名前は無い。",
    ),
    *("ฉันชอบอ่านหนังสือ", "आधुनिक मानक हिन्दी\tभाषा", "İstanbul'da ılık bir gün"),
    *("ὈΔΥΣΣΕΎΣ, ὁ πολύτροπος", "Die Straße nach Köln  war   naß.\n\nGrüße!", "ﬁne ℍello"),
    *("the cat\nsat on the mat", "", " \n "),
]


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(1)
    return [
        {
            "text": " ".join(rng.choice(WORDS, size=rng.integers(0, 25))),
            "label": "ab"[i % 2],
            "split": "test" if i % 3 == 2 else "train",
        }
        for i in range(45)
    ]


def write(folder, kind, records):
    """The records as a source of each kind, in the order in which it lists them."""
    path = folder / f"texts.{kind}"
    if kind == "jsonl":
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    elif kind == "csv":
        with open(path, "w", encoding="utf-8", newline="") as out:
            table = csv.DictWriter(out, ["text", "label", "split"])
            table.writeheader()
            table.writerows(records)
    elif kind == "parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(records), path)
    else:
        for i, record in enumerate(records):
            place = path / f"x-{record['split']}" / record["label"] / f"{i:03d}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(record["text"], encoding="utf-8")
        records = sorted(records, key=lambda record: record["label"])
    halves = ([r["text"] for r in records if r.get("split") == half] for half in ("train", "test"))
    return path, *halves


def by_scikit_learn(train, rest, min_df=2, **options):
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=min_df, **options).fit(train)
    X = sp.vstack([vectorizer.transform(train), vectorizer.transform(rest)]).toarray()
    return X, list(vectorizer.get_feature_names_out())


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", daily(["jsonl", "csv", "parquet", "folder"], "jsonl", "folder"))
def test_a_store_holds_what_tfidfvectorizer_makes(tmp_path, records, kind, options):
    path, train, test = write(tmp_path, kind, records)
    corpus = storage.open(storage.stage(path, tmp_path / "a.zarr", **options))
    expected, names = by_scikit_learn(train, test, **options)
    assert list(corpus.feature_names[:]) == names
    np.testing.assert_allclose(dense_tiles(corpus.X.row_tiles, 0), expected, rtol=2e-7)
    np.testing.assert_allclose(dense_tiles(corpus.X.column_tiles, 1), expected, rtol=2e-7)


@pytest.mark.parametrize("strip_accents", [None, "ascii", "unicode"])
@pytest.mark.parametrize(
    "options",
    [
        {"analyzer": "char", "ngram_range": (1, 2)},
        {"analyzer": "char_wb", "ngram_range": (1, 3)},
        {"token_pattern": r"(?u)\b\w+\b"},
        {"ngram_range": (1, 2), "stop_words": ["der", "the", "war"]},
    ],
    ids=str,
)
def test_counts_are_those_of_scikit_learn(options, strip_accents):
    """But that no term holds a line break."""
    given = {**options, "strip_accents": strip_accents}
    documents = documents_of(make_weighting(**given), options.get("stop_words", ()))
    for text in TEXTS:
        documents.add(text)
    lines, X = documents.counted()
    if "analyzer" not in options:
        given = {"token_pattern": token_pattern().pattern, **given}
    vectorizer = CountVectorizer(**given)
    expected = vectorizer.fit_transform(TEXTS).toarray()
    names = vectorizer.get_feature_names_out().tolist()
    kept = [j for j, name in enumerate(names) if "\n" not in name]
    found = lines.tobytes().decode().split("\n")[:-1]
    assert sorted(found) == [names[j] for j in kept]
    columns = [found.index(names[j]) for j in kept]
    np.testing.assert_array_equal(X.toarray()[:, columns], expected[:, kept])


def test_new_texts_are_read_as_the_first_and_scikit_learn_agrees(tmp_path):
    """Chinese by its characters: appended, predicted and in the pipeline of the model."""
    about = {"a": "我喜欢喝茶和读书", "b": "今天北京下大雨了"}
    records = [
        {"text": text[i % 4 :] + text[: i % 3] + "的" * (i % 2), "label": label}
        for i in range(12)
        for label, text in about.items()
    ]
    path, *_ = write(tmp_path, "jsonl", records)
    (tmp_path / "more").mkdir()
    more, *_ = write(tmp_path / "more", "jsonl", records[::-1])
    options = {"analyzer": "char", "ngram_range": (1, 2)}
    uri = storage.stage(path, tmp_path / "t.zarr", **options)
    assert {"茶", "读书"} <= set(storage.open(uri).feature_names[:])
    storage.append(more, uri)
    rows = dense_tiles(storage.open(uri).X.row_tiles, 0)
    np.testing.assert_array_equal(rows[:24], rows[:23:-1])
    run = stages.select(uri, tmp_path / "r", method="anova", features=5)
    stages.evaluate(run)
    run = str(stages.finish(run))
    predict(run, str(path), tmp_path / "p.csv")
    with open(tmp_path / "p.csv", encoding="utf-8") as file:
        found = [row["prediction"] for row in csv.DictReader(file)]
    assert found == [record["label"] for record in records]
    pipeline = Run.open(run).model().to_sklearn()
    assert pipeline.predict([record["text"] for record in records]).tolist() == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"analyzer": "letters"}, "analyzer must be one of word, char, char_wb; got 'letters'"),
        ({"strip_accents": "all"}, "strip_accents must be one of ascii, unicode; got 'all'"),
        ({"token_pattern": "("}, "token_pattern must be a regular expression of Python; got '\\('"),
        ({"token_pattern": "(a)(b)"}, "token_pattern may have one group"),
        ({"token_pattern": "a", "analyzer": "char"}, "token_pattern is about words, and analyzer="),
        ({"stop_words": "english", "analyzer": "char_wb"}, "stop_words is about words, and anal"),
    ],
    ids=str,
)
def test_an_analyzer_that_there_is_not_is_refused(options, message):
    with pytest.raises(storage.SourceError, match=message):
        make_weighting(**options)


def test_pieces_are_smaller_for_more_ngrams(tmp_path, records, monkeypatch):
    """As their terms take more memory. The content stays the same."""
    path, *_ = write(tmp_path, "jsonl", records)
    options = {"ngram_range": (1, 5), "min_df": 1}
    whole = storage.open(storage.stage(path, tmp_path / "whole.zarr", **options))
    asked = []

    def cut(source, size, pieces=JsonLines.pieces):
        asked.append((size, source.memory_per_byte))
        return pieces(source, 700)

    monkeypatch.setattr(JsonLines, "pieces", cut)
    pieces = storage.open(storage.stage(path, tmp_path / "pieces.zarr", **options))
    assert pieces.spec["content"] == whole.spec["content"]
    expansion = 6 * JsonLines.memory_per_byte
    assert asked == [((512_000_000 - build.TEXT_BASE) // expansion, expansion)]


class Asked(Exception):
    """Bytes of the largest piece, and of memory per byte."""


@pytest.mark.parametrize("kind", daily(["csv", "parquet", "stream"], "parquet"))
@pytest.mark.parametrize("is_new", [True, False])
def test_pieces_of_tables_fit_in_the_memory_of_their_ngrams(tmp_path, monkeypatch, kind, is_new):
    """A table is laid out in parts, which are not cut again."""
    options = {"ngram_range": (1, 5), "hashing": 1 << 20}
    uri = str(tmp_path / "a.zarr")
    record = {"text": "two words " * 100, "label": "a", "split": "train"}
    if not is_new:
        storage.stage(write(tmp_path, "jsonl", [record] * 2)[0], uri, **options)
        options = {"text": "text", "label": "label"} if kind == "stream" else {}
    records = [record | {"text": f"{i:04}" + record["text"]} for i in range(3000)]
    source = pa.Table.from_pylist(records)
    if kind != "stream":
        source, *_ = write(tmp_path, kind, records)

    def stop(source, pieces, *more):
        raise Asked(max(map(source.weight, pieces)), source.memory_per_byte)

    monkeypatch.setattr(build, "vectorize", stop)
    monkeypatch.setattr(appending, "weigh_by", stop)
    limit = build.TEXT_BASE + (64 << 20)
    with pytest.raises(Asked) as asked:
        (storage.stage if is_new else storage.append)(source, uri, memory_limit=limit, **options)
    size, per_byte = asked.value.args
    assert per_byte == 6 * JsonLines.memory_per_byte
    assert size * per_byte <= 64 << 20


@pytest.mark.parametrize("hashing", [None, 1 << 20])
@pytest.mark.parametrize("analyzer", ["word", "char"])
@pytest.mark.parametrize("largest", [1, 3, 5])
def test_terms_take_the_memory_that_pieces_are_cut_by(tmp_path, rng, analyzer, largest, hashing):
    """Words of two letters have the most terms per byte."""
    letters = [a + b for a in string.ascii_lowercase for b in string.ascii_lowercase]
    texts = [" ".join(rng.choice(letters, 100)) for _ in range(700 if analyzer == "word" else 70)]
    weighting = Weighting(hashing=hashing, ngram_range=(1, largest), analyzer=analyzer)

    def count(texts):
        documents = documents_of(weighting)
        for text in texts:
            documents.add(text)
        save_named(str(tmp_path / "x"), *documents.counted(), hashing, None, SampleFacts())

    count(texts[:9])  # loads compiled code
    tracemalloc.start()
    count(texts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= JsonLines.memory_per_byte * weighting.growth * sum(map(len, texts))


def test_appended_text_has_the_terms_of_the_store(tmp_path, records):
    options = {"ngram_range": (1, 2), "stop_words": ["cat", "the"], "max_df": 0.5}
    path, train, _ = write(tmp_path, "jsonl", [{**r, "split": "train"} for r in records[:30]])
    uri = storage.stage(path, tmp_path / "a.zarr", **options)
    path, *_ = write(tmp_path, "jsonl", [{**r, "split": "test"} for r in records[30:]])
    storage.append(path, uri)
    expected, _ = by_scikit_learn(train, [r["text"] for r in records[30:]], **options)
    found = dense_tiles(storage.open(uri).X.row_tiles, 0)
    np.testing.assert_allclose(found, expected, rtol=2e-7)


def test_hashed_terms_are_ngrams_without_stop_words(tmp_path, records):
    options = {"ngram_range": (1, 2), "stop_words": ["cat", "the"]}
    path, train, test = write(tmp_path, "jsonl", records)
    uri = storage.stage(path, tmp_path / "a.zarr", hashing=256, sublinear_tf=False, **options)
    analyze = CountVectorizer(**options).build_analyzer()
    expected = np.zeros((len(records), 256), dtype=np.bool_)
    for row, text in zip(expected, train + test, strict=True):
        row[[murmurhash3_32(term, positive=True) % 256 for term in analyze(text)]] = True
    np.testing.assert_array_equal(dense_tiles(storage.open(uri).X.row_tiles, 0) != 0, expected)


def test_stop_words_of_a_file_are_those_of_a_list(tmp_path, records):
    path, *_ = write(tmp_path, "jsonl", records)
    (tmp_path / "stop.txt").write_text("cat\n\n  été \nx1\ncat\n", encoding="utf-8")
    by_file = storage.stage(path, tmp_path / "a.zarr", stop_words=tmp_path / "stop.txt")
    words = ["x1", "cat", "été"]
    assert storage.find_store(path, by_file, stop_words=words) == by_file
    assert storage.info(by_file)["settings"]["stop_words"] == sorted(words)
    (tmp_path / "stop.txt").write_text("cat\n")
    with pytest.raises(storage.StoreError, match="staged with other settings"):
        storage.find_store(path, by_file, stop_words=str(tmp_path / "stop.txt"))


def test_options_are_part_of_the_key_and_defaults_are_not(tmp_path, records, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, *_ = write(tmp_path, "jsonl", records)
    plain = storage.stage(path)
    assert set(storage.info(plain)["settings"]) == {
        "hashing",
        "min_df",
        "sublinear_tf",
        "tile_rows",
    }
    assert storage.stage(path, ngram_range=[1, 1], max_df=1.0, stop_words=[]) == plain
    others = {storage.stage(path, **options) for options in OPTIONS}
    assert len(others | {plain}) == len(OPTIONS) + 1
    assert {storage.find_store(path, **options) for options in OPTIONS} == others


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_a_weighting_comes_back_from_a_manifest(options):
    weighting = make_weighting(**options)
    assert Weighting.from_settings(json.loads(json.dumps(weighting.to_settings()))) == weighting


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram_range": (2, 1)}, r"ngram_range must be the least .*; got \(2, 1\)"),
        ({"ngram_range": (0, 1)}, "ngram_range must be"),
        ({"ngram_range": 2}, "ngram_range must be"),
        ({"ngram_range": (1.0, 2)}, "ngram_range must be"),
        ({"max_df": 0}, "max_df must be a whole number of at least 1 or a share"),
        ({"max_df": 1.5}, "max_df must be"),
        ({"max_df": True}, "max_df must be"),
        ({"max_df": 3, "hashing": 64}, "max_df needs a vocabulary"),
        ({"min_df": 3, "hashing": 64}, "min_df needs a vocabulary"),
        ({"stop_words": "englisch"}, "there is no file 'englisch'"),
        ({"stop_words": ["the", 3]}, "stop_words must be 'english', a list of words, or a file"),
        ({"stop_words": 3}, "stop_words must be"),
        ({"min_df": 30, "max_df": 3}, "no term occurs in 30 to 3 documents: lower min_df, raise"),
        ({"stop_words": [*WORDS, "don"]}, "no term occurs in 2 documents: lower min_df or add"),
    ],
)
@pytest.mark.filterwarnings("ignore:stop_words may leave terms in")
def test_bad_options_are_refused_in_one_line(tmp_path, records, options, message):
    words = {"text": "cat ran far", "split": "train", "label": "a"}
    path, *_ = write(tmp_path, "jsonl", [words] * 5)
    with pytest.raises(storage.SourceError, match=message) as caught:
        storage.stage(path, tmp_path / "a.zarr", **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.zarr").exists()


def test_a_file_that_is_no_list_of_words_is_refused(tmp_path):
    (tmp_path / "stop").write_bytes(b"x" * (STOP_WORDS_LIMIT + 1))
    with pytest.raises(storage.SourceError, match="a file of stop words may have 1048576"):
        make_weighting(stop_words=tmp_path / "stop")


def test_a_matrix_has_no_terms(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2\n0 2:1\n")
    for options, names in (
        ({"ngram_range": (1, 2)}, "ngram_range"),
        ({"max_df": 0.5, "stop_words": "english"}, "max_df, stop_words"),
        ({"min_df": 5}, "min_df"),
        ({"min_df": 0.1, "weight": "tfidf"}, "min_df"),
        ({"hashing": 64}, "hashing"),
        ({"sublinear_tf": False}, "sublinear_tf"),
    ):
        with pytest.raises(storage.SourceError, match=f"is a matrix, and {names} is for text"):
            storage.stage(tmp_path / "a.svm", tmp_path / "a.zarr", **options)


def test_stop_words_that_are_no_tokens_are_warned_of():
    with pytest.warns(UserWarning, match=r"\['don'\] are tokens of stop words"):
        make_weighting(stop_words=["don't", "the"])
    make_weighting(stop_words=["don't", "don", "the"])
