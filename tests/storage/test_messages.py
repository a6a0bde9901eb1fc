"""Headers, footers and quotes of messages: removed as scikit-learn's 20 Newsgroups loader does."""

import itertools
import json

import numpy as np
import pytest
from sklearn.datasets import _twenty_newsgroups as newsgroups
from sklearn.feature_extraction.text import TfidfVectorizer

from bigfs import storage
from bigfs.flows.options import SourceOptions
from bigfs.flows.use.predict import predict
from bigfs.storage import messages
from bigfs.storage.errors import SourceError
from bigfs.storage.runs.runs import Run
from tests.helpers import stages

ORACLES = {
    "headers": newsgroups.strip_newsgroup_header,
    "footers": newsgroups.strip_newsgroup_footer,
    "quotes": newsgroups.strip_newsgroup_quoting,
}
LINES = ["From: a", "", "alpha beta", "> alpha gamma", "Ann wrote:", "| beta", "--", "- -", "delta"]


def remove_all(text, remove):
    for part, oracle in ORACLES.items():
        text = oracle(text) if part in remove else text
    return text


def test_parts_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    texts = [
        "",
        "\n",
        "--",
        "a\n\n",
        *("\n".join(lines) for lines in itertools.permutations(LINES, 2)),
    ]
    texts += ["\n".join(rng.choice(LINES, size)) for size in rng.integers(3, 12, 300)]
    for part, oracle in ORACLES.items():
        assert [messages.PARTS[part](text) for text in texts] == [oracle(text) for text in texts]


@pytest.fixture
def mail(tmp_path):
    rng = np.random.default_rng(1)
    texts = [
        "\n".join(["Subject: omega", "", *rng.choice(LINES, 9), "", ["eins", "zwei"][i % 2]])
        + "\n\nsignature"
        for i in range(40)
    ]
    records = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    path = tmp_path / "mail.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return path, texts


@pytest.mark.parametrize("remove", ["headers", "quotes,headers", "headers,footers,quotes"])
def test_store_and_model_never_see_the_parts(remove, mail, tmp_path):
    path, texts = mail
    store = storage.stage(path, tmp_path / "mail.zarr", remove=remove)
    corpus, stripped = storage.open(store), [remove_all(text, remove) for text in texts]
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True)
    expected = vectorizer.fit_transform(stripped).toarray()
    assert list(corpus.feature_names[:]) == list(vectorizer.get_feature_names_out())
    np.testing.assert_allclose(corpus.X.rows(np.arange(40)).toarray(), expected, rtol=1e-6)
    again = tmp_path / "again.jsonl"  # the same records in other bytes
    again.write_text(path.read_text() + "\n")
    storage.append(again, storage.stage(path, tmp_path / "more.zarr", remove=remove.split(",")))
    grown = storage.open(tmp_path / "more.zarr").X
    np.testing.assert_allclose(grown.rows(np.arange(40, 80)).toarray(), expected, rtol=1e-6)
    run = stages.select(store, tmp_path / "run", method="anova", features=2)
    stages.evaluate(run, baselines=[])
    model = Run.open(stages.finish(run)).model()
    np.testing.assert_array_equal(model.predict(texts), model.predict(corpus.X))
    file, *_ = predict(tmp_path / "run", str(path), tmp_path / "out.csv")
    lines = [line.split(",")[1] for line in file.read_text().splitlines()[1:]]
    assert lines == model.predict(corpus.X).tolist()
    with pytest.raises(ValueError, match="cannot remove headers"):
        model.to_sklearn()


def test_unknown_parts_are_one_line(mail, tmp_path):
    wanted = "remove takes headers, footers, quotes; got 'header'"
    with pytest.raises(SourceError, match=wanted):
        storage.stage(mail[0], tmp_path / "mail.zarr", remove="header")
    with pytest.raises(ValueError, match=wanted):
        SourceOptions(remove="quotes,header")
    (tmp_path / "X.svm").write_text("1 1:2\n")
    with pytest.raises(SourceError, match="is a matrix, and remove is for text"):
        storage.stage(tmp_path / "X.svm", tmp_path / "X.zarr", remove=["quotes"])
    assert messages.read_parts([]) is None
