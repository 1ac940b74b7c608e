"""Which indicators of an earlier training are used again: agreed on before each training.

Each participant offers a name: that of the masks under which it published, before, just what it
would publish now. The others answer whether they have it all. If everybody has, nothing is sent.
Otherwise, masks and name are new: an owner that published something else under masks that were used
before would show in which rows the two differ, and their buckets.

Owners tell the dealer the seeds of their masks in every training, so the dealer keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

from pydantic import Field

from privet.arithmetic.prg import SEED_BYTES, derive_seed
from privet.arithmetic.rings import Ring, RingArray
from privet.boosting.binning import BucketedColumns
from privet.boosting.training import IndicatorCacheConfig, TrainingSpec
from privet.data.frame import Ids
from privet.errors import ParameterError, PeerMisbehavedError
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.session.session import parse_message
from privet.filesystem import check_free_space, make_folder
from privet.gates.masked.indicators import IndicatorCache
from privet.runtime.opening import Payload
from privet.runtime.runtime import Shape
from privet.schema import StrictSchema
from privet.spec.plan import Plan
from privet.storage.indicators import NAME_PATTERN, KeptIndicators, Masks, indicator_digest
from privet.storage.json_records import MAX_FILE_BYTES
from privet.transport.channel import Channel, exchange_messages, receive_message, send_message

_Name = Annotated[str, Field(pattern=NAME_PATTERN)]
_USED_AGAIN, _NEW = b"\x01", b"\x00"


class Offer(StrictSchema):
    """What a participant calls its indicators."""

    kept: _Name | None
    """As it published them before, if it did and they are the same now."""
    new: _Name
    """If it publishes them now."""


class Answer(StrictSchema):
    """Which of the others' offers a participant has."""

    have: Annotated[list[_Name], Field(max_length=1000)]


class _Names(IndicatorCache):
    """The files of what others published, by their names in this training."""

    def __init__(self, files: KeptIndicators, names: Sequence[str]) -> None:
        self._files = files
        self._names = names

    def load(self, owner: int, position: int, shape: Shape, ring: Ring) -> RingArray:
        """Read a feature's rows."""
        cuts, samples = shape
        return self._files.load(self._names[owner], position, (cuts, samples), ring)

    def save(self, owner: int, position: int, rows: RingArray, ring: Ring) -> None:
        """Write a feature's rows."""
        self._files.save(self._names[owner], position, rows, ring)


class Keeper:
    """A participant's kept indicators, in one training."""

    def __init__(
        self,
        folder: str,
        columns: BucketedColumns,
        ids: Ids,
        tell: EventHandler,
        dealers: Mapping[str, str],
    ) -> None:
        """`dealers` are their names and fingerprints."""
        self._dealers = dict(dealers)
        self._folder = make_folder(folder)
        self._files = KeptIndicators(self._folder)
        self._columns = columns
        self._ids = ids
        self._tell = tell

    def agree(
        self, channel: Channel, federation: TrainingSpec, samples: int
    ) -> tuple[Plan, IndicatorCacheConfig]:
        """Find out whose indicators all have, and tell dealers the seed of our masks.

        Three dealers are told two of its three parts each.
        """
        plan = federation.make_plan(samples, ())
        published, names = (
            federation.protocol_type.choose_publication_format(plan),
            federation.parties,
        )
        ring = published.ring
        index = names.index(channel.name)
        shapes = [
            [(plan.cut_counts[j], published.n_columns) for j in plan.ownership.list_features(k)]
            for k in range(len(names))
        ]
        self._check_files(shapes, index, ring)
        cuts = [count for count, _ in shapes[index]]
        trained = self._columns.first(plan.n_samples)
        known_by = [f"{name} {fingerprint}" for name, fingerprint in self._dealers.items()]
        digest = indicator_digest(
            trained, self._ids, cuts, ring, names, known_by, published.lattice_seed
        )
        masks, new = self._files.masks(digest), Masks.fresh()
        ours = Offer(kept=None if masks is None else masks.name, new=new.name)
        offers = _told(channel, names, ours)
        have = self._have([offer.kept for offer in offers], shapes, ring, names, index)
        answers = _told(channel, names, Answer(have=have))
        kept = tuple(
            k
            for k, offer in enumerate(offers)
            if shapes[k] and all(offer.kept in a.have for j, a in enumerate(answers) if j != k)
        )
        if masks is None or index not in kept:
            masks = new
            self._files.keep(masks, digest)
        seeds = _parts(masks.seed, len(self._dealers))
        for k, dealer in enumerate(self._dealers):
            # Of three parts, dealer k has k and k + 1.
            told = seeds[k] if len(seeds) == 1 else seeds[k] + seeds[(k + 1) % len(seeds)]
            send_message(channel, [dealer], (_USED_AGAIN if index in kept else _NEW) + told)
        self._announce([names[k] for k in kept])
        called = [o.kept if k in kept and o.kept else o.new for k, o in enumerate(offers)]
        keeping = IndicatorCacheConfig({index: seeds}, _Names(self._files, called))
        return federation.make_plan(samples, kept), keeping

    def _have(
        self,
        offered: list[str | None],
        shapes: list[list[tuple[int, int]]],
        ring: Ring,
        names: Sequence[str],
        index: int,
    ) -> list[str]:
        have = []
        for k, name in enumerate(offered):
            if k == index or name is None:
                continue
            problem = self._files.problem(name, shapes[k], ring)
            if problem:
                text = f"{names[k]} publishes its indicators anew: {problem}"
                self._tell(Event("indicators", text, {"owner": names[k], "problem": problem}))
            else:
                have.append(name)
        return have

    def _check_files(self, shapes: list[list[tuple[int, int]]], index: int, ring: Ring) -> None:
        sizes = [
            Payload.for_array(ring, shape).nbytes
            for k, theirs in enumerate(shapes)
            for shape in theirs
            if k != index
        ]
        if max(sizes, default=0) > MAX_FILE_BYTES - 4096:
            raise ParameterError(
                f"keep_indicators: a column's take {max(sizes) / 1e6:,.0f} MB, and "
                f"{MAX_FILE_BYTES / 1e6:,.0f} MB are read at most: leave it out, or use fewer "
                "buckets"
            )
        check_free_space(self._folder, sum(sizes))

    def _announce(self, owners: list[str]) -> None:
        text = f"kept from an earlier training: the indicators of {', '.join(owners) or 'nobody'}"
        self._tell(Event("kept", text, {"owners": owners}))


def _parts(seed: bytes, dealers: int) -> list[bytes]:
    """Return the seed, or three that are made of it, whose masks are added up."""
    return [seed] if dealers == 1 else [derive_seed(seed, f"part {k}") for k in range(dealers)]


def receive_seeds(
    channel: Channel, federation: TrainingSpec, samples: int, dealers: int = 1
) -> tuple[Plan, IndicatorCacheConfig]:
    """Learn, as a dealer, seeds of all masks, and whose indicators are used again."""
    kept, seeds = [], {}
    count = 1 if dealers == 1 else 2
    for k, name in enumerate(federation.parties):
        message = receive_message(channel, name)
        flag, told = message[:1], message[1:]
        seeds[k] = [told[i : i + SEED_BYTES] for i in range(0, len(told), SEED_BYTES)]
        if len(told) != count * SEED_BYTES or flag not in (_USED_AGAIN, _NEW):
            raise PeerMisbehavedError(name, "told something else than the seed of its masks")
        if flag == _USED_AGAIN:
            kept.append(k)
    return federation.make_plan(samples, tuple(kept)), IndicatorCacheConfig(seeds)


_Said = TypeVar("_Said", bound=StrictSchema)


def _told(channel: Channel, names: Sequence[str], ours: _Said) -> list[_Said]:
    """Tell all other participants something, and return what everybody told, in order."""
    content = ours.model_dump_json().encode()
    received = exchange_messages(channel, {name: content for name in names if name != channel.name})
    found = {name: parse_message(type(ours), name, text) for name, text in received.items()}
    return [{**found, channel.name: ours}[name] for name in names]
