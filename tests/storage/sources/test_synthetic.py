"""Generated corpora: reproducible row by row, at the stated scale, with what was planted in
them.
"""

import pickle

import numpy as np
import pytest
from sklearn.feature_selection import f_classif
from sklearn.svm import LinearSVC

from bigfs import SparGE
from bigfs.storage import sources
from bigfs.storage.errors import SourceError
from bigfs.storage.sources.synthetic.generators import TextGenerator, TextSpec
from bigfs.storage.sources.synthetic.source import CORPORA
from tests.helpers.sources import told_of

TEXTS = [name for name, spec in CORPORA.items() if isinstance(spec, TextSpec)]


def same(a, b):
    return all(
        np.array_equal(getattr(a, part), getattr(b, part)) for part in ("data", "indices", "indptr")
    )


@pytest.mark.parametrize("name", CORPORA)
def test_bytes_do_not_depend_on_who_reads_what(name):
    block = CORPORA[name].block
    source = sources.find(f"synthetic:{name}?rows={2 * block + 50}")
    whole = source.read((0, source.n))
    for start, stop in ((0, 7), (block - 3, block + 5), (2 * block + 1, source.n)):
        part = pickle.loads(pickle.dumps(source)).read((start, stop))  # noqa: S301, as a worker gets it
        assert same(part.X, whole.X[start:stop])
        y = told_of([whole], "label")[start:stop]
        np.testing.assert_array_equal(told_of([part], "label"), y)
    again = source.read((0, 5))
    assert same(again.X, whole.X[:5])


@pytest.mark.parametrize("size", [1, 100_000, 10**9])
def test_pieces_cover_the_rows_in_order(size):
    source = sources.find("synthetic:newswire")
    pieces = source.pieces(size)
    assert [p[0] for p in pieces] == [0, *(p[1] for p in pieces[:-1])]
    assert pieces[-1][1] == 8000
    assert all(source.weight(p) > 0 for p in pieces)


@pytest.mark.parametrize("name", TEXTS)
def test_rows_are_unit_sorted_and_as_long_as_the_real_ones(name):
    spec = CORPORA[name]
    rows = max(4096 if spec.d < 1e6 else 256, spec.block)
    X = sources.find(f"synthetic:{name}").read((0, rows)).X
    assert X.shape == (rows, spec.d)
    assert X.dtype == np.float32
    assert X.indices.dtype == np.int32
    assert X.has_canonical_format
    np.testing.assert_allclose(np.sqrt(X.multiply(X).sum(axis=1)), 1, rtol=1e-6)
    # the mean of a log-normal of spread ≤ 0.8: standard error ≤ 0.95/√rows of it; three of them
    assert X.nnz / rows == pytest.approx(spec.nnz, rel=3 * 0.95 / np.sqrt(rows))


@pytest.mark.parametrize("name", ["newswire", "news20"])
def test_document_frequencies_are_the_models(name):
    spec = CORPORA[name]
    generator = TextGenerator(spec, 0)
    X = sources.find(f"synthetic:{name}").read((0, 8000)).X
    seen = np.bincount(X.indices, minlength=spec.d) / 8000
    model = np.empty(spec.d)
    model[generator._column(np.arange(spec.d))] = generator.document_frequency(np.arange(spec.d))
    frequent = model > 0.005
    error = np.abs(seen - model)[frequent] / np.sqrt(model * (1 - model) / 8000)[frequent]
    assert frequent.sum() > 1000
    # normal sampling leaves 0.3 % beyond; the topical share's spread a little more
    assert np.mean(error < 3) > 0.98
    # as the lengths vary
    assert seen[frequent].sum() == pytest.approx(
        model[frequent].sum(), rel=3 * 0.95 / np.sqrt(8000)
    )


def test_zipf_with_a_cutoff():
    """Frequencies fall as a power law past the cutoff and are flat before it."""
    generator = TextGenerator(CORPORA["rcv1"], 0)
    rank = np.arange(47_236)
    p = generator.background(rank)
    assert p.sum() == pytest.approx(1)
    assert np.all(np.diff(p) < 0)
    slope = np.polyfit(np.log(rank[2000:]), np.log(p[2000:]), 1)[0]
    assert slope == pytest.approx(-1.15, abs=0.02)
    assert p[0] / p[10] < 1.3


def test_newswire_needs_selection_and_rewards_it():
    """Planted terms alone classify better than all 20,000 together, and an F-test finds most but
    not all of them.
    """
    source = sources.find("synthetic:newswire")
    rows = source.read((0, 8000))
    X, y, split = rows.X, told_of([rows], "label"), told_of([rows], "split")
    train = split == "train"
    assert train.mean() == 0.6

    def accuracy(columns):
        return (
            LinearSVC().fit(X[train][:, columns], y[train]).score(X[~train][:, columns], y[~train])
        )

    everything, planted = accuracy(np.arange(20_000)), accuracy(source.planted)
    assert 0.7 < everything < planted - 0.01
    assert planted < 0.9
    used = np.flatnonzero(X[train].count_nonzero(axis=0))
    best = used[np.argsort(-f_classif(X[train][:, used], y[train])[0])]
    assert 0.85 < np.isin(best[:204], source.planted).mean() < 1
    assert accuracy(best[:25]) < 0.75
    # 1/12 by chance: nothing else informs
    assert accuracy(np.setdiff1d(np.arange(20_000), source.planted)) < 0.15


def test_newswire_reads_well():
    source = sources.find("synthetic:newswire")
    assert len(set(source.feature_names)) == source.n_features == 20_000
    words = {source.feature_names[j] for j in source.planted}
    assert {"wheat", "barrel", "satellite", "goal"} <= words
    assert len(words) == 12 * 17
    assert source.class_names[0] == "grain"


def test_phrases_stand_beside_their_terms():
    """Four of five tokens of a term bring each of its phrases, so they say nearly the same."""
    source = sources.find("synthetic:phrases")
    assert len(set(source.feature_names)) == source.n_features == 20_000
    assert len(source.planted) == 12 * 17 * 4
    X = source.read((0, 8000)).X
    column = {source.feature_names[j]: j for j in source.planted}
    present = X.tocsc().astype(bool).astype(float)
    with_word = present[:, [column["oil"]]].toarray()[:, 0] > 0
    for phrase in ("the oil", "oil and", "of oil"):
        with_phrase = present[:, [column[phrase]]].toarray()[:, 0]
        # a document with several tokens of the term has more chances
        assert 0.8 <= with_phrase[with_word].mean() < 0.95
        assert with_phrase[~with_word].mean() < 0.06
    generator = TextGenerator(CORPORA["phrases"], 0)
    model, seen = np.empty(20_000), present.mean(axis=0)
    model[generator._column(np.arange(20_000))] = generator.document_frequency(np.arange(20_000))
    terms = generator._column(generator.topic_ranks.ravel())
    phrases = np.setdiff1d(source.planted, terms)
    # the model takes the mean topical share, whose spread costs both 3 to 6 %
    for columns in (terms, phrases):
        assert 0.93 < seen[columns].sum() / model[columns].sum() < 0.98


def test_in_phrases_choosing_together_beats_choosing_one_by_one():
    rows = sources.find("synthetic:phrases").read((0, 8000))
    X, y, split = rows.X, told_of([rows], "label"), told_of([rows], "split")
    train = split == "train"

    def accuracy(columns):
        return (
            LinearSVC().fit(X[train][:, columns], y[train]).score(X[~train][:, columns], y[~train])
        )

    used = np.flatnonzero(X[train].count_nonzero(axis=0))
    one_by_one = used[np.argsort(-f_classif(X[train][:, used], y[train])[0])]
    together = SparGE(n_features_to_select=200).fit(X[train], y[train]).selected_
    gains = [accuracy(together[:m]) - accuracy(one_by_one[:m]) for m in (20, 40, 100, 200)]
    # two figures of 3,200 test samples differ by 0.018 in about one of twenty cases by chance
    assert np.all(np.array(gains) > [0.15, 0.15, 0.04, 0.02])


def test_classes_follow_their_prior():
    y = told_of([sources.find("synthetic:real-sim").read((0, 8192))], "label")
    assert np.mean(y == 1) == pytest.approx(0.31, abs=3 * np.sqrt(0.31 * 0.69 / 8192))
    y = told_of([sources.find("synthetic:rcv1?rows=20000").read((0, 20_000))], "label")
    assert len(np.unique(y)) == 103
    counts = np.bincount(y)
    assert counts[0] > 5 * counts[102]


@pytest.mark.slow
def test_images_are_told_apart_inside_the_oval_only():
    source = sources.find("synthetic:images?rows=1500")
    rows = source.read((0, 1500))
    X, y = rows.X, told_of([rows], "label")
    assert source.sample_shape == (32, 32)
    X = X.toarray()
    X -= X.mean(axis=1, keepdims=True)
    assert X.shape == (1500, 1024)
    outside = np.setdiff1d(np.arange(1024), source.planted)
    score = {
        where: LinearSVC().fit(X[:1000, c], y[:1000]).score(X[1000:, c], y[1000:])
        for where, c in (("in", source.planted), ("out", outside))
    }
    assert score["in"] > 0.8
    assert score["out"] < 0.1


def test_seeds_and_sizes():
    a, b = sources.find("synthetic:newswire"), sources.find("synthetic:newswire?seed=1")
    assert not np.array_equal(a.planted, b.planted)
    assert not same(a.read((0, 10)).X, b.read((0, 10)).X)
    assert a.fingerprint() != b.fingerprint()
    assert sources.find("synthetic:webspam?rows=5%").n == 17_500
    assert sources.find("synthetic:real-sim", rows=100_000).n == 100_000
    assert sources.find("synthetic:newswire?rows=10").fingerprint() != a.fingerprint()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("synthetic:nothing", "unknown generated corpus 'nothing'"),
        ("synthetic:newswire?row=3", "unknown option row"),
        ("synthetic:newswire?rows=many", "a number or a percentage"),
        ("synthetic:newswire?rows=inf%", "a number or a percentage"),
        ("synthetic:newswire?rows=nan%", "a number or a percentage"),
        ("synthetic:newswire?rows=", "a number or a percentage"),
        ("synthetic:newswire?rows=0", "at least 1"),
        ("synthetic:newswire?rows=-5", "at least 1"),
        ("synthetic:newswire?seed=-1", "whole number of at least 0"),
        ("synthetic:newswire?seed=1.5", "whole number of at least 0"),
    ],
)
def test_bad_names_are_one_clear_line(path, message):
    with pytest.raises(SourceError, match=message) as caught:
        sources.find(path)
    assert "\n" not in str(caught.value)
