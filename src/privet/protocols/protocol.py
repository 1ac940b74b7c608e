"""The interface of a secure protocol, and the first steps of every training run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privet.arithmetic.fixed_point import FixedPoint
from privet.arithmetic.rings import Ring, RingArray
from privet.arithmetic.shares import Share
from privet.arrays import BucketArray, FloatArray, IndexArray
from privet.errors import ParameterError
from privet.gates.masked.indicators import IndicatorCache, PublicationFormat
from privet.gates.masked.routing import share_trivially
from privet.runtime.runtime import Runtime
from privet.runtime.workers import Command, WorkerHandle
from privet.spec.plan import CutDisclosure, Plan, Shard

ScoresCallback = Callable[[int, npt.NDArray[np.uint64]], None]
"""Keeps our share of the scores after so many tables, to go on from there."""


class ShardWorker(ABC):
    """The rows of one shard, and whoever works on them."""

    @abstractmethod
    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on with the scores that an earlier training ended with."""

    @abstractmethod
    def execute(self, command: Command) -> list[Share]:
        """Do something, and return the shares that were asked for."""

    @abstractmethod
    def end_table(self) -> None:
        """Leave the step of a table, when there is no more to do."""


@dataclass(frozen=True, repr=False)
class ProtocolInput:
    """What one participant brings to a training; the dealer brings nothing."""

    buckets: dict[int, BucketArray] = field(default_factory=dict)
    """The bucket of every row in each of its own features, by feature."""
    target: FloatArray | None = None
    """At the active participant, what its label makes of the outputs: (K, n_rows)."""
    sample_weight: FloatArray | None = None
    """There, where samples have weights: (n_samples,), in means."""
    initial_scores: FloatArray | None = None
    """At the active participant, the scores that all samples start from: (K,)."""
    min_gain: float | None = None
    """At the active participant, what a test must gain, in the unit that its label is shared in."""
    indicator_cache: IndicatorCache | None = None
    """Where masked indicators are kept, if they are."""


CAPABILITIES = {
    "reveal_loss": ("supports_training_loss", "has no loss"),
    "validation": ("supports_validation", "has no loss"),
    "reveal_gain": ("supports_gain", "tells no gains"),
    "weighted": ("supports_weights", "has no weights"),
    "explain": ("supports_explanations", "derives no contributions"),
    "monotone": ("supports_monotone", "has no constraints"),
    "keep_indicators": ("supports_cached_indicators", "publishes none"),
    "shards": ("supports_shards", "has no workers"),
}
"""What can be asked of a training that not every suite does: what it says of that, and what is said
of one that does not."""


@dataclass(frozen=True)
class TrainedTable:
    """What one participant has of a trained table. The dealer has its shapes."""

    features: IndexArray
    """Which feature each level tests: (depth,)."""
    buckets: IndexArray
    """The last bucket that passes, for tests of our own features; -1 for the others: (depth,).

    Where a level tests nothing, the first feature's last bucket, at everybody."""
    leaf_values: Share
    """Our share of the leaf values: (K, 2^depth)."""
    loss: Share | None = None
    """Our share of the mean squared residual before this table, if all agreed to reveal it."""
    gains: FloatArray | None = None
    """At the label's holder, what each level gains, in the unit that the label is shared in, if all
    agreed to reveal that: (depth,)."""


@dataclass(frozen=True)
class AppliedSplits:
    """The tests of some tables, as one participant knows them, applied to some samples."""

    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    owners: IndexArray | None
    """Who owns each test, (tables, depth); None at the dealer, which does not know."""
    goes_right: BucketArray | None
    """1 where a sample fails one of our own tests, (tables, depth, n_samples); None at the
    dealer."""


@dataclass(frozen=True)
class SharedContributions:
    """Shares of what features contribute to scores, by table and leaf. The dealer has shapes."""

    contributions: Share
    """Of each level's feature, at every leaf: (tables, K, depth, 2^depth)."""
    means: Share
    """Of each table, over all training rows: (tables, K)."""


@dataclass(frozen=True)
class SplitGroups:
    """Groups of tests, by what their contributions are added up for."""

    count: int
    of_splits: IndexArray | None
    """Which group each test is in, (tables, depth); None at the dealer, which does not know."""


RIGHT_FRACTION_BITS = 24
"""Fraction bits of the chance that a test fails."""


class SecureProtocol(ABC):
    """One training, as one participant or the dealer takes part in it."""

    encoding: ClassVar[FixedPoint]
    """How leaf values, over Z64, and scores are encoded."""
    supports_training_loss: ClassVar[bool] = False
    """Whether it can reveal the training loss."""
    supports_weights: ClassVar[bool] = False
    """Whether samples may have weights."""
    supports_validation: ClassVar[bool] = False
    """Whether it can compute the loss on validation rows."""
    supports_monotone: ClassVar[bool] = False
    """Whether scores can be kept from falling or rising as features grow."""
    supports_gain: ClassVar[bool] = False
    """Whether it can reveal what levels gain."""
    has_single_output: ClassVar[bool] = False
    """Whether it learns one score a sample alone: a number, or one of two classes."""
    supports_explanations: ClassVar[bool] = False
    """Whether it can derive what features contribute to scores."""
    supports_replicated_dealers: ClassVar[bool] = False
    """Whether three dealers can deal for it, none of whom knows a mask."""
    supports_shards: ClassVar[bool] = False
    """Whether rows can be in shards, each with workers of its own."""
    supports_cached_indicators: ClassVar[bool] = False
    """Whether it publishes masked indicators, which can be kept for another training."""
    cut_disclosures: ClassVar[tuple[CutDisclosure, ...]] = ("hidden",)
    """What may be told of the numbers of cuts; the first, unless a job says otherwise."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        data: ProtocolInput,
        workers: Sequence[WorkerHandle] = (),
    ) -> None:
        """Take part with some data; with workers, if the plan has rows in shards."""
        self.runtime = runtime
        self.plan = plan
        self.data = data

    @classmethod
    def settle_plan(cls, plan: Plan, n_parties: int) -> Plan:
        """Return a plan that has masks; raise an InputError if the protocol cannot do it."""
        plan = cls.choose_masks(plan, n_parties)
        cls.check_plan(plan)
        return plan

    @classmethod
    def choose_masks(cls, plan: Plan, n_parties: int) -> Plan:
        """Return the plan with its masks, where terms leave them to the protocol."""
        if plan.params.masks == "lattice":
            raise ParameterError(
                f"masks: {cls.__name__} has uniform ones alone: leave it out, or use another "
                "protocol"
            )
        return plan

    @classmethod
    @abstractmethod
    def check_plan(cls, plan: Plan) -> None:
        """Raise an InputError if the protocol cannot do what is planned."""

    @classmethod
    @abstractmethod
    def estimate_memory(cls, plan: Plan) -> int:
        """Return about how many bytes of memory a participant needs."""

    @classmethod
    def compute_label_stretch(cls, plan: Plan) -> Fraction:
        """Return what a label in a unit of its own is multiplied with, before it is shared."""
        return Fraction(1)

    @classmethod
    def choose_publication_format(cls, plan: Plan) -> PublicationFormat:
        """Return how masked indicators are published."""
        raise AssertionError(f"{cls.__name__} publishes no indicators")

    @classmethod
    def count_multiplications(cls, plan: Plan) -> int:
        """Return how many products of numbers a participant's dense work on a table takes."""
        return 0

    @classmethod
    @abstractmethod
    def list_public_constants(cls, plan: Plan) -> dict[str, object]:
        """Return every public number that multiplies a share, scales it or decides a shape.

        By what they are for, as integers, strings and lists of these: all compare digests of them
        before they start, since one that differs at one participant makes noise of everything.
        """

    @abstractmethod
    def setup(self) -> None:
        """Share what stays the same for all tables."""

    @abstractmethod
    def train_table(self, number: int) -> TrainedTable:
        """Train one more table after so many, and add its leaf values to the samples' scores."""

    @abstractmethod
    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Return our share of the scores of all rows, (K, n_rows), to go on from later.

        Those of rows that workers work on are kept by these, and are not among them.
        """

    @abstractmethod
    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Go on, after `setup`, with the scores that an earlier training ended with."""

    def decode_loss(self, revealed: RingArray) -> float:
        """Return the mean squared residual that a table's revealed loss stands for."""
        raise AssertionError(f"{type(self).__name__} reveals no loss")

    def compute_validation_loss(self) -> Share:
        """Return a share of the mean loss on validation rows, rounded exactly: (1,)."""
        raise AssertionError(f"{type(self).__name__} has no validation rows")

    def decode_validation_loss(self, revealed: RingArray) -> float:
        """Return the mean loss that such a number stands for, in the unit of what is shared."""
        raise AssertionError(f"{type(self).__name__} has no validation rows")

    @classmethod
    def create_shard_worker(
        cls,
        runtime: Runtime,
        plan: Plan,
        shard: Shard,
        data: ProtocolInput,
        on_scores: ScoresCallback | None,
    ) -> ShardWorker:
        """Return whoever works on the rows of one shard, which `data` are, for its head."""
        raise AssertionError(f"{cls.__name__} has no workers")

    @classmethod
    @abstractmethod
    def infer(cls, runtime: Runtime, splits: AppliedSplits, leaf_values: Share) -> Share:
        """Return a share of what tables, (tables, K, 2^depth), add to the scores: (K, N).

        In the ring that the leaf values are in.
        """

    @classmethod
    def derive_contributions(
        cls,
        runtime: Runtime,
        leaf_values: Share,
        right_fractions: Share,
        features: IndexArray | None,
    ) -> SharedContributions:
        """Derive what the feature of each test contributes, from leaf values: (tables, K, 2^depth).

        `right_fractions` are those of failing a test, given the outcomes of earlier levels, with
        RIGHT_FRACTION_BITS over Z32: (tables, 2^depth - 1), level by level. `features` are those
        tested, (tables, depth); None at the dealer, which does not know.
        """
        raise AssertionError(f"{cls.__name__} derives no contributions")

    @classmethod
    def infer_with_contributions(
        cls,
        runtime: Runtime,
        splits: AppliedSplits,
        leaf_values: Share,
        contributions: Share,
        groups: SplitGroups,
    ) -> tuple[Share, Share]:
        """Return what `infer` returns, and what groups of tests contribute to it: (G, K, N).

        `contributions` are those of `SharedContributions`.
        """
        raise AssertionError(f"{cls.__name__} explains nothing")

    @classmethod
    def sum_absolute_contributions(cls, runtime: Runtime, contributions: Share) -> Share:
        """Return shares of sums of absolute contributions, (G, K) over Z64: of (G, K, N)."""
        raise AssertionError(f"{cls.__name__} explains nothing")

    @classmethod
    def reveal_mean_contributions(
        cls, runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], recipient: int
    ) -> FloatArray | None:
        """Reveal means to one participant, (G, K), from sums over so many samples.

        `bits` are fraction bits: those of sums, and those that means keep, or one more.
        """
        raise AssertionError(f"{cls.__name__} explains nothing")


def require_capabilities(
    protocol_type: type[SecureProtocol],
    protocol: str,
    requested: Mapping[str, object],
    where: str = "",
) -> None:
    """Raise ParameterError for what is asked, by its key among ABILITIES, and a suite does not."""
    for key, wanted in requested.items():
        ability, lack = CAPABILITIES[key]
        if wanted and not getattr(protocol_type, ability):
            raise ParameterError(f"{where}{key}: the protocol {protocol} {lack}; use masked")


def share_initial_scores(
    runtime: Runtime,
    initial_scores: FloatArray | None,
    encoding: FixedPoint,
    shape: tuple[int, int],
    ring: Ring,
) -> Share:
    """Return a share of scores (K, N) that all start alike, from what the label's holder has: (K,).

    Nobody else knows where, and nothing is sent. To be masked.
    """
    own = None
    if initial_scores is not None:
        own = np.broadcast_to(encoding.encode(initial_scores).astype(ring.dtype)[:, None], shape)
    return share_trivially(runtime, own, shape, ring)


def share_target(
    runtime: Runtime,
    active: int,
    target: FloatArray | None,
    encoding: FixedPoint,
    shape: tuple[int, int],
    ring: Ring,
) -> Share:
    """Share what scores (K, N) are compared with, which the label's holder has: its first rows."""
    encoded = None
    if target is not None:
        encoded = encoding.encode(target[:, : shape[1]]).astype(ring.dtype)
    return runtime.share(encoded, active, shape, ring)
