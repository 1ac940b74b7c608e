"""What a training by the masked protocol costs: rounds and bytes, from the plan alone."""

from __future__ import annotations

from privet.arithmetic.rings import Z8, Z32, Z36, Z64, Ring
from privet.gates.choose import Keep, LeafLookup, PublishBits
from privet.gates.gate import Cost, revealing_cost, sharing_cost
from privet.gates.histogram import Histogram, Publish
from privet.gates.masked import Lift, OpenMasked
from privet.gates.polynomial import Polynomial
from privet.gates.shrink import Shrink
from privet.gates.threshold import DIGIT_BITS, CountReached
from privet.gates.waves import Waves
from privet.suites.masked.division import quotient_cost
from privet.suites.masked.scales import Scales
from privet.suites.masked.table import CHECK_WIDTH, GAIN_SHIFT, WEIGHT_SHIFT
from privet.suites.masked.tournament import best_cost
from privet.suites.plan import Plan


def setup_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of the label and the indicators."""
    label = sharing_cost(Z64.nbytes((plan.n_samples,)), n_parties)
    return label + Publish.cost(plan.n_features, plan.candidates, plan.n_samples, n_parties)


def table_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of one table."""
    scales = Scales.of(plan)
    cost = gradients_cost(plan, n_parties)
    for level in range(plan.depth):
        cost += level_cost(plan, scales, level, n_parties)
    cost += leaves_cost(plan, scales, n_parties)
    if plan.reveal_loss:
        cost += loss_cost(plan, n_parties)
    cost += OpenMasked.cost([((plan.leaves,), Z64)], n_parties) + check_cost(plan, n_parties)
    return cost + LeafLookup.cost(plan.depth, plan.n_samples, 8)


def gradients_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of the derivatives of all samples."""
    count = plan.n_samples
    if plan.task == "regression":
        return Shrink.cost(count, [Z36], n_parties)
    masked = OpenMasked.cost([((count,), Z32)], n_parties)
    rings = [Z36, Scales.of(plan).h_ring]
    return masked + Waves.cost(count) + Shrink.cost(count, rings, n_parties)


def check_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of making sure that leaf values are within bounds."""
    count = 2 * plan.leaves
    revealed = revealing_cost(Z8.nbytes((-(-count // 128),)), n_parties, n_parties)
    return CountReached.cost(count, 1, CHECK_WIDTH, DIGIT_BITS, n_parties) + revealed


def loss_cost(plan: Plan, n_parties: int) -> Cost:
    """Return the cost of the loss that a table starts from, and of revealing it to all."""
    shape = (1, plan.n_samples)
    cost = Lift.cost(shape, Z36) + Polynomial.cost(3, shape)
    cost += OpenMasked.cost([((1,), Z64)], n_parties) + Lift.cost((1,), Z64, 1)
    return cost + revealing_cost(Z64.nbytes((1,)), n_parties, n_parties)


def level_cost(plan: Plan, scales: Scales, level: int, n_parties: int) -> Cost:
    """Return the cost of choosing a level's test and splitting by it."""
    nodes, count = 1 << level, plan.n_samples
    rings: list[Ring] = [Z36, scales.h_ring]
    summed = max(1, nodes // 2)
    cuts = (plan.n_features, plan.candidates, nodes)
    sides = (2, *cuts)
    cost = Cost()
    for ring in rings:
        cost += Histogram.cost(plan.n_features, plan.candidates, summed, ring.dtype.itemsize)
        cost += Keep.cost((nodes, count), ring.dtype.itemsize)
    sums = [(cuts, ring) for ring in rings] + [((nodes,), ring) for ring in rings]
    cost += OpenMasked.cost(sums, n_parties)
    cost += quotient_cost(scales, sides, Z36, scales.h_ring, n_parties)
    cost += OpenMasked.cost([(sides, Z64)], n_parties) + Lift.cost(sides, Z64, WEIGHT_SHIFT)
    cost += Lift.cost(sides, Z36, GAIN_SHIFT) + Polynomial.cost(4, sides)
    cost += best_cost(plan.n_features * plan.candidates, 1 + n_parties, n_parties)
    cost += Cost(rounds=1, online=n_parties * (n_parties - 1) * 8)  # the choice is revealed
    cost += PublishBits.cost((count,), n_parties)
    if level + 1 < plan.depth:
        cost += OpenMasked.cost([((nodes, count), ring) for ring in rings], n_parties)
    return cost


def leaves_cost(plan: Plan, scales: Scales, n_parties: int) -> Cost:
    """Return the cost of a table's leaf values."""
    shape = (plan.leaves,)
    cost = OpenMasked.cost([(shape, Z36), (shape, scales.h_ring)], n_parties)
    cost += quotient_cost(scales, shape, Z36, scales.h_ring, n_parties)
    # Twice: the quotient's rounding, and the scaled one's.
    return cost + (OpenMasked.cost([(shape, Z64)], n_parties) + Lift.cost(shape, Z64, 1)) * 2
