"""The papers' experiments: they resume, verdicts follow from figures, no figure is left out."""

import re
from datetime import date

import numpy as np
import pytest
import scipy.io

from benchmarks import data as sets
from benchmarks.papers import (
    choice,
    choice_page,
    claims,
    jgsc,
    origin,
    pages,
    results,
    unsupervised,
)
from benchmarks.papers.__main__ import PAPERS
from benchmarks.papers.claims import Claim, Item, Outcome, Verdict
from benchmarks.papers.experiments import Cell, Experiment, run
from benchmarks.papers.results import Key, Results

KEY = Key("toy", "A", "p=1 k=2", 0)
# the figures and tables that the papers have
NAMES = {
    "sparge": [*(f"Fig. {i}" for i in range(1, 7)), *(f"Table {i}" for i in range(1, 8))],
    "srlsr": [*(f"Fig. {i}" for i in range(1, 9)), "Table 1", "Table 2"],
    "jhlsr": [*(f"Fig. {i}" for i in range(1, 12)), *(f"Table {i}" for i in range(1, 6))],
    "jgsc": [*(f"Fig. {i}" for i in range(1, 11)), "Table I", "Table II"],
    "smr": [*(f"Fig. {i}" for i in range(1, 10)), "Table I", "Table II", "Table III"],
    "unsupervised": [],
}


@pytest.fixture
def folder(tmp_path, change):
    change(results.FOLDER, tmp_path)
    return tmp_path


def test_every_figure_and_table_is_listed_once():
    assert {p.key: sorted(i.name for i in p.items) for p in PAPERS} == {
        key: sorted(names) for key, names in NAMES.items()
    }


def test_claims_of_an_item_that_the_paper_has_not_are_refused():
    checks = {item.name: [claim.check for claim in item.claims] for item in PAPERS[0].items}
    checks = {name: own for name, own in checks.items() if own}
    assert claims.items("sparge", checks) == PAPERS[0].items
    with pytest.raises(ValueError, match="not those that are checked"):
        claims.items("sparge", checks | {"Fig. 99": [lambda: None]})


def test_the_command_asks_every_experiment_what_it_reads(folder):
    """One that names a file is left out where the file is not, and all others would start."""
    started = []
    experiments = [
        e._replace(cells=lambda *_, e=e: started.append(e) or [])
        for p in PAPERS
        for e in p.experiments
    ]
    run(experiments, folder, repetitions=1)
    assert {e.name for e in started} == {e.name for e in experiments if e.files == ()}


def test_lines_are_read_as_they_were_written(tmp_path):
    Results(tmp_path / "a.tsv").add(KEY, {"accuracy": [0.25, 0.5], "seconds": 3})
    cells = Results(tmp_path / "a.tsv").cells
    assert list(cells) == [KEY]
    np.testing.assert_array_equal(cells[KEY]["accuracy"], [0.25, 0.5])
    np.testing.assert_array_equal(cells[KEY]["seconds"], [3])


def test_a_cell_tells_the_commit_that_made_it(folder):
    run([counted([])], folder, repetitions=1, say=lambda line: None)
    Results(folder / "toy.tsv").add(KEY, {"accuracy": [0.25]})
    store = Results(folder / "toy.tsv")
    commit, day = store.made[Key("one", "A", "", 0)].split()
    outside = commit == "unknown"  # in a source distribution
    assert outside or origin.git("rev-parse", "--short=7", "HEAD") == commit.rstrip("+")
    assert date.fromisoformat(day)
    assert store.made[KEY] == ""
    rows = origin.stale([counted([])])
    assert [row[:4] for row in rows] == [
        ("toy", "one", f"{commit} {day}", "2"),
        ("toy", "toy", origin.UNKNOWN, "1"),
    ]


def test_an_experiment_depends_on_its_methods_and_not_on_the_engine():
    files = origin.depends_on(PAPERS[1].experiments[0])
    assert {"bigfs/selectors/row_sparse/srlsr.py", "bigfs/linalg/ridge/direct.py"} <= set(files)
    assert not [file for file in files if file.startswith(("bigfs/engine", "flows", "storage"))]


def test_clusters_are_compared_with_the_classes():
    y = np.repeat([0, 1, 2], 10)
    X = np.eye(3)[y] + 1e-3 * np.random.default_rng(0).normal(size=(30, 3))
    assert unsupervised.matched(y, (y + 1) % 3) == 1
    assert unsupervised.matched(y, np.zeros(30, dtype=int)) == 1 / 3
    found = unsupervised.clustered([X, X[:, :1]], y, 0)
    assert found["nmi"][0] == found["accuracy"][0] == 1 > found["nmi"][1]


def test_a_line_that_was_cut_off_does_not_count(tmp_path):
    path = tmp_path / "a.tsv"
    Results(path).add(KEY, {"accuracy": [0.25]})
    whole = path.read_text()
    path.write_text(whole + "toy\tB\t\t0\taccuracy=0.")
    assert list(Results(path).cells) == [KEY]
    assert path.read_text() == whole


def test_a_bad_line_is_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("toy\tA\n")
    with pytest.raises(ValueError, match=r"a\.tsv, line 1: "):
        Results(path)


def counted(calls):
    def cells(folder, data, repetition):
        for method in "BA":

            def compute(method=method):
                calls.append((data, method, repetition))
                if len(calls) == 4:
                    raise KeyboardInterrupt
                return {"accuracy": [repetition]}

            yield Cell(method, "", compute)

    return Experiment("toy", ("one",), 3, cells, files=())


def test_a_run_goes_on_where_it_was_cut_off(folder):
    calls = []
    with pytest.raises(KeyboardInterrupt):
        run([counted(calls)], folder, say=lambda line: None)
    assert len(Results(folder / "toy.tsv")) == 3
    assert run([counted(calls)], folder, say=lambda line: None) == 3
    assert sorted(set(calls)) == [("one", m, r) for m in "AB" for r in range(3)]
    assert len(calls) == 7  # the one that was cut off ran twice
    text = (folder / "toy.tsv").read_text()
    assert text.splitlines() == sorted(text.splitlines())
    assert run([counted(calls)], folder, say=lambda line: None) == 0


def test_a_run_stops_at_the_number_of_repetitions_and_skips_missing_data(folder):
    calls = []
    assert run([counted(calls)], folder, repetitions=1, say=lambda line: None) == 2
    missing = counted(calls)._replace(files=None, name="missing")
    assert run([missing], folder, say=lambda line: None) == 0


def test_a_difference_shows_beyond_two_standard_errors():
    first = {0: 0.5, 1: 0.6, 2: 0.7}
    # differences 0.1, 0.1, 0.4: mean 0.2, standard error 0.1
    exactly = claims.difference(first, {0: 0.4, 1: 0.5, 2: 0.3})
    np.testing.assert_allclose([exactly.mean, exactly.error], [0.2, 0.1])
    # 5 % of Student's t: 6.314 for two pairs, 2.920 for three; two standard errors from seven on
    for pairs, errors in ((2, 6.314), (3, 2.920), (30, 2.0)):
        beyond = claims.Difference(1.0, 0.999 / errors, pairs)
        within = claims.Difference(1.0, 1.001 / errors, pairs)
        assert (beyond.verdict, within.verdict) == (Verdict.HOLDS, Verdict.FAILS)
    assert claims.difference(first, {0: 0.1}).verdict is Verdict.NOT_RUN
    assert claims.difference(first, {7: 0.1}) is None


def test_above_takes_all_others_together():
    first, low, high = {0: 0.5, 1: 0.6}, {0: 0.1, 1: 0.21}, {0: 0.9, 1: 0.9}
    assert claims.above(first, {"low": low}).verdict is Verdict.HOLDS
    assert claims.above(first, {"high": high}).verdict is Verdict.FAILS
    both = claims.above(first, {"low": low, "high": high, "none": {}}, "toy")
    assert both == Outcome(
        Verdict.PART,
        "toy: +0.395 ± 0.005 against low, -0.350 ± 0.050 against high (2 repetitions)",
        2,
    )
    assert claims.above(first, {"none": {}}).verdict is Verdict.NOT_RUN


def test_a_repetition_is_complete_when_all_cells_are_there(tmp_path):
    store = Results(tmp_path / "a.tsv")
    for repetition, method in [(0, "A"), (0, "B"), (1, "A")]:
        store.add(KEY._replace(repetition=repetition, method=method), {"accuracy": [0.5]})
    store.add(KEY._replace(data="other"), {"accuracy": [0.5]})
    assert store.complete("toy", 2) == {0}
    assert store.complete("toy", 1) == {1}
    assert store.complete("toy", 2, "p=2 k=2".__eq__) == set()
    assert list(store.complete_runs("accuracy", "toy", "A", 2)["p=1 k=2"]) == [0]


def test_curves_that_all_pass_a_check(tmp_path):
    store = Results(tmp_path / "a.tsv")
    store.add(KEY, {"objective": [3, 2, 2.00003]})  # a rise in the digits that are not stored
    store.add(KEY._replace(repetition=1), {"objective": [3, 2, 2.1]})
    outcome = claims.all_curves(store, ["toy"], "objective", "A", claims.never_rises)
    assert outcome.verdict == Verdict.PART
    assert outcome.evidence == "toy: 1 of 2"


@pytest.mark.parametrize(("data", "kind"), [("PCMAC", "text"), ("colon", "dense")])
def test_the_inner_folds_choose_and_the_test_scores(folder, data, kind):
    """A split counts when every method is there. The best inner one of each family is scored."""
    store = Results(folder / "sparge-choice.tsv")
    for repetition in range(2):
        for i, (family, parameters, _) in enumerate(choice.methods(data)):
            if repetition == 0 or i:
                store.add(
                    Key(data, family, parameters, repetition),
                    {"inner": np.full(3, i / 100), "test": [i / 100 - 0.1, i / 100, i / 100 + 0.1]},
                )
    columns = choice_page.on_test()
    last = {family: i / 100 for i, (family, *_) in enumerate(choice.methods(data))}
    assert set(columns["ℓ1"]) == {(data, 0)}
    for family in choice_page.PEERS:
        np.testing.assert_allclose(columns[family][data, 0], last[family])
    np.testing.assert_allclose(columns[choice_page.CHOSEN][data, 0], last["SparGE"])
    assert columns[choice_page.FIXED][data, 0] < last["SparGE"]
    row = f"| {choice_page.CHOSEN} | {kind} | SVM-RFE | 1 won, 0 lost | 1 won, 0 lost |"
    assert row in choice_page.choice_section(folder)


def test_a_verdict_tells_the_repetitions_that_it_rests_on():
    """Data with one repetition have no verdict, and don't count beside those that have one."""
    outcomes = [
        claims.above({0: 0.5, 1: 0.6, 2: 0.7}, {"B": {0: 0.1, 1: 0.2, 2: 0.3}}, "one"),
        claims.above({0: 0.5}, {"B": {0: 0.1}}, "two"),
    ]
    assert [outcome.pairs for outcome in outcomes] == [3, 1]
    assert claims.all_of(outcomes).pairs == 3
    assert claims.all_of(outcomes[1:]).pairs == 1
    item = Item("Fig. 1", "", (Claim("a", lambda: outcomes[0]), Claim("b", lambda: outcomes[1])))
    assert item.pairs() == 3


def test_share_counts_cases():
    assert claims.share({"a": (2, 2), "b": (3, 3)}).verdict is Verdict.HOLDS
    assert claims.share({"a": (0, 2), "b": (3, 3)}).verdict is Verdict.PART
    assert claims.share({"a": (0, 2)}).verdict is Verdict.FAILS
    assert claims.share({"a": (0, 0)}).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("HOLDS HOLDS NOT_RUN", Verdict.HOLDS),
        ("HOLDS FAILS", Verdict.PART),
        ("FAILS CANNOT", Verdict.FAILS),
        ("NOT_RUN CANNOT", Verdict.NOT_RUN),
        ("CANNOT", Verdict.CANNOT),
    ],
)
def test_an_item_takes_its_claims_together(verdicts, expected):
    parts = [Claim("", lambda v=v: Outcome(Verdict[v], "")) for v in verdicts.split()]
    assert Item("Fig. 1", "a", tuple(parts)).verdict() is expected


def test_a_claim_of_ours_does_not_count():
    ours = Claim("", lambda: Outcome(Verdict.FAILS, "", 2), counts=False)
    item = Item("Fig. 1", "a", (Claim("", lambda: Outcome(Verdict.HOLDS, "", 3)), ours))
    assert (item.verdict(), item.pairs(), len(item.outcomes())) == (Verdict.HOLDS, 3, 2)


def test_pages_follow_from_the_results(folder):
    experiment = counted([])
    for r, (a, b) in enumerate([(0.5, 0.4), (0.6, 0.5)]):
        store = Results(folder / "toy.tsv")
        store.add(Key("one", "A", "", r), {"accuracy": [a]})
        store.add(Key("one", "B", "", r), {"accuracy": [b]})

    def check():
        runs = [experiment.results().runs("accuracy", "one", m)[""] for m in "AB"]
        first, second = ({r: v[0] for r, v in run.items()} for run in runs)
        return claims.above(first, {"B": second}, "one")

    def section(folder):
        runs = experiment.results().runs("accuracy", "one", "A")[""]
        panels = {"one": {"A": ([1], list(runs.values()))}}
        plot = pages.curves(panels, ("x", "y"), folder, "toy", "Accuracy")
        return "## Accuracy\n\n" + pages.repetitions(experiment) + "\n\n" + plot

    items = (
        Item("Fig. 1", "A beside B", (Claim("A is above B", check),)),
        Item("Table II", "more", missing="USPS"),
    )
    paper = pages.Paper("toy", "Toy", "A paper.", items, 3, (experiment,), (section,))
    pages.write([paper], folder / "docs")
    page = (folder / "docs" / "toy.md").read_text()
    row = "| A is above B | holds | one: +0.100 ± 0.000 against B (2 repetitions) |"
    assert row in page
    assert "**Holds.** On 2 of 3 repetitions." in page
    assert "**Cannot be tried.** Not available: USPS." in page
    assert "Repetitions begun: one 2, of 3." in page
    index = (folder / "docs" / "index.md").read_text()
    assert "| Toy | [Fig. 1](toy.md#toy-fig-1) | A beside B | holds | 2 of 3 |  |" in index
    assert "Verdicts of the 2 figures and tables: cannot be tried (1), holds (1)." in index
    assert "1 of the 1 verdicts that compare methods rest on fewer repetitions" in index
    plot = (folder / "docs" / "toy.svg").read_text()
    pages.write([paper], folder / "docs")
    assert (folder / "docs" / "toy.svg").read_text() == plot
    labels = re.findall(r"^\((.+)\)=$", page, re.M)
    assert labels == ["toy-fig-1", "toy-table-ii"]


def test_words_are_read_for_every_experiment_on_them(tmp_path):
    rng = np.random.default_rng(0)
    file = tmp_path / sets.TEXTS["Reuters"]
    file.parent.mkdir()
    counts = rng.poisson(0.2, (80, 30)).astype(float)
    classes = np.repeat([1, 2], 40)
    scipy.io.savemat(file, {"fea": counts, "gnd": classes[:, None], "testIdx": [[1, 2]]})
    X, y = unsupervised.draw(tmp_path, "Reuters", 0)
    assert (X.shape, np.bincount(y).tolist()) == ((64, 30), [32, 32])
    assert jgsc.prepared(tmp_path, "Reuters", 0).X.shape == (80, 30)
