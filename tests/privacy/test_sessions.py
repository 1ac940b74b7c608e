"""Nothing random is used twice: not in two sessions, by two participants, or by two streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from privet.arithmetic.prg import Place, fresh_seed
from privet.arithmetic.rings import Z8, Z64, Ring, RingArray
from privet.errors import CorrelationError
from privet.runtime.correlations.files import PreprocessingFile
from privet.runtime.correlations.seeds import compute_seed_mark, draw_seeds, draw_seeds_offline
from privet.runtime.party import Party
from privet.runtime.run import preprocess
from privet.runtime.runtime import Runtime
from privet.transport.tls import create_identity
from tests.privacy.cases import prediction, training
from tests.privacy.stage import Session, Stream, perform
from tests.privacy.uniform import groups, unfair

Opened = tuple[str, Ring, RingArray]


def differences(one: Iterable[Opened], other: Iterable[Opened]) -> list[Opened]:
    """Return by how much the openings of two sessions differ, in order."""
    found = []
    for (step, ring, a), (also_step, also_ring, b) in zip(one, other, strict=True):
        assert (step, ring, a.shape) == (also_step, also_ring, b.shape)
        found.append((step, ring, ring.reduce_modulus(ring.subtract(a, b))))
    return found


def sent_shares(session: Session) -> list[Opened]:
    """Return what participants sent each other as shares of their own, as bytes."""
    return [
        (r.step, Z8, r.array.view("u1").reshape(-1))
        for seen in session.seen
        for r in seen.received
        if r.step in ("setup", "predict", "predict/infer") or r.step.endswith("split")
    ]


def assert_unrelated(one: Session, other: Session) -> None:
    """What two sessions on the same data open and share differs by uniform numbers."""
    for pairs in (
        differences(one.seen[0].opened, other.seen[0].opened),
        differences(sent_shares(one), sent_shares(other)),
    ):
        assert [alarm for group in groups(pairs) for alarm in unfair(group)] == []


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_two_trainings_on_the_same_data(protocol: str, task: str) -> None:
    program, data = training(protocol, task, 3, 0, tables=6 if protocol == "masked" else 1)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_two_predictions_of_the_same_rows(protocol: str) -> None:
    program, data = prediction(protocol, 3, 0, 1, sizes=(70,) * 8)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))


@pytest.mark.parametrize("case", ["masked", "paper", "prediction"])
def test_openings_of_one_session_have_masks_of_their_own(case: str) -> None:
    """Those of the same step, ring and shape differ by uniform numbers, too."""
    tables = 8 if case == "masked" else 2
    session = (
        perform(*prediction("masked", 3, 0, 1, sizes=(70,) * 8), None)
        if case == "prediction"
        else perform(*training(case, "classification", 3, 0, tables=tables), None)
    )
    opened = session.seen[0].opened
    kinds: dict[tuple[str, Ring, tuple[int, ...]], list[Opened]] = {}
    for step, ring, value in opened:
        kinds.setdefault((step, ring, value.shape), []).append((step, ring, value))
    pairs = [
        pair
        for members in kinds.values()
        for first, second in combinations(members, 2)
        for pair in differences([first], [second])
    ]
    assert len(pairs) > 80
    assert [alarm for group in groups(pairs) for alarm in unfair(group)] == []


def test_a_dealer_that_repeats_itself_repeats_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored from a backup, a dealer draws the same parts of seeds; the nonces are fresh."""
    parts = iter([bytes([k]) * 32 for k in range(4)] * 2)
    monkeypatch.setattr("privet.runtime.correlations.seeds.fresh_seed", lambda: next(parts))
    program, data = training("masked", "regression", 3, 0, tables=4)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))
    assert next(parts, None) is None  # the dealer did repeat itself


def test_no_two_streams_are_the_same() -> None:
    """Nor those of two participants, nor of two sessions."""
    streams: list[bytes] = []

    def program(runtime: Runtime, _: object) -> None:
        if isinstance(runtime, Party):
            for prg in (runtime._share_prg, runtime._private_prg, runtime._local_prg):
                streams.append(prg.uniform(Place("test", (), 0), (8,), Z64).tobytes())

    for _ in range(2):
        perform(program, [None] * 3, None)
    assert len(set(streams)) == 18


def test_a_long_draw_is_one_stream() -> None:
    """Across the pieces that it is made in: `Stream` compares it with AES itself."""
    drawn = Stream(bytes(32)).uniform(Place("long", (), 0), (400_000,), Z64)
    assert drawn.nbytes > 3 << 20
    assert len(np.unique(drawn)) == drawn.size


def test_a_seed_is_all_that_the_system_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def urandom(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    monkeypatch.setattr("os.urandom", urandom)
    assert fresh_seed() == bytes(range(32))
    assert asked == [32]


def test_every_bit_of_part_and_nonce_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed is another one if a bit of either is: nothing of them is cut off."""
    parts = [bytes(32)]
    monkeypatch.setattr("privet.runtime.correlations.seeds.fresh_seed", lambda: parts[-1])
    seeds = set(draw_seeds([bytes(32)])[1])
    flips = [(1 << bit).to_bytes(32, "little") for bit in range(256)]
    for nonce in flips:
        seeds |= set(draw_seeds([nonce])[1])
    for part in flips:
        parts.append(part)
        seeds |= set(draw_seeds([bytes(32)])[1])
    assert len(seeds) == 513


def test_every_bit_of_a_seed_of_files_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the dealing's name and for the mark by which a used seed is known."""
    names, marks = set(), set()
    for bit in range(256):
        seed = (1 << bit).to_bytes(32, "little")
        monkeypatch.setattr("privet.runtime.correlations.seeds.fresh_seed", lambda seed=seed: seed)
        name, seeds = draw_seeds_offline(2)
        assert seeds == [seed, seed]
        names.add(name)
        marks.add(compute_seed_mark(seed))
    assert len(names) == len(marks) == 256


def test_files_of_two_dealings_have_seeds_of_their_own(tmp_path: Path) -> None:
    seeds = []
    dealer = create_identity("dealer", tmp_path)
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        for index, path in enumerate(preprocess(lambda *_: None, ["a", "b"], folder, dealer, {})):
            with contextlib.closing(PreprocessingFile(path, dealer.fingerprint)) as source:
                source.consume(folder / f"used-{index}")
                seeds += source.receive_seeds(index)[1]
    assert len(set(seeds)) == 4


def test_a_dealing_that_repeats_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored from a backup, a dealer repeats a seed: whatever else is new, it is used once."""
    dealer = create_identity("dealer", tmp_path)
    seeds = iter([b"a" * 32, b"b" * 32, b"a" * 32, b"c" * 32])
    monkeypatch.setattr("privet.runtime.correlations.seeds.fresh_seed", lambda: next(seeds))
    found = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, _ = preprocess(lambda *_: None, ["a", "b"], folder, dealer, {})
        found.append(PreprocessingFile(path, dealer.fingerprint))
    with contextlib.closing(found[0]), contextlib.closing(found[1]):
        assert found[0].manifest.dealing != found[1].manifest.dealing
        for source in found:  # two processes that look at the same time
            source.check_unused(tmp_path / "used")
        found[0].consume(tmp_path / "used")
        with pytest.raises(CorrelationError, match="was used before"):
            found[1].consume(tmp_path / "used")
    assert found[1].path.exists()
