"""The paired tests, Holm's adjustment and the stability against counts and printed formulas."""

import itertools
from math import comb

import numpy as np
import pytest
from scipy.stats import false_discovery_control, ttest_1samp

from bigfs.evaluation.significance import (
    choice_stability,
    corrected_t_test,
    holm,
    jaccard,
    paired_test,
)


def mcnemar_by_counting(b, c):
    """The two-sided exact p-value from the binomial coefficients: twice the smaller tail."""
    n = b + c
    return min(1.0, 2 * sum(comb(n, k) for k in range(min(b, c) + 1)) / 2**n)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (6, 1), (3, 9), (5, 5), (40, 22)])
def test_zero_one_losses_give_mcnemars_exact_test(b, c):
    agree = [0] * 7 + [1] * 4
    test = paired_test([0] * b + [1] * c + agree, [1] * b + [0] * c + agree)
    assert (test.wins, test.defeats, test.discordant) == (b, c, b + c)
    assert test.p_value == pytest.approx(mcnemar_by_counting(b, c))


def test_other_losses_count_by_their_sign_alone(rng):
    losses, others = rng.random(50), rng.random(50)
    test = paired_test(losses, others)
    assert test == paired_test(losses > others, losses < others)
    assert paired_test(others, losses) == (test.defeats, test.wins, test.p_value)


def test_samples_that_do_not_pair_are_refused():
    with pytest.raises(ValueError, match="the same samples; got 3 and 2"):
        paired_test([0, 1, 1], [0, 1])


def test_holm_rejects_what_the_stepwise_procedure_rejects(rng):
    """Step down from the smallest p-value, and stop at the first that is not below α / (K − i)."""
    for p in rng.beta(0.5, 4, (20, 6)):
        adjusted = holm(p)
        for alpha in (0.01, 0.05, 0.2):
            rejected = np.zeros(6, dtype=bool)
            for i, j in enumerate(np.argsort(p)):
                if p[j] > alpha / (6 - i):
                    break
                rejected[j] = True
            assert (adjusted <= alpha).tolist() == rejected.tolist()
        assert np.all(adjusted >= false_discovery_control(p) - 1e-12)  # which allows more


def test_holm_is_the_same_in_any_order_and_leaves_one_test_alone():
    p = [0.01, 0.04, 0.03]
    for order in itertools.permutations(range(3)):
        expected = np.array([0.03, 0.06, 0.06])[list(order)]
        np.testing.assert_allclose(holm([p[i] for i in order]), expected)
    assert holm([0.2]).tolist() == [0.2]
    assert holm([]).tolist() == []
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]


def test_jaccard():
    assert jaccard(np.array([3, 1, 2]), np.array([2, 3, 9, 8])) == 2 / 5
    assert jaccard(np.array([1, 2]), np.array([2, 1])) == 1
    assert jaccard(np.array([]), np.array([])) == 1


def test_corrected_t_test_is_the_t_test_where_nothing_is_corrected(rng):
    d = rng.normal(0.01, 0.02, 10)
    assert corrected_t_test(d, 0) == pytest.approx(ttest_1samp(d, 0).pvalue, rel=1e-12)
    assert corrected_t_test(-d, 0.1) == corrected_t_test(d, 0.1)


def test_corrected_t_test_widens_the_variance_by_the_share_of_the_test():
    """With five folds, 1/5 + 1/4 stands where the t-test has 1/5: worked by hand."""
    d = [0.02, 0.05, 0.01, 0.04, 0.03]
    statistic = 0.03 / np.sqrt((1 / 5 + 1 / 4) * 0.00025)
    assert statistic == pytest.approx(2.8284, abs=1e-4)
    # of Student's distribution with 4 degrees of freedom, P(|t| > 2 sqrt 2) in closed form
    x = statistic / np.sqrt(4 + statistic**2)
    expected = 1 - 1.5 * x * (1 - x**2 / 3)
    assert corrected_t_test(d, 1 / 4) == pytest.approx(expected, rel=1e-10)
    assert corrected_t_test([0, 0, 0], 0.25) == 1


def test_folds_that_say_nothing_of_the_variance_have_no_p_value():
    for d in ([0.05, 0.05, 0.05], [0.01], [0.2, 0.1, 0.3, 0.2], [0.1] * 8):
        assert np.isnan(corrected_t_test(d, 0.25))
    one_more = [1 / 21, 1 / 21, 1 / 20, 1 / 20, 1 / 20]  # right answer in each fold
    assert corrected_t_test(one_more, 0.25) < 1e-4
    assert corrected_t_test(one_more, 0.25, 5 * 5 / 102**2) > 0.05
    np.testing.assert_array_equal(holm([np.nan, 0.01], 3), [np.nan, 0.03])


@pytest.mark.parametrize("n_draws", [100, pytest.param(400, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("n_folds", [0, 2, 3, 5])
@pytest.mark.parametrize("n_methods", [5, 10, 20])
def test_equal_methods_rarely_have_a_star(n_methods, n_folds, n_draws):
    """Methods of the same accuracy, 70 % (90 % with folds) of whose answers are common."""
    rng, stars = np.random.default_rng(0), 0
    n, common = (60, 0.9) if n_folds else (500, 0.7)
    for _ in range(n_draws):
        shared = rng.random(n) < common
        right = np.where(shared, rng.random(n) < 0.8, rng.random((n_methods, n)) < 0.8)
        best = right[right.mean(axis=1).argmax()]
        others = np.delete(right, right.mean(axis=1).argmax(), axis=0)
        if not n_folds:
            p = [paired_test(~one, ~best).p_value for one in others]
        else:
            folds = np.arange(n) % n_folds
            means = np.array(
                [[one[folds == k].mean() for k in range(n_folds)] for one in (*others, best)]
            )
            least = n_folds * (others != best).sum(axis=1) / n**2
            ratio = 1 / (n_folds - 1)
            p = [
                corrected_t_test(d, ratio, v)
                for d, v in zip(means[:-1] - means[-1], least, strict=True)
            ]
        stars += bool((holm(p, n_methods * (n_methods - 1) // 2) < 0.05).any())
    # 5 % of 400 draws, and of 100 draws two standard errors more
    assert stars <= (0 if n_folds in (2, 3) else 20 if n_draws == 400 else 9)


def test_stability_is_the_mean_of_kunchevas_index(rng):
    """(|A ∩ B| d − m²) / (m (d − m)) over the pairs of choices of m out of d features."""
    d, m = 30, 8
    choices = [rng.choice(d, m, replace=False) for _ in range(5)]
    common = [len(set(a) & set(b)) for a, b in itertools.combinations(choices, 2)]
    found = choice_stability(choices, d)
    assert found.phi == pytest.approx(np.mean([(r * d - m**2) / (m * (d - m)) for r in common]))
    assert found.overlap == pytest.approx(np.mean([r / (2 * m - r) for r in common]))
    assert choice_stability([choices[0]] * 3, d) == (1, 1)
    assert choice_stability([np.arange(4), np.arange(4, 8)], 8) == (-1, 0)
