"""One participant's part of a model: its own thresholds, its shares of the leaf values.

Prediction takes the parts of all participants, together. `join_parts` puts them into a plain model,
which only makes sense where one machine holds them all anyway: in a simulation, and in tests. Where
all agree that one of them may have the model, `federation.prediction.export` lets it have just what
it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Z32
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.boosting.model import Feature, Model
from privet.errors import ModelError
from privet.protocols.protocol import TrainedTable
from privet.spec.plan import Plan

MAX_PREDICTION_BITS = 14
"""Revealed scores have no more fraction bits: a prediction need not say more."""
GUARD_BITS = 6
"""Leaf values keep so many bits more than predictions are revealed with: their sum is rounded once,
exactly, and what each of them lost before is small against that."""


@dataclass(frozen=True, repr=False)
class LabelUnit:
    """Where scores start, and in which unit they are: what the active participant alone knows.

    Where an objective has its own unit, what was shared of the label is (label - start) / scale.
    """

    initial_scores: tuple[float, ...] = (0.0,)
    """The scores before the first table, one an output."""
    scale: float = 1.0

    @classmethod
    def from_label(
        cls,
        label: FloatArray,
        start: float,
        stretch: float = 1.0,
        sample_weight: FloatArray | None = None,
    ) -> LabelUnit:
        """Return the unit in which a regression's label is at most 4 and on average at most 1/2.

        On average by the root mean square; times the `stretch` that a protocol asks for. The scale
        is rounded up to four significant bits: it need not tell the root mean square.
        """
        deviation = label - start
        largest = float(np.max(np.abs(deviation)))
        if not largest:
            return cls((start,))
        # Relative to the largest, whose square might overflow.
        mean = np.average((deviation / largest) ** 2, weights=sample_weight)
        typical = largest * float(np.sqrt(mean))
        mantissa, exponent = math.frexp(max(2 * typical, largest / 4))
        return cls((start,), math.ldexp(math.ceil(16 * mantissa) / 16, exponent) / stretch)

    def normalise(self, label: FloatArray) -> FloatArray:
        """Return the label as it is shared."""
        result: FloatArray = (label - self.initial_scores[0]) / self.scale
        return result

    def restore(self, score: FloatArray) -> FloatArray:
        """Return scores, (K, N), from where they start and in the label's own unit."""
        result: FloatArray = score * self.scale + np.array(self.initial_scores)[:, None]
        return result


@dataclass(frozen=True, eq=False, repr=False)
class PartExplanation:
    """What one participant keeps to explain scores with the others."""

    left_fraction: FloatArray
    """The share of training rows that pass our own tests; NaN for the others': (tables, depth)."""
    contributions: npt.NDArray[np.uint32]
    """Our shares of what each level's feature contributes at every leaf, encoded as leaf values
    are: (tables, outputs, depth, 2^depth)."""
    means: npt.NDArray[np.uint32]
    """Our shares of the tables' means over the training rows: (tables, outputs)."""


@dataclass(frozen=True, eq=False, repr=False)
class ModelPart:
    """What one participant keeps of a model."""

    protocol: str
    task: str
    features: tuple[Feature, ...]
    """All features of the federation, and who holds them."""
    party: str
    feature: IndexArray
    """Which feature each level tests, of all participants': (tables, depth)."""
    bucket: IndexArray
    """The last bucket that passes, for our own tests and where a level tests nothing; -1 for the
    others': (tables, depth)."""
    threshold: FloatArray
    """What our own features are compared with, infinity where a level tests nothing; NaN for the
    others' tests: (tables, depth)."""
    leaf_shares: npt.NDArray[np.uint32]
    """Our shares of the leaf values, over Z32: (tables, outputs, 2^depth)."""
    fraction_bits: int
    """How the leaf values are encoded: `GUARD_BITS` more than predictions are revealed with."""
    label_unit: LabelUnit | None
    """The label's unit, at the active participant."""
    explanation: PartExplanation | None = None
    """What explains scores, if all agreed on that."""
    gains: FloatArray | None = None
    """By how much each level lowered the loss, to second order and before the learning rate: at the
    active participant, if all agreed on that. (tables, depth), in the square of the label's unit.
    """

    @classmethod
    def make_empty(
        cls,
        protocol: str,
        plan: Plan,
        features: tuple[Feature, ...],
        party: str,
        fraction_bits: int,
        unit: LabelUnit | None,
    ) -> ModelPart:
        """Return a participant's part before the first table."""
        tests = (0, plan.params.depth)
        return cls(
            protocol=protocol,
            task=plan.params.task,
            features=features,
            party=party,
            feature=np.empty(tests, dtype=np.intp),
            bucket=np.empty(tests, dtype=np.intp),
            threshold=np.empty(tests),
            leaf_shares=np.empty(
                (0, plan.objective.n_outputs, plan.params.n_leaves), dtype=np.uint32
            ),
            fraction_bits=fraction_bits,
            label_unit=unit,
            gains=np.empty(tests) if plan.reveal_gain and unit is not None else None,
        )

    @property
    def n_tables(self) -> int:
        """How many tables there are."""
        return int(self.feature.shape[0])

    @property
    def depth(self) -> int:
        """How many tests a table has."""
        return int(self.feature.shape[1])

    @property
    def local_features(self) -> tuple[str, ...]:
        """The names of our own features, in the order in which predictions take them."""
        return tuple(f.name for f in self.features if f.owner == self.party)

    @property
    def encoding(self) -> FixedPoint:
        """How leaf values and scores are encoded."""
        return FixedPoint(self.fraction_bits, Z32)

    def append_table(self, table: TrainedTable, thresholds: Mapping[int, FloatArray]) -> ModelPart:
        """Return the part with one more table; `thresholds` are those of our features' buckets."""
        tests = zip(table.features.tolist(), table.buckets.tolist(), strict=True)
        threshold = [_threshold(thresholds.get(j), bucket) for j, bucket in tests]
        gains = self.gains
        if gains is not None and table.gains is not None and self.label_unit is not None:
            gains = np.concatenate([gains, table.gains[None] * self.label_unit.scale**2])
        return replace(
            self,
            feature=np.concatenate([self.feature, table.features[None]]),
            bucket=np.concatenate([self.bucket, table.buckets[None]]),
            threshold=np.concatenate([self.threshold, [threshold]]),
            leaf_shares=np.concatenate([self.leaf_shares, table.leaf_values.part[None]]),
            gains=gains,
        )

    def truncate(self, n_tables: int) -> ModelPart:
        """Return the part with its first tables alone."""
        return replace(
            self,
            feature=self.feature[:n_tables],
            bucket=self.bucket[:n_tables],
            threshold=self.threshold[:n_tables],
            leaf_shares=self.leaf_shares[:n_tables],
            gains=None if self.gains is None else self.gains[:n_tables],
        )

    def find_split_owners(self, parties: Sequence[str]) -> IndexArray:
        """Return who owns each test, by position among the parties: (tables, depth)."""
        owners = np.array([parties.index(f.owner) for f in self.features], dtype=np.intp)
        return owners[self.feature]

    def find_rows_going_right(self, columns: FloatArray) -> BucketArray:
        """Return 1 where samples fail our own tests, 0 elsewhere: (tables, depth, n_samples).

        `columns` are our own features, (own features, n_samples). A missing value passes.
        """
        own = [j for j, f in enumerate(self.features) if f.owner == self.party]
        if len(columns) != len(own):
            raise ModelError(f"{self.party}: {len(columns)} columns for {len(own)} features")
        by_feature = dict(zip(own, columns, strict=True))
        result = np.zeros((*self.feature.shape, columns.shape[1]), dtype=np.uint8)
        for table, level in np.argwhere(np.isin(self.feature, own)):
            column = by_feature[self.feature[table, level]]
            result[table, level] = column >= self.threshold[table, level]
        return result


def _threshold(borders: FloatArray | None, bucket: int) -> float:
    """Return a test's threshold: the last bucket has none, and all know where it is tested."""
    if bucket < 0:
        return float("nan")
    return float("inf") if borders is None or bucket == len(borders) else float(borders[bucket])


def join_parts(parts: Sequence[ModelPart]) -> Model:
    """Put all parts of a model together."""
    first = parts[0]
    units = [part.label_unit for part in parts if part.label_unit is not None]
    if len(units) != 1:
        raise ModelError(f"{len(units)} of the parts are the active participant's; it must be one")
    for part in parts[1:]:
        same = part.features == first.features and np.array_equal(part.feature, first.feature)
        if not same:
            raise ModelError(f"the parts of {first.party} and {part.party} are of different models")
    passing = [part.explanation.left_fraction for part in parts if part.explanation is not None]
    found = build_model(
        first,
        np.max([part.bucket for part in parts], axis=0),
        np.fmax.reduce([part.threshold for part in parts]),
        np.add.reduce([part.leaf_shares for part in parts], dtype=np.uint32),
        units[0],
    )
    return replace(found, left_fraction=np.fmax.reduce(passing) if passing else None)


def build_model(
    part: ModelPart,
    bucket: IndexArray,
    threshold: FloatArray,
    leaves: npt.NDArray[np.uint32],
    unit: LabelUnit,
) -> Model:
    """Return the model of a part, once the buckets, thresholds and leaves of all are known."""
    return Model(
        task=part.task,
        features=part.features,
        base_score=np.array(unit.initial_scores),
        feature=part.feature,
        bucket=bucket,
        threshold=threshold,
        leaf_values=part.encoding.decode(leaves) * unit.scale,
    )
