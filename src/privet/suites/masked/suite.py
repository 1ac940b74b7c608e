"""Our own protocol as a suite: labels and masked indicators at the start, then table by table."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.lattice import Lattice, SmallProducts, degree_for
from privet.arithmetic.limbs import LimbMatrix
from privet.arithmetic.rings import Z1, Z64, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import FloatArray, IndexArray, Indices
from privet.errors import ParameterError
from privet.gates.indicators import Published, publish
from privet.gates.masked import mask, mask_one, signed_lift
from privet.gates.outcomes import leaf_lookup, owned_share
from privet.gates.reciprocal_series import reciprocal_series
from privet.gates.rows import AT_ONCE
from privet.gates.sigmoid_series import HARMONICS, LARGEST_SCORE, SCORE_BITS, coefficients
from privet.gates.softplus_series import softplus_coefficients
from privet.runtime.runtime import Runtime
from privet.suites.masked import reasons
from privet.suites.masked.bounds import Bounds
from privet.suites.masked.candidates import candidate_features, handicaps
from privet.suites.masked.cuts import Cuts
from privet.suites.masked.gains import told_drop
from privet.suites.masked.importances import mean_absolute
from privet.suites.masked.leaves import LeafScale, weight_check
from privet.suites.masked.masks import settle_masks
from privet.suites.masked.monotone import RiseScale, in_order
from privet.suites.masked.reciprocal import scaled
from privet.suites.masked.row_masks import LASTING_SEED, lattice_of
from privet.suites.masked.samples import LOSS_BITS, Samples
from privet.suites.masked.scales import Scales
from privet.suites.masked.tournament import stages
from privet.suites.masked.validation import Validation
from privet.suites.masked.weights import Weights
from privet.suites.suite import AppliedTests, Groups, OwnData, Reasons, Suite, TrainedTable
from privet.terms.plan import Plan

_OF_A_MASK = 64
"""How many products take as long as the lattice masks of both derivatives of a row."""


class MaskedSuite(Suite):
    """Training and inference on masked values."""

    encoding = FixedPoint(SCORE_BITS)
    has_loss = True
    has_weights = True
    has_constraints = True
    explains = True
    has_validation = True
    has_gain = True
    several_dealers = True
    publishes = True
    cuts = ("rounded", "exact", "hidden")

    def __init__(self, runtime: Runtime, plan: Plan, data: OwnData) -> None:
        super().__init__(runtime, plan, data)
        self._scales = Scales.of(plan)

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse what no scales fit, and a start that the sigmoid is not right for."""
        scales = Scales.of(plan)
        assert scales.largest_weight * scales.rate <= reasons.LARGEST_LEAF
        if plan.weighted and plan.checks_squares:
            term = plan.raises_squares
            raise ParameterError(
                f"{term}: masked has no bound on sums of a regression's weighted residuals with "
                f"{term}: leave it out, or the weights"
            )
        start = plan.params.base_score or 0.0
        if not plan.objective.own_unit and abs(start) >= LARGEST_SCORE:
            raise ParameterError(
                f"base_score: masked computes with log-odds below {LARGEST_SCORE} in size, not "
                f"{start:g}: leave it out, or start nearer to 0"
            )

    @classmethod
    def with_masks(cls, plan: Plan, n_parties: int) -> Plan:
        """Return the plan with the masks that are less effort, unless its terms say which."""
        return settle_masks(cls, plan, n_parties)

    @classmethod
    def stretch(cls, plan: Plan) -> Fraction:
        """Return what makes sums of derivatives use all bits of their ring."""
        return Scales.of(plan).units.stretch

    @classmethod
    def published(cls, plan: Plan) -> Published:
        """Return the widest ring of rows, and a column for each, unless masks are lattice ones."""
        ring = max((ring for _, ring in Scales.of(plan).units.rows), key=lambda ring: ring.bits)
        if not plan.errors:
            return Published(ring, plan.n_samples)
        return Published(ring, degree_for(ring.bits), f"lattice {LASTING_SEED}")

    @classmethod
    def memory(cls, plan: Plan) -> int:
        """Return the indicators', and what the widest level and the update of scores take.

        Of every sample, what is kept of nodes; or, of some at a time, the sigmoid's dealt waves, as
        of every reciprocal of a level: with many classes and few samples these are more.
        """
        scales, cuts = Scales.of(plan), sum(candidate_features(plan)[0])
        if plan.errors:
            bits = cls.published(plan).ring.bits
            indicators = SmallProducts.memory(cuts, bits) + Lattice.memory(plan.n_samples, bits)
        else:
            indicators = LimbMatrix.memory(cuts, plan.n_samples)
            if plan.draws:  # those of a table, beside all
                indicators += LimbMatrix.memory(_drawn_cuts(plan), plan.n_drawn)
        outputs = plan.objective.outputs
        rows = (4 * outputs + 2) * plan.params.leaves * plan.n_rows
        if not plan.objective.unit_curvature:
            rows = max(rows, 4 * 2 * HARMONICS * outputs * min(plan.n_rows, AT_ONCE))
        waves = 3 * 2 * len(reciprocal_series(scales.ratio, scales.period).multiples)
        level = Z64.nbytes((waves, cuts * scales.sides))
        derived = reasons.memory(plan) if plan.explains else 0
        return indicators + max(Z64.nbytes((rows,)) + level, derived)

    @classmethod
    def multiplications(cls, plan: Plan) -> int:
        """Return those of the indicators with the root's and all left children's derivatives."""
        cuts, vectors = _drawn_cuts(plan), plan.params.leaves * plan.objective.outputs
        if plan.errors:
            return (cuts * cls.published(plan).columns + _OF_A_MASK * plan.n_samples) * vectors
        return cuts * plan.n_drawn * vectors

    @classmethod
    def constants(cls, plan: Plan) -> dict[str, object]:
        """Return the scales, and what series, polynomials and comparisons are made of."""
        scales = Scales.of(plan)
        series = reciprocal_series(scales.ratio, scales.period)
        return {
            "the scales": scales.numbers(),
            "leaf values": [str(LeafScale.of(scales)), str(weight_check(scales))],
            "the sigmoid": coefficients(),
            "the reciprocal": [series.constant, series.sines, series.cosines],
            "ties": [scaled(handicaps(plan, first=first)).tolist() for first in (True, False)],
            "the tournament": stages(candidate_features(plan)[0]),
            **({"reasons": reasons.constants(plan.params.depth)} if plan.explains else {}),
            **({"the order of sides": str(RiseScale.of(scales))} if plan.monotone else {}),
            "what tables draw": [_digest(part) for part in plan.draw(0) if plan.draws],
            **({"the loss": softplus_coefficients()} if plan.n_validation else {}),
            **({"gains": told_drop(scales)} if plan.reveal_gain else {}),
        }

    def setup(self) -> None:
        """Share the label, and publish every feature's masked indicators."""
        runtime, plan, scales = self.runtime, self.plan, self._scales
        # The sigmoid's values have 64 bits, and targets are subtracted from them.
        self._target = self._share_target(scales.score_ring if scales.proven else Z64)
        self.scores = self._start_scores(scales.score_ring)
        ring = self.published(plan).ring
        lattice = lattice_of(runtime, plan, ring)
        indicators = publish(
            runtime,
            {j: rows[: plan.n_samples] for j, rows in self.data.buckets.items()},
            plan.ownership.features,
            self.data.shelf,
            cuts=plan.cuts,
            n_samples=plan.n_samples,
            ring=ring,
            kept=plan.kept,
            lattice=lattice,
        )
        self._samples = Samples(runtime, plan, scales, self.data, indicators, lattice)
        self._cuts = Cuts(runtime, plan, scales, self.data.min_gain)
        if plan.n_validation:
            self._validation = Validation(runtime, plan, self.data)
        if plan.weighted:
            with runtime.step("weights"):
                weights = Weights(runtime, scales.units, self.data.weight, plan.n_samples)
                self._samples.weigh(weights)
        if plan.objective.unit_curvature and not plan.draws:
            self._cuts.keep_root(*self._samples.root_curvature())

    def train_table(self, number: int) -> TrainedTable:
        """Train a table: at each level sums go up to the cuts, and a test comes down."""
        runtime, plan = self.runtime, self.plan
        depth = plan.params.depth
        features = np.zeros(depth, dtype=np.intp)
        buckets = np.full(depth, -1, dtype=np.intp)
        draw, bounds = plan.draw(number), Bounds(runtime)
        samples = self._samples.begin_table(bounds, draw, self._target, self.scores)
        loss = samples.squared_residuals() if plan.reveal_loss else None
        room = samples.room()
        cuts = self._cuts.begin_table(bounds, draw, first=number == 0)
        for level in range(depth):
            with runtime.step("level", level):
                test = cuts.best_test(samples.sums())
                features[level], buckets[level] = test
                with runtime.step("split"):
                    outcome = samples.outcome(*test)
                    if level + 1 < depth:
                        fails = mask_one(runtime, outcome)
                        samples.split(fails)
                    else:
                        fails, chosen, *residuals = mask(
                            runtime, outcome, cuts.chosen(*test), *room
                        )
                    samples.remember(fails)
        values = cuts.leaf_values(chosen, residuals)
        if plan.monotone:
            with runtime.step("order"):
                signs = np.array(plan.monotone)[features]
                signs[buckets == plan.params.candidates] = 0  # where nothing is tested
                values = in_order(runtime, values, signs.tolist())
        with runtime.step("update"):
            self.scores = samples.add_leaves(self.scores, values)
            leaves = signed_lift(runtime, values).share(runtime)
        told = plan.reveal_gain and runtime.index == plan.ownership.active
        return TrainedTable(features, buckets, leaves, loss, cuts.gains.found() if told else None)

    def loss_of(self, revealed: RingArray) -> float:
        """Return a mean from a sum over N divided by a power of two, in the label's own unit."""
        n_samples, stretch = self.plan.n_drawn, float(self._scales.units.stretch)
        scale = (1 << n_samples.bit_length()) / (n_samples << LOSS_BITS)
        return float(revealed[0]) * scale / stretch**2

    def validation_loss(self) -> Share:
        """Return the mean loss on validation rows."""
        with self.runtime.step("validation"):
            return self._validation.loss(self.scores[:, self.plan.n_samples :])

    def validation_loss_of(self, revealed: RingArray) -> float:
        """Return the mean that it stands for."""
        return self._validation.loss_of(revealed)

    @classmethod
    def infer(cls, runtime: Runtime, tests: AppliedTests, leaf_values: Share) -> Share:
        """Return what tables add to the scores of every sample: one round.

        1. Mask the outcomes of all tests and the leaf values of all tables.
        2. Look every sample's leaf up in every table.
        """
        with runtime.step("infer"):
            fails = owned_share(runtime, tests.fails, tests.shape, Z1)
            outcomes, values = mask(runtime, fails, leaf_values)
            found = [
                leaf_lookup(runtime, outcomes[table], values[table])
                for table in range(tests.shape[0])
            ]
            total = found[0]
            for more in found[1:]:
                total += more
            return total

    @classmethod
    def derive_reasons(
        cls, runtime: Runtime, leaf_values: Share, chances: Share, features: IndexArray | None
    ) -> Reasons:
        """Derive contributions at all leaves of all tables at once: 1 + D rounds."""
        return reasons.derive(runtime, leaf_values, chances, features)

    @classmethod
    def infer_explained(
        cls,
        runtime: Runtime,
        tests: AppliedTests,
        leaf_values: Share,
        contributions: Share,
        groups: Groups,
    ) -> tuple[Share, Share]:
        """Return what tables add to scores, and what groups of tests contribute: one round."""
        with runtime.step("infer"):
            return reasons.look_up(runtime, tests, leaf_values, contributions, groups)

    @classmethod
    def mean_absolute(
        cls, runtime: Runtime, contributions: Share, fraction_bits: int, keep_bits: int, to: int
    ) -> FloatArray | None:
        """Reveal the means of absolute contributions to one participant."""
        return mean_absolute(runtime, contributions, fraction_bits, keep_bits, to)


def _drawn_cuts(plan: Plan) -> int:
    """Return about how many cuts a table chooses among."""
    return math.ceil(plan.params.colsample * sum(plan.cuts))


def _digest(drawn: Indices) -> str:
    """Return what tells draws apart."""
    if isinstance(drawn, slice):
        return "all"
    return hashlib.blake2b(drawn.astype("<u8").tobytes(), digest_size=16).hexdigest()
