"""Which masks a training has: uniform ones, or, for many rows, lattice ones."""

from __future__ import annotations

from dataclasses import replace

from privet.arithmetic.limbs import LimbMatrix
from privet.errors import ParameterError
from privet.runtime.counter import Counter
from privet.suites.suite import OwnData, Suite
from privet.terms.plan import Plan

SEEDS = 3
"""Of every participant: one from each of three dealers. With one dealer there is less noise."""
_FEW_ROWS = 1 << 15
"""Up to so many rows there is little to be saved, and masks are uniform."""
_WORTH = 2
"""By what factor lattice masks must be less effort to be chosen, since they need to assume more."""
_PRODUCTS = 100
"""So many take as long as a byte does at 100 Mbit/s."""
_FROM_FILE = 8
"""How many times as long they take with a matrix that does not fit memory."""


def settle_masks(suite: type[Suite], plan: Plan, n_parties: int) -> Plan:
    """Return a plan whose masks are settled: as its terms say, or by what both would take."""
    noisy = replace(plan, errors=SEEDS * n_parties)
    term = _in_the_way(plan)
    if plan.params.masks == "lattice":
        if term:
            raise ParameterError(
                f"masks: masked has no lattice masks with {term}: leave one of them out"
            )
        return noisy
    if plan.params.masks == "uniform" or term or plan.n_samples <= _FEW_ROWS:
        return plan
    effort, other = (_effort_if_any(suite, each, n_parties) for each in (noisy, plan))
    if other is None:  # if lattice masks will not do, either, that is said of them
        return noisy
    return noisy if effort is not None and _WORTH * effort < other else plan


def _effort_if_any(suite: type[Suite], plan: Plan, n_parties: int) -> float | None:
    """Return what a training takes, or None if it cannot be had with these masks."""
    try:
        return _effort(suite, plan, n_parties)
    except ParameterError:
        return None


def _effort(suite: type[Suite], plan: Plan, n_parties: int) -> float:
    """Return about how many bytes a training takes, and its products as if they were bytes."""
    counter = Counter(n_parties)
    training = suite(counter, replace(plan, kept=None), OwnData())  # the same in all trainings
    training.setup()
    setup = counter.total
    training.train_table(0)
    both = counter.total
    table = both.online + both.offline - setup.online - setup.offline
    products = suite.multiplications(plan) / _PRODUCTS
    if not plan.errors and not LimbMatrix.fits(sum(plan.cuts), plan.n_samples):
        products *= _FROM_FILE
    each = table + products
    return setup.online + plan.params.tables * each


def _in_the_way(plan: Plan) -> str:
    """Return the term that lattice masks do not go with, if any."""
    if plan.weighted and plan.objective.unit_curvature:
        return "a regression's weights"
    return "subsample" if plan.n_drawn < plan.n_samples else ""
