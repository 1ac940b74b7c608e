"""One participant's part of a model: the thresholds of its features, its shares of the leaf values.

Prediction requires the parts of all participants. `join_parts` is for simulations and tests, where
one machine holds all parts anyway. If all participants agree that one of them receives the model,
`federation.prediction.export` sends it only the values that its part lacks.
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
"""The most fraction bits of revealed scores: predictions need not reveal more."""
GUARD_BITS = 6
"""Fraction bits of leaf values beyond those of revealed predictions. The sum of the leaf values is
rounded once, exactly; the rounding errors of the single leaf values are small against that."""


@dataclass(frozen=True, repr=False)
class LabelUnit:
    """The initial scores and the unit of scores, which only the label holder knows.

    If the objective normalises the label, the shared label is (label - start) / scale.
    """

    initial_scores: tuple[float, ...] = (0.0,)
    """The scores before the first table, one for each output."""
    scale: float = 1.0

    @classmethod
    def from_label(
        cls,
        label: FloatArray,
        start: float,
        stretch: float = 1.0,
        sample_weight: FloatArray | None = None,
    ) -> LabelUnit:
        """Return a unit in which a label is at most 4, and its root mean square at most 1/2.

        The label in this unit is then multiplied by the `stretch` of the protocol. The scale is
        rounded up to four significant bits, so that it does not reveal the root mean square.
        """
        deviation = label - start
        largest = float(np.max(np.abs(deviation)))
        if not largest:
            return cls((start,))
        # Relative to the largest deviation, whose square could overflow.
        mean = np.average((deviation / largest) ** 2, weights=sample_weight)
        typical = largest * float(np.sqrt(mean))
        mantissa, exponent = math.frexp(max(2 * typical, largest / 4))
        return cls((start,), math.ldexp(math.ceil(16 * mantissa) / 16, exponent) / stretch)

    def normalise(self, label: FloatArray) -> FloatArray:
        """Return the label in this unit, as it is shared."""
        result: FloatArray = (label - self.initial_scores[0]) / self.scale
        return result

    def restore(self, score: FloatArray) -> FloatArray:
        """Return scores, (K, N), in the label's unit, including the initial scores."""
        result: FloatArray = score * self.scale + np.array(self.initial_scores)[:, None]
        return result


@dataclass(frozen=True, eq=False, repr=False)
class PartExplanation:
    """One participant's part of the data that explain scores."""

    left_fraction: FloatArray
    """The fraction of training rows going left at each split on a local feature; NaN for the splits
    of other participants: (tables, depth)."""
    contributions: npt.NDArray[np.uint32]
    """Local shares of the contribution of each level's feature at every leaf, encoded like leaf
    values: (tables, outputs, depth, 2^depth)."""
    means: npt.NDArray[np.uint32]
    """Local shares of the tables' means over the training rows: (tables, outputs)."""


@dataclass(frozen=True, eq=False, repr=False)
class ModelPart:
    """One participant's part of a model."""

    protocol: str
    task: str
    features: tuple[Feature, ...]
    """All features of the federation, with their owners."""
    party: str
    feature: IndexArray
    """The index in `features` of the feature that each level splits on: (tables, depth)."""
    bucket: IndexArray
    """The last bucket that goes left, for splits on local features and levels without a split; -1
    for the splits of other participants: (tables, depth)."""
    threshold: FloatArray
    """The thresholds of splits on local features; infinity for levels without a split; NaN for the
    splits of other participants: (tables, depth)."""
    leaf_shares: npt.NDArray[np.uint32]
    """Local shares of the leaf values, over Z32: (tables, outputs, 2^depth)."""
    fraction_bits: int
    """Fraction bits of the leaf values: `GUARD_BITS` more than those of revealed predictions."""
    label_unit: LabelUnit | None
    """The unit of the label, at the label holder."""
    explanation: PartExplanation | None = None
    """The data that explain scores, if all participants agreed to that."""
    gains: FloatArray | None = None
    """The decrease of the loss by each level, to second order and before the learning rate: at the
    label holder, if all participants agreed to that. (tables, depth), in squared units of the
    label."""

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
        shape = (0, plan.params.depth)
        return cls(
            protocol=protocol,
            task=plan.params.task,
            features=features,
            party=party,
            feature=np.empty(shape, dtype=np.intp),
            bucket=np.empty(shape, dtype=np.intp),
            threshold=np.empty(shape),
            leaf_shares=np.empty(
                (0, plan.objective.n_outputs, plan.params.n_leaves), dtype=np.uint32
            ),
            fraction_bits=fraction_bits,
            label_unit=unit,
            gains=np.empty(shape) if plan.reveal_gain and unit is not None else None,
        )

    @property
    def n_tables(self) -> int:
        """The number of tables."""
        return int(self.feature.shape[0])

    @property
    def depth(self) -> int:
        """The number of splits of a table."""
        return int(self.feature.shape[1])

    @property
    def local_features(self) -> tuple[str, ...]:
        """The names of the local features, in the order of the columns for prediction."""
        return tuple(f.name for f in self.features if f.owner == self.party)

    @property
    def encoding(self) -> FixedPoint:
        """The encoding of leaf values and scores."""
        return FixedPoint(self.fraction_bits, Z32)

    def append_table(self, table: TrainedTable, thresholds: Mapping[int, FloatArray]) -> ModelPart:
        """Return the part with one more table; `thresholds` are those of the local features."""
        splits = zip(table.features.tolist(), table.buckets.tolist(), strict=True)
        threshold = [_get_threshold(thresholds.get(j), bucket) for j, bucket in splits]
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
        """Return the part with only its first tables."""
        return replace(
            self,
            feature=self.feature[:n_tables],
            bucket=self.bucket[:n_tables],
            threshold=self.threshold[:n_tables],
            leaf_shares=self.leaf_shares[:n_tables],
            gains=None if self.gains is None else self.gains[:n_tables],
        )

    def find_split_owners(self, parties: Sequence[str]) -> IndexArray:
        """Return the owner of each split, as an index of `parties`: (tables, depth)."""
        owners = np.array([parties.index(f.owner) for f in self.features], dtype=np.intp)
        return owners[self.feature]

    def find_rows_going_right(self, columns: FloatArray) -> BucketArray:
        """Return 1 if a sample goes right at a split on a local feature, 0 otherwise.

        The shape is (tables, depth, n_samples). `columns` are the local features, (local features,
        n_samples). Missing values go left.
        """
        local = [j for j, f in enumerate(self.features) if f.owner == self.party]
        if len(columns) != len(local):
            raise ModelError(f"{self.party}: {len(columns)} columns for {len(local)} features")
        by_feature = dict(zip(local, columns, strict=True))
        result = np.zeros((*self.feature.shape, columns.shape[1]), dtype=np.uint8)
        for table, level in np.argwhere(np.isin(self.feature, local)):
            column = by_feature[self.feature[table, level]]
            result[table, level] = column >= self.threshold[table, level]
        return result


def _get_threshold(thresholds: FloatArray | None, bucket: int) -> float:
    """Return the threshold of a split: NaN if unknown, infinity if all rows go left."""
    if bucket < 0:
        return float("nan")
    if thresholds is None or bucket == len(thresholds):
        return float("inf")
    return float(thresholds[bucket])


def join_parts(parts: Sequence[ModelPart]) -> Model:
    """Return the model of all parts."""
    first = parts[0]
    units = [part.label_unit for part in parts if part.label_unit is not None]
    if len(units) != 1:
        raise ModelError(f"{len(units)} of the parts are the active participant's; it must be one")
    for part in parts[1:]:
        same = part.features == first.features and np.array_equal(part.feature, first.feature)
        if not same:
            raise ModelError(f"the parts of {first.party} and {part.party} are of different models")
    left_fractions = [
        part.explanation.left_fraction for part in parts if part.explanation is not None
    ]
    model = build_model(
        first,
        np.max([part.bucket for part in parts], axis=0),
        np.fmax.reduce([part.threshold for part in parts]),
        np.add.reduce([part.leaf_shares for part in parts], dtype=np.uint32),
        units[0],
    )
    return replace(model, left_fraction=np.fmax.reduce(left_fractions) if left_fractions else None)


def build_model(
    part: ModelPart,
    bucket: IndexArray,
    threshold: FloatArray,
    leaves: npt.NDArray[np.uint32],
    unit: LabelUnit,
) -> Model:
    """Return the model of a part and of all participants' buckets, thresholds and leaf values."""
    return Model(
        task=part.task,
        features=part.features,
        base_score=np.array(unit.initial_scores),
        feature=part.feature,
        bucket=bucket,
        threshold=threshold,
        leaf_values=part.encoding.decode(leaves) * unit.scale,
    )
