"""Reciprocals, the argmax and scales: values within their error bounds, costs as measured."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from privet.arithmetic.rings import Z36, Ring, get_integer_ring, signed
from privet.arithmetic.shares import Share
from privet.boosting.model_part import LabelUnit
from privet.errors import ParameterError, ResultError
from privet.gates.arithmetic import truncate_locally
from privet.gates.masked.comparison import multiply_by_step
from privet.gates.masked.functions import SCORE_BITS
from privet.gates.masked.polynomial import polynomial, square_lifted
from privet.gates.masked.value import lift, lift_signed, mask, mask_value
from privet.objectives.regression import OBJECTIVES
from privet.protocols.masked.argmax import CARRIED_RING, plan_stages, run_argmax
from privet.protocols.masked.leaves import (
    LeafScale,
    classify_hessians,
    compute_reciprocal,
    encode_scale_factors,
    normalise_hessian,
    weight_check,
)
from privet.protocols.masked.precision.scores import OPENED_SQUARE_BITS, Scales
from privet.runtime.runtime import ArgmaxCandidates, Runtime
from privet.spec.params import Params
from privet.spec.plan import Ownership, Plan
from tests.gates.test_gates import split
from tests.gates.test_masked import on_shares
from tests.runtime.harness import check_count, measured_steps, nonuniform, play

PARTIES = (2, 3, 5)


def plan(task: str = "regression", n_samples: int = 16512, l2: float = 1.0, **more: Any) -> Plan:
    params = Params.parse(
        {"task": task, "tables": 1, "depth": 3, "l2": l2, "learning_rate": 1.0, **more}
    )
    return Plan(params, Ownership((0, 1), 1), n_samples)


CASES = [
    ("regression", 16512, 1.0),
    ("regression", 16512, 0.37),
    ("regression", 2, 1.0),
    ("regression", 10**6, 3.0),
    ("regression", 500, 1e-3),
    ("regression", 500, 1e5),
    ("classification", 24000, 1.0),
    ("classification", 455, 0.1),
    ("classification", 2 * 10**6, 1.0),
]


def interesting_sums(scales: Scales) -> np.ndarray:
    """Return sums of Hessians: zero, bounds between classes and their neighbours, the largest."""
    thresholds, drop = scales.thresholds.values, scales.thresholds.dropped_bits
    bounds = [(t << drop) + d for t in thresholds for d in (-1, 0, 1, (1 << drop) - 1)]
    rng = np.random.default_rng(0)
    limit = scales.units.max_hessian_sum
    parts = np.concatenate([rng.random(60), 2.0 ** -rng.uniform(0, 20, 60)])
    some = np.floor(limit * parts).astype(np.int64).tolist()
    return np.array([h for h in (0, 1, limit, *bounds, *some) if 0 <= h <= limit])


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(("task", "n_samples", "l2"), CASES)
def test_reciprocals(  # noqa: PLR0915
    n: int, task: str, n_samples: int, l2: float
) -> None:
    """1 / y, G / y and G^2 / y for masked sums, from the smallest to the largest H."""
    scales = Scales.from_plan(plan(task, n_samples, l2))
    units = scales.units
    h = interesting_sums(scales)
    y_unit = 2.0 ** (units.h_bits + scales.y_bits)
    y = (h * 2.0**scales.y_bits + scales.l2) / y_unit
    rng = np.random.default_rng(1)
    # As large as scores and sums can be.
    largest = np.minimum(
        np.sqrt(float(scales.max_score) * y), units.max_gradient_sum / 2.0**units.g_bits
    )
    g = np.rint(rng.choice([-1, 1, 0.3, 0], len(h)) * largest * 2.0**units.g_bits * 0.999)
    g_int = g.astype(np.int64)

    def body(runtime: Runtime, a: Share, b: Share) -> list[Share]:
        masked_g, masked_h = mask(runtime, a, b)
        classes = classify_hessians(runtime, scales, masked_h)
        m = normalise_hessian(runtime, scales, classes, masked_h)
        lifted = lift_signed(runtime, masked_g, shift=scales.gradient_dropped_bits)
        squares = multiply_by_step(
            runtime,
            classes,
            square_lifted(runtime, lifted),
            factors=scales.thresholds.counted_factors,
        )
        truncated = truncate_locally(
            runtime, squares, scales.square_dropped_bits, get_integer_ring(OPENED_SQUARE_BITS)
        )
        product = multiply_by_step(
            runtime,
            classes,
            lift_signed(runtime, masked_g),
            factors=scales.thresholds.counted_factors,
        )
        masked_m, masked_squares = mask(runtime, m, truncated)
        z = mask_value(runtime, compute_reciprocal(runtime, scales, masked_m, None))
        lifted_squares = lift_signed(runtime, masked_squares)
        scores = polynomial(runtime, [lifted_squares, lift(runtime, z)], [(1, (0, 1))])
        return [z.to_share(runtime), scores, product, lifted_squares.to_share(runtime)]

    inputs: list[tuple[np.ndarray, Ring]] = [
        (g_int.astype(units.g_ring.dtype), units.g_ring),
        (h.astype(units.h_ring.dtype), units.h_ring),
    ]
    (z, scores, product, squares), _, views = on_shares(body, inputs, n)
    top = scales.l2 * scales.class_ratio ** (scales.n_class_bounds + 1) / y_unit
    factor = signed(product) / np.where(g_int == 0, 1, g_int)
    known = g_int != 0
    # P is a power of R that brings y between 1/R and 1 of the top, up to the precision of
    # comparisons on few bits.
    assert set(factor[known]) <= {float(p) for p in scales.thresholds.counted_factors}
    part = y[known] * factor[known] / top
    assert part.min() >= 0.93 / scales.class_ratio
    assert part.max() <= 1.04
    # z is top / (y P). m is rounded by n / 2 opened units. The error of the series is 2^-24. That
    # of its coefficients, two a harmonic and one, is half a unit of 26 bits. That of dealt sine and
    # cosine terms is half a unit of 32 bits, times coefficients that add up to less than 2^9. z is
    # rounded by n / 2 units.
    exact_z = top / (y[known] * factor[known])
    m_unit = 2.0 ** (scales.wide_ring.bits - scales.narrow_ring.bits)
    m_error = n / 2 * m_unit / (scales.normalising_factor * top * y_unit) * exact_z
    m_error *= scales.narrow_ring.bits < scales.wide_ring.bits
    harmonics = 2 * scales.class_ratio + 4
    rounding = (2 * harmonics + 1) * 2.0**-27 + 2.0**9 * 2.0**-33
    z_error = (
        exact_z * (2.0**-24 + m_error) + rounding + n / 2 * 2.0**-scales.opened_reciprocal_bits
    )
    assert (np.abs(z[known] / 2.0**scales.opened_reciprocal_bits - exact_z) <= z_error).all()
    assert z.max() < 1 << (scales.reciprocal_ring.bits - 1)
    # G^2 P loses a unit of G, and n / 2 opened units.
    real_g = g_int[known] / 2.0**units.g_bits
    exact_q = real_g**2 * factor[known]
    g_unit = 2.0 ** (scales.gradient_dropped_bits - units.g_bits) * (
        scales.gradient_dropped_bits > 0
    )
    q_error = (2 * np.abs(real_g) * g_unit + g_unit**2) * factor[known]
    q_unit = 2.0 ** (scales.square_dropped_bits - scales.square_fraction_bits)
    q_error += n / 2 * q_unit * (scales.square_dropped_bits > 0)
    tolerance = 2.0**-20 * q_unit  # for the floating point of this test
    assert (np.abs(signed(squares[known]) * q_unit - exact_q) <= q_error + tolerance).all()
    assert np.abs(signed(squares)).max() < 1 << (OPENED_SQUARE_BITS - 2)
    found = signed(scores[known]) * q_unit / 2.0**scales.opened_reciprocal_bits / top
    exact = real_g**2 / y[known]
    bound = (exact_q * z_error + q_error * (exact_z + z_error)) / top
    assert (np.abs(found - exact) <= bound + 1e-12 * np.abs(exact)).all()
    rounds = sum(cost.rounds for cost in measured_steps(views).values())
    assert rounds == 3 + (scales.n_class_bounds > 0)


def test_scale_factors() -> None:
    assert encode_scale_factors([Fraction(1), Fraction(1, 2), Fraction(1, 3)]).tolist() == [
        1 << 28,
        1 << 27,
        89478485,
    ]


def run_argmax_on_shares(
    scores: np.ndarray, cuts: tuple[int, ...], n: int, owners: tuple[int, ...] | None = None
) -> tuple[list[Any], list[Any]]:
    """Run the argmax of scores, and reveal the winner; return the opened values and views, too."""
    owners = owners or tuple(j % n for j in range(len(cuts)))
    feature = np.repeat(np.arange(len(cuts)), cuts)
    bucket = np.concatenate([np.arange(count) for count in cuts])
    carried = np.zeros((1 + n, len(feature)), dtype=np.int64)
    carried[0] = feature + 1
    carried[1 + np.array(owners)[feature], np.arange(len(feature))] = bucket + 1
    parts = split(Z36.reduce_modulus(scores.astype(np.int64).view(np.uint64)), Z36, n, 0)

    def program(runtime: Runtime, part: Any) -> Any:
        share = Share.unknown(scores.shape, Z36) if part is None else Share(part, Z36)
        finalists = run_argmax(runtime, share, plan_stages(cuts), carried)
        result = runtime.reveal_argmax(
            finalists, ArgmaxCandidates(owners, cuts, ("split feature", "split bucket"))
        )
        return finalists.part if part is not None else None, result

    views = play(program, n, parts)
    check_count(program, views)
    opened = CARRIED_RING.reduce_modulus(
        CARRIED_RING.sum(np.stack([view.result[0] for view in views]), 0)
    )
    winner = int(np.argmax(scores))
    for k, view in enumerate(views):
        is_owner = owners[feature[winner]] == k
        assert view.result[1] == (feature[winner], bucket[winner] if is_owner else -1, None)
    return [opened, views], [feature[winner], bucket[winner]]


@pytest.mark.parametrize("n", PARTIES)
@pytest.mark.parametrize(
    "cuts",
    [(1,), (7,), (1, 1, 1), (2, 2), (31,) * 8, (5, 0, 1, 9, 0, 30), (3, 1) * 20],
    ids=["one", "seven", "ones", "twos", "usual", "ragged", "forty"],
)
def test_argmax(n: int, cuts: tuple[int, ...]) -> None:
    """The split with the highest score wins, and the first of equal ones, with any groups."""
    rng = np.random.default_rng(len(cuts))
    scores = rng.integers(-4, 4, sum(cuts)) * 2**31
    [opened, views], _ = run_argmax_on_shares(scores, cuts, n)
    groups = plan_stages(cuts)
    assert opened.shape == (1 + n, groups[-1][0])
    # Three openings a stage and two in the last, if there is anything to compare. A large opening
    # is sent in slices. Then the winner is revealed.
    openings = 3 * (len(groups) - 1) + 2 * (groups[-1] != (1,)) + 1
    rounds = views[0].meter.sum_traffic().rounds
    assert openings <= rounds <= 2 * openings
    assert rounds == openings or (sum(cuts) > 31 and n > 2)


@pytest.mark.parametrize("n", [2, 3])
def test_argmax_of_many_features(n: int) -> None:
    """Of 200 features, the best is the last one, the first one, or all are equal."""
    cuts = (3,) * 200
    low = np.random.default_rng(0).integers(0, 2**33, 600)
    for position in (599, 0):
        scores = low.copy()
        scores[position] = 2**34 - 1
        _, winner = run_argmax_on_shares(scores, cuts, n)
        assert winner == [position // 3, position % 3]
    _, winner = run_argmax_on_shares(np.full(600, -5), cuts, n)
    assert winner == [0, 0]


def test_losing_finalists_are_uniform() -> None:
    """The carried values of losing finalists are not readable, nor are equal values of two."""
    cuts = (1,) * 40
    assert plan_stages(cuts)[-1] == (40,)
    lost = []
    for _ in range(30):
        [opened, _], winner = run_argmax_on_shares(np.arange(40), cuts, 3)
        assert winner == [39, 0]
        assert opened[:, 39].tolist() == [40, 1, 0, 0]
        lost.append(opened[:, :39])
    words = [np.stack(lost) >> np.uint64(shift) for shift in (0, 16, 32)]
    assert nonuniform([np.stack(words).astype(np.uint16)]) == []
    assert nonuniform([words[0][0].astype(np.uint16), words[0][1].astype(np.uint16)]) == []


@pytest.mark.parametrize(
    "cuts",
    [(1,), (2,), (31,) * 8, (255,) * 8, (255,) * 1000, (31,) * 30, (1,) * 300, (5, 0, 1, 128, 255)],
    ids=str,
)
def test_argmax_stages(cuts: tuple[int, ...]) -> None:
    """Stages leave one winner, and the wins in a group fit a byte.

    The candidates of the last stage stand for whole features, so its winner reveals only the
    winning feature.
    """
    groups = plan_stages(cuts)
    feature = [[j] for j, count in enumerate(cuts) for _ in range(count)]
    for sizes in groups:
        assert sum(sizes) == len(feature)
        assert max(sizes) <= 128
        ends = np.cumsum(sizes)
        members = np.split(np.arange(len(feature)), ends[:-1])
        if sizes is groups[-1]:
            assert len(sizes) == 1
            seen = [j for group in feature for j in set(group)]
            assert len(seen) == len(set(seen)) == sum(count > 0 for count in cuts)
        feature = [[j for i in group for j in feature[i]] for group in members]
    assert len(feature) == 1


@pytest.mark.parametrize(
    ("finalists", "is_valid"),
    [
        ([[2], [0], [5]], True),  # feature 1, of the second participant, at its bucket 4
        ([[0], [0], [5]], False),  # no feature
        ([[4], [0], [5]], False),  # a feature that does not exist
        ([[2], [0], [0]], False),  # no bucket at its owner
        ([[2], [0], [9]], False),  # a bucket beyond the last cut
        ([[2], [3], [5]], False),  # another bucket at another participant
        ([[1 << 47, 2], [0, 0], [0, 5]], True),  # uniform numbers of a losing candidate
        ([[1 << 47, 1 << 46], [0, 0], [0, 5]], False),  # no winner
    ],
)
def test_reveal_argmax(finalists: list[list[int]], is_valid: bool) -> None:
    value = np.array(finalists, dtype=np.uint64)
    disclosures = ("split feature", "split bucket")

    def program(runtime: Runtime, part: Any) -> Any:
        share = (
            Share.unknown(value.shape, CARRIED_RING) if part is None else Share(part, CARRIED_RING)
        )
        return runtime.reveal_argmax(share, ArgmaxCandidates((0, 1, 1), (3, 8, 8), disclosures))

    parts = split(value, CARRIED_RING, 2, 0)
    if not is_valid:
        with pytest.raises(ResultError, match="the shares of a split feature do not add up to one"):
            play(program, 2, parts)
        return
    views = play(program, 2, parts)
    check_count(program, views)
    assert [view.result for view in views] == [(1, -1, None), (1, 4, None)]
    for view in views:
        assert [(e.disclosure, e.recipients) for e in view.ledger.entries] == [
            ("split feature", ("party1", "party2")),
            ("split bucket", ("party2",)),
        ]


def some_scales(draw: Any) -> tuple[Plan, Scales]:
    task = draw(st.sampled_from(["regression", "classification"]))
    n_samples = draw(st.one_of(st.integers(2, 1 << 21), st.integers(1 << 21, 1 << 31)))
    l2 = 10.0 ** draw(st.floats(-3, 5))
    more: dict[str, Any] = {
        "depth": draw(st.integers(1, 8)),
        "learning_rate": draw(st.sampled_from([0.01, 0.1, 0.3, 1.0])),
    }
    if task == "classification":
        more["classes"] = draw(st.sampled_from([2, 3, 7, 32]))
    if draw(st.booleans()):
        more["base_score"] = draw(st.floats(-3, 3))
    found = replace(
        plan(task, n_samples, l2, **more), n_lattice_errors=draw(st.sampled_from([0, 6, 24]))
    )
    try:
        return found, Scales.from_plan(found)
    except ParameterError:
        assume(False)
        raise


all_scales = st.composite(some_scales)()


def check_classes(plan: Plan, scales: Scales) -> None:
    """Check y P at the ends of every class, with the unit of error of comparisons on few bits.

    With lattice masks, noise can make H negative.
    """
    units, (thresholds, _, drop, *_) = scales.units, vars(scales.thresholds).values()
    top = scales.l2 * scales.class_ratio ** (scales.n_class_bounds + 1)
    ends = [0, *((t << drop) for t in thresholds), units.max_hessian_sum + (1 << drop)]
    for e, factor in enumerate(scales.thresholds.counted_factors):
        low = max(0, ends[e] - ((1 << drop) if drop else 0)) if e else 0
        low -= units.h_slack if plan.n_lattice_errors and not e else 0
        high = ends[e + 1] if e < scales.n_class_bounds else units.max_hessian_sum
        if e and ends[e] == ends[e + 1]:
            continue  # the class is empty
        for h in (low, high - (e < scales.n_class_bounds)):
            y = (h << scales.y_bits) + scales.l2
            assert Fraction(93, 100) * top <= y * factor * scales.class_ratio
            assert y * factor <= Fraction(104, 100) * top


def test_noisy_counts_fit_their_ring() -> None:
    """The noise fits the ring both above the largest count and below zero."""
    params = Params(task="regression", tables=1, depth=1, l2=10_000.0, learning_rate=0.01)
    units = Scales.from_plan(Plan(params, Ownership((0, 1), 1), 7517, n_lattice_errors=6)).units
    assert units.max_hessian_sum + units.h_slack < 1 << (units.h_ring.bits - 1)


@given(all_scales)
def test_scales_never_overflow(found: tuple[Plan, Scales]) -> None:
    """For all accepted samples, classes, l2, depths, rates, base scores and masks."""
    plan, scales = found
    units, params = scales.units, plan.params
    # Values that are lifted have two spare bits, or one if they are never negative.
    assert units.max_gradient_sum < 1 << (units.g_ring.bits - 2)
    assert units.is_wide or units.g_ring.bits <= 36
    widest = 64 if units.is_wide else 44 if plan.n_lattice_errors else 36
    assert all(ring.bits <= widest for _, ring in units.row_formats)
    assert max(units.g_ring.bits, units.h_ring.bits, scales.wide_ring.bits) <= 58
    assert units.h_ring.bits <= units.g_ring.bits or not units.has_constant_hessians
    assert units.max_hessian_sum + units.h_slack < 1 << (units.h_ring.bits - 1)
    largest = (units.max_hessian_sum << scales.y_bits) + scales.l2
    assert scales.l2 * scales.class_ratio ** (scales.n_class_bounds + 1) > largest
    exact = Fraction(params.l2) * (1 << (units.h_bits + scales.y_bits))
    assert abs(scales.l2 - exact) <= Fraction(1, 2) or scales.l2 == 1
    # Comparisons: thresholds rise, and fit their width.
    thresholds, width, drop, *_ = vars(scales.thresholds).values()
    assert list(thresholds) == sorted(thresholds)
    assert width <= units.h_ring.bits - drop
    assert width >= 2 or not thresholds
    assert all(0 < t < 1 << (width - 1) for t in thresholds)
    check_classes(plan, scales)
    top = scales.l2 * scales.class_ratio ** (scales.n_class_bounds + 1)
    # m fits its ring, which is the period, with headroom above the top.
    assert scales.normalising_factor * top * Fraction(104, 100) < 1 << scales.wide_ring.bits
    assert Fraction(7, 5) < scales.period < Fraction(8, 5)
    # Squares below 2^62, opened ones below 2^38; reciprocals below 2^26; scores below 2^34.
    square = (
        scales.max_score
        * scales.max_normalised_hessian
        * Fraction(2) ** scales.square_fraction_bits
    )
    assert square < 1 << 62
    assert square / 2**scales.square_dropped_bits <= 1 << (OPENED_SQUARE_BITS - 2)
    reciprocals = Fraction(scales.class_ratio * 100, 93)
    assert reciprocals * 2**scales.opened_reciprocal_bits < 1 << (scales.reciprocal_ring.bits - 1)
    unit = Fraction(2) ** (scales.square_dropped_bits - scales.square_fraction_bits)
    scale = scales.max_normalised_hessian / Fraction(104, 100)
    largest_square, largest_z = Fraction(1 << (OPENED_SQUARE_BITS - 2)), reciprocals
    if scales.is_bound_proven:
        largest_square, largest_z = scales.max_score * scale / unit, Fraction(1)
    dropped, compared = scales.comparison_format
    assert largest_square * largest_z * 2**scales.opened_reciprocal_bits / 2**dropped <= 1 << (
        compared.bits - 2
    )
    assert dropped + compared.bits <= 64
    # Leaf values: the factors, and the bits of the product.
    lost, product_drop, z_factor, leaf_ring = LeafScale.from_scales(scales)
    assert Fraction(1, 2) < z_factor <= 1
    assert product_drop >= 0
    assert product_drop + leaf_ring.bits <= 64
    if units.is_wide:  # a unit of a factor moves no leaf value by more than this
        assert Fraction(2) ** (scales.reciprocal_ring.bits - 1 - product_drop - 26) <= Fraction(
            1, 1 << 14
        )
    numerator = scales.max_leaf_weight * scales.max_normalised_hessian * 2**units.g_bits / 2**lost
    assert numerator * reciprocals * 2**scales.opened_reciprocal_bits < 1 << 62
    leaf = scales.max_leaf_weight * scales.learning_rate * 2**26
    assert leaf < 1 << (leaf_ring.bits - 2)
    assert leaf_ring.bits <= scales.score_ring.bits <= 64
    y_factor, g_factor, ring = weight_check(scales)
    assert y_factor * largest + g_factor * units.max_gradient_sum < 1 << (ring.bits - 1)
    assert y_factor > 0


@given(all_scales)
def test_rows_have_headroom(found: tuple[Plan, Scales]) -> None:
    """Shares from which bits are dropped fit their ring, and so do the squares of a loss."""
    plan, scales = found
    units = scales.units
    bits, available = SCORE_BITS, scales.score_ring.bits
    if not units.has_constant_hessians:
        bits, available = 26 if units.must_lift_rows else units.sigmoid_bits, 64
        assert units.sigmoid_bits >= 36 or not units.is_wide
    for fraction, ring in units.row_formats[: 1 if units.has_constant_hessians else 2]:
        assert max(0, bits - fraction) + ring.bits <= available
    for fraction, ring in units.unweighted_formats:
        assert units.sigmoid_bits >= fraction or units.has_constant_hessians
        assert ring.bits - fraction >= 2
    squares = plan.n_samples * (units.label_stretch**2 / 4 if units.has_constant_hessians else 1)
    assert squares * 4**units.g_bits < 1 << 62


def coarse_sums(scales: Scales, g: np.ndarray, classes: list[int], up: np.ndarray) -> list[int]:
    """Return the sums of the check: G without its low bits, rounded down or up, squared, times P.

    A G without low bits is not rounded.
    """
    sums = []
    for factors, drop, *_ in scales.coarse_check[1]:
        ups = up * (g % (1 << drop) != 0)
        terms = zip(g, ups, classes, strict=True)
        sums.append(sum((int(v >> drop) + int(u)) ** 2 * factors[e] for v, u, e in terms))
    return sums


@given(all_scales, st.data())
def test_coarse_check_detects_squares_that_do_not_fit(
    found: tuple[Plan, Scales], data: Any
) -> None:
    """With any G, classes and rounding, squares that do not fit fail and small ones pass."""
    _, scales = found
    assume(not scales.is_bound_proven)
    units = scales.units
    ring, sums = scales.coarse_check
    assert len(sums) == 1 or units.is_wide
    for each in sums:
        assert 0 <= each.dropped_bits <= units.g_ring.bits - 2
        assert 0 < each.max_sum < 1 << (ring.bits - 1)
    seed = data.draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    sides = scales.n_sides
    opened = Fraction(2) ** (
        scales.square_dropped_bits + OPENED_SQUARE_BITS - 2 - scales.square_fraction_bits
    )
    small = Fraction(1, 4 if len(sums) == 1 else 32)
    for shape in ("one", "few", "all"):
        size = {"one": 1, "few": min(3, sides), "all": sides}[shape]
        for klass in {0, scales.n_class_bounds, int(rng.integers(scales.n_class_bounds + 1))}:
            mixed = [klass] * size
            if shape == "few":
                mixed = rng.integers(0, scales.n_class_bounds + 1, size).tolist()
            factors = np.array([float(scales.thresholds.counted_factors[e]) for e in mixed])
            weights = (
                rng.dirichlet(np.full(size, 0.3)) if shape == "few" else np.full(size, 1 / size)
            )
            for part, passes in ((Fraction(102, 100), False), (small, True)):
                # Values of G whose squares add up to that part of the opened ring.
                total = float(opened * part)
                real = np.sqrt(weights * total / factors)
                g = np.floor(real * 2.0**units.g_bits).astype(np.int64)
                if sum(int(v) for v in g) > units.max_gradient_sum * scales.n_outputs:
                    continue  # there are not so many samples
                g = g * rng.choice([-1, 1], size)
                for up in (
                    np.zeros(size, int),
                    np.ones(size, int),
                    (g < 0).astype(int),
                    (g > 0).astype(int),
                ):
                    headroom = [
                        each.max_sum - coarse
                        for each, coarse in zip(
                            sums, coarse_sums(scales, g, mixed, up), strict=True
                        )
                    ]
                    assert (min(headroom) >= 0) == passes, (shape, klass, part)
                    # Differences keep their sign in the ring that they are compared in.
                    assert all(abs(each) < 1 << (ring.bits - 1) for each in headroom)
    # All samples are in one node, for every output, and all have the largest gradient.
    worst = np.zeros(sides, dtype=np.int64)
    worst[: scales.n_outputs] = units.max_gradient_sum
    for e in range(scales.n_class_bounds + 1):
        coarse = coarse_sums(scales, worst, [e] * sides, np.ones(sides, int))
        for each, total_of_worst in zip(sums, coarse, strict=True):
            assert -(1 << (ring.bits - 1)) <= each.max_sum - total_of_worst


def make_extreme_label(n_samples: int, kind: str) -> np.ndarray:
    rng = np.random.default_rng(n_samples)
    label = rng.normal(size=n_samples)
    if kind == "outlier":  # half of all variance is one sample's
        label -= label.mean()
        label[0] = np.sqrt((label[1:] ** 2).sum())
    elif kind == "halves":
        label = np.where(np.arange(n_samples) % 2, 1.0, -1.0)
    elif kind == "skewed":
        label = np.where(np.arange(n_samples) < max(1, n_samples // 10), 1.0, 0.0)
    return label


@pytest.mark.parametrize("kind", ["normal", "outlier", "halves", "skewed"])
@pytest.mark.parametrize("n_samples", [2, 3, 40, 1000])
@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("l2", [1e-3, 1.0, 30.0, 1e3, 1e5])
def test_sums_of_residuals_are_bounded(kind: str, n_samples: int, rate: float, l2: float) -> None:
    """The largest sums, of all positive or all negative residuals, are bounded in every table."""
    label = make_extreme_label(n_samples, kind)
    unit = LabelUnit.from_label(label, float(np.mean(label)))
    target = unit.normalise(label)
    assert np.abs(target).max() <= 4
    assert (target**2).sum() <= n_samples / 4 * (1 + 1e-9)
    rng = np.random.default_rng(1)
    depth = 3
    bound = float(
        OBJECTIVES["regression"].max_gradient_sum(n_samples, Fraction(l2), 1 << depth, centred=True)
    )
    score = np.zeros(n_samples)
    order = np.argsort(target)
    for table in range(40):
        g = score - target
        worst = max(g[g > 0].sum(), -g[g < 0].sum())
        assert worst <= bound * (1 + 1e-12)
        # Any splits: in the order of the label, so that leaves differ most, or at random.
        leaf = np.empty(n_samples, dtype=int)
        leaf[order] = np.arange(n_samples) * (1 << depth) // n_samples
        if table % 3 == 2:
            leaf = rng.integers(0, 1 << depth, n_samples)
        sums = np.bincount(leaf, g, 1 << depth)
        counts = np.bincount(leaf, minlength=1 << depth)
        score = score + (-rate * sums / (counts + l2))[leaf]


def test_too_many_samples_are_rejected() -> None:
    with pytest.raises(
        ParameterError, match="and 5000000 samples leave 11: use lattice masks, or fewer"
    ):
        Scales.from_plan(plan("classification", 5 * 10**6))
    with pytest.raises(ParameterError, match=r"l2: 1e\+12"):
        Scales.from_plan(plan(l2=1e12))
    for task in ("classification", "regression"):  # the check of squares needs more than 64 bits
        with pytest.raises(ParameterError, match=r"l2: 0\.001 with 2000000 samples"):
            Scales.from_plan(plan(task, 2 * 10**6, l2=0.001, depth=6))
