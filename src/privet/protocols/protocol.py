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
"""Stores the local share of the scores after a number of tables, from which training can resume."""


class ShardWorker(ABC):
    """The worker that computes on the rows of one shard."""

    @abstractmethod
    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Resume from the scores at the end of an earlier training run."""

    @abstractmethod
    def execute(self, command: Command) -> list[Share]:
        """Execute a command and return the requested shares."""

    @abstractmethod
    def end_table(self) -> None:
        """Leave the step of a table after its last command."""


@dataclass(frozen=True, repr=False)
class ProtocolInput:
    """The inputs of one participant to a training run; those of the dealer are empty."""

    buckets: dict[int, BucketArray] = field(default_factory=dict)
    """The bucket of every row in each local feature, by feature."""
    target: FloatArray | None = None
    """At the label holder, the target of each output: (K, n_rows)."""
    sample_weight: FloatArray | None = None
    """At the label holder, the weights of samples in multiples of their mean: (n_samples,)."""
    initial_scores: FloatArray | None = None
    """At the label holder, the initial scores of all samples: (K,)."""
    min_gain: float | None = None
    """At the label holder, the least gain of a split, in the unit that its label is shared in."""
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
"""The settings that not every protocol supports: the attribute of the protocol that says whether it
does, and the words of the error if it does not."""


@dataclass(frozen=True)
class TrainedTable:
    """The part of a trained table that one participant has. The dealer has its shapes."""

    features: IndexArray
    """The feature of each level's split: (depth,)."""
    buckets: IndexArray
    """The last bucket that goes left, for splits of local features; -1 for the others: (depth,).

    For a level that does not split, all participants have the last bucket of the first feature."""
    leaf_values: Share
    """The local share of the leaf values: (K, 2^depth)."""
    loss: Share | None = None
    """The local share of the mean squared residual before this table, if it is to be revealed."""
    gains: FloatArray | None = None
    """At the label holder, the gain of each level in the unit that the label is shared in, if gains
    are revealed: (depth,)."""


@dataclass(frozen=True)
class AppliedSplits:
    """The splits of some tables that one participant knows, applied to some samples."""

    shape: tuple[int, int, int]
    """(tables, depth, n_samples)."""
    owners: IndexArray | None
    """The owner of each split, (tables, depth); None at the dealer, which does not know it."""
    goes_right: BucketArray | None
    """1 where a sample goes right in a local split, (tables, depth, n_samples); None at the
    dealer."""


@dataclass(frozen=True)
class SharedContributions:
    """Shares of feature contributions to scores, by table and leaf. The dealer has shapes."""

    contributions: Share
    """The contribution of each level's feature, at every leaf: (tables, K, depth, 2^depth)."""
    means: Share
    """The mean of each table over all training rows: (tables, K)."""


@dataclass(frozen=True)
class SplitGroups:
    """Groups of splits whose contributions are added up."""

    count: int
    of_splits: IndexArray | None
    """The group of each split, (tables, depth); None at the dealer, which does not know it."""


RIGHT_FRACTION_BITS = 24
"""Fraction bits of the fraction of rows that go right."""


class SecureProtocol(ABC):
    """One training run, at one participant or the dealer."""

    encoding: ClassVar[FixedPoint]
    """The encoding of leaf values, over Z64, and of scores."""
    supports_training_loss: ClassVar[bool] = False
    """Whether it can reveal the training loss."""
    supports_weights: ClassVar[bool] = False
    """Whether samples may have weights."""
    supports_validation: ClassVar[bool] = False
    """Whether it can compute the loss on validation rows."""
    supports_monotone: ClassVar[bool] = False
    """Whether it can enforce monotone constraints."""
    supports_gain: ClassVar[bool] = False
    """Whether it can reveal the gains of levels."""
    has_single_output: ClassVar[bool] = False
    """Whether it learns only one score a sample: of a regression or of two classes."""
    supports_explanations: ClassVar[bool] = False
    """Whether it can derive feature contributions to scores."""
    supports_replicated_dealers: ClassVar[bool] = False
    """Whether it can run with three dealers, none of which knows a mask."""
    supports_shards: ClassVar[bool] = False
    """Whether rows can be in shards, each with its own worker group."""
    supports_cached_indicators: ClassVar[bool] = False
    """Whether it publishes masked indicators, which can be kept for another training."""
    cut_disclosures: ClassVar[tuple[CutDisclosure, ...]] = ("hidden",)
    """The supported disclosures of cut counts; the first is the default."""

    def __init__(
        self,
        runtime: Runtime,
        plan: Plan,
        data: ProtocolInput,
        workers: Sequence[WorkerHandle] = (),
    ) -> None:
        """Set up with local inputs, and with workers if the plan has shards."""
        self.runtime = runtime
        self.plan = plan
        self.data = data

    @classmethod
    def settle_plan(cls, plan: Plan, n_parties: int) -> Plan:
        """Return the plan with its masks chosen; raise InputError if it is not supported."""
        plan = cls.choose_masks(plan, n_parties)
        cls.check_plan(plan)
        return plan

    @classmethod
    def choose_masks(cls, plan: Plan, n_parties: int) -> Plan:
        """Return the plan with its masks, which the protocol chooses if `masks = "auto"`."""
        if plan.params.masks == "lattice":
            raise ParameterError(
                f"masks: {cls.__name__} has uniform ones alone: leave it out, or use another "
                "protocol"
            )
        return plan

    @classmethod
    @abstractmethod
    def check_plan(cls, plan: Plan) -> None:
        """Raise InputError if the protocol does not support the plan."""

    @classmethod
    @abstractmethod
    def estimate_memory(cls, plan: Plan) -> int:
        """Return an estimate of the memory that a participant needs, in bytes."""

    @classmethod
    def compute_label_stretch(cls, plan: Plan) -> Fraction:
        """Return the factor on a normalised label before it is shared."""
        return Fraction(1)

    @classmethod
    def choose_publication_format(cls, plan: Plan) -> PublicationFormat:
        """Return how masked indicators are published."""
        raise AssertionError(f"{cls.__name__} publishes no indicators")

    @classmethod
    def count_multiplications(cls, plan: Plan) -> int:
        """Return the number of multiplications of a participant's matrix products for a table."""
        return 0

    @classmethod
    @abstractmethod
    def list_public_constants(cls, plan: Plan) -> dict[str, object]:
        """Return all public numbers that multiply or scale a share or determine a shape.

        They are integers, strings and lists of these, by purpose. All participants compare digests
        of them before training: a single deviating number would turn every result into noise.
        """

    @abstractmethod
    def setup(self) -> None:
        """Share the values that are the same for all tables."""

    @abstractmethod
    def train_table(self, number: int) -> TrainedTable:
        """Train table `number`, from 0, and add its leaf values to the samples' scores."""

    @abstractmethod
    def snapshot_scores(self) -> npt.NDArray[np.uint64]:
        """Return the local share of the scores of all rows, (K, n_rows), to resume from.

        With shards each worker stores the scores of its rows, and the result contains none.
        """

    @abstractmethod
    def restore_scores(self, scores: npt.NDArray[np.uint64]) -> None:
        """Resume, after `setup`, from the scores at the end of an earlier training run."""

    def decode_loss(self, revealed: RingArray) -> float:
        """Decode a table's revealed loss: the mean squared residual."""
        raise AssertionError(f"{type(self).__name__} reveals no loss")

    def compute_validation_loss(self) -> Share:
        """Return a share of the mean loss on validation rows, rounded exactly: (1,)."""
        raise AssertionError(f"{type(self).__name__} has no validation rows")

    def decode_validation_loss(self, revealed: RingArray) -> float:
        """Decode a revealed mean loss on validation rows, in the unit of the shared label."""
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
        """Return the worker for one shard, whose rows are in `data`."""
        raise AssertionError(f"{cls.__name__} has no workers")

    @classmethod
    @abstractmethod
    def infer(cls, runtime: Runtime, splits: AppliedSplits, leaf_values: Share) -> Share:
        """Return a share of the scores, (K, N), that leaf values (tables, K, 2^depth) add up to.

        The scores are over the ring of the leaf values.
        """

    @classmethod
    def derive_contributions(
        cls,
        runtime: Runtime,
        leaf_values: Share,
        right_fractions: Share,
        features: IndexArray | None,
    ) -> SharedContributions:
        """Derive the contributions of each split's feature from leaf values, (tables, K, 2^depth).

        `right_fractions` are the fractions of rows that go right, given the outcomes of earlier
        levels, with RIGHT_FRACTION_BITS over Z32: (tables, 2^depth - 1), level by level. `features`
        are those of the splits, (tables, depth); None at the dealer, which does not know them.
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
        """Return the result of `infer`, and the contributions of groups of splits: (G, K, N).

        `contributions` are those of `SharedContributions`.
        """
        raise AssertionError(f"{cls.__name__} explains nothing")

    @classmethod
    def sum_absolute_contributions(cls, runtime: Runtime, contributions: Share) -> Share:
        """Return shares of the row sums of absolute contributions, (G, K, N): (G, K) over Z64."""
        raise AssertionError(f"{cls.__name__} explains nothing")

    @classmethod
    def reveal_mean_contributions(
        cls, runtime: Runtime, total: Share, n_samples: int, bits: tuple[int, int], recipient: int
    ) -> FloatArray | None:
        """Reveal means, (G, K), of sums over `n_samples` rows to one participant.

        `bits` are the fraction bits of the sums and of the means, which can have one more.
        """
        raise AssertionError(f"{cls.__name__} explains nothing")


def require_capabilities(
    protocol_type: type[SecureProtocol],
    protocol: str,
    requested: Mapping[str, object],
    prefix: str = "",
) -> None:
    """Raise ParameterError for a requested key of CAPABILITIES that the protocol does not support.

    In the message `prefix` precedes the key.
    """
    for key, is_requested in requested.items():
        capability, lack = CAPABILITIES[key]
        if is_requested and not getattr(protocol_type, capability):
            raise ParameterError(f"{prefix}{key}: the protocol {protocol} {lack}; use masked")


def share_initial_scores(
    runtime: Runtime,
    initial_scores: FloatArray | None,
    encoding: FixedPoint,
    shape: tuple[int, int],
    ring: Ring,
) -> Share:
    """Return a share of the initial scores (K, N), the same for all samples, from (K,).

    Nothing is sent: only the label holder knows the values. The share must be masked before it is
    opened.
    """
    encoded = None
    if initial_scores is not None:
        encoded = np.broadcast_to(
            encoding.encode(initial_scores).astype(ring.dtype)[:, None], shape
        )
    return share_trivially(runtime, encoded, shape, ring)


def share_target(
    runtime: Runtime,
    active: int,
    target: FloatArray | None,
    encoding: FixedPoint,
    shape: tuple[int, int],
    ring: Ring,
) -> Share:
    """Share the label holder's targets for scores (K, N): those of its first N rows."""
    encoded = None
    if target is not None:
        encoded = encoding.encode(target[:, : shape[1]]).astype(ring.dtype)
    return runtime.share(encoded, active, shape, ring)
