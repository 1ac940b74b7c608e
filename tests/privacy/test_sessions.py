"""No randomness is used twice: in two sessions, by two participants, or by two streams."""

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
    """Return the differences of the openings of two sessions, in order."""
    pairs = []
    for (step, ring, a), (other_step, other_ring, b) in zip(one, other, strict=True):
        assert (step, ring, a.shape) == (other_step, other_ring, b.shape)
        pairs.append((step, ring, ring.reduce_modulus(ring.subtract(a, b))))
    return pairs


def sent_shares(session: Session) -> list[Opened]:
    """Return the shares of inputs that participants sent each other, as bytes."""
    return [
        (r.step, Z8, r.array.view("u1").reshape(-1))
        for seen in session.seen
        for r in seen.received
        if r.step in ("setup", "predict", "predict/infer") or r.step.endswith("split")
    ]


def assert_unrelated(one: Session, other: Session) -> None:
    """Check that openings and shares of two sessions on the same data differ by uniform numbers."""
    for pairs in (
        differences(one.seen[0].opened, other.seen[0].opened),
        differences(sent_shares(one), sent_shares(other)),
    ):
        assert [alarm for group in groups(pairs) for alarm in unfair(group)] == []


@pytest.mark.parametrize("protocol", ["masked", "paper"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_two_training_runs_on_the_same_data(protocol: str, task: str) -> None:
    program, data = training(protocol, task, 3, 0, tables=6 if protocol == "masked" else 1)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))


@pytest.mark.parametrize("protocol", ["masked", "paper"])
def test_two_predictions_of_the_same_rows(protocol: str) -> None:
    program, data = prediction(protocol, 3, 0, 1, sizes=(70,) * 8)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))


@pytest.mark.parametrize("case", ["masked", "paper", "prediction"])
def test_openings_of_one_session_have_different_masks(case: str) -> None:
    """Openings of the same step, ring and shape differ by uniform numbers."""
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


def test_restored_dealer_repeats_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored from a backup, a dealer draws the same parts of seeds; the nonces are fresh."""
    parts = iter([bytes([k]) * 32 for k in range(4)] * 2)
    monkeypatch.setattr("privet.runtime.correlations.seeds.fresh_seed", lambda: next(parts))
    program, data = training("masked", "regression", 3, 0, tables=4)
    assert_unrelated(*(perform(program, data, None) for _ in range(2)))
    assert next(parts, None) is None  # the dealer has drawn the same parts twice


def test_no_two_streams_are_the_same() -> None:
    """All streams of participants and sessions differ."""
    streams: list[bytes] = []

    def program(runtime: Runtime, _: object) -> None:
        if isinstance(runtime, Party):
            for prg in (runtime._share_prg, runtime._private_prg, runtime._local_prg):
                streams.append(prg.uniform(Place("test", (), 0), (8,), Z64).tobytes())

    for _ in range(2):
        perform(program, [None] * 3, None)
    assert len(set(streams)) == 18


def test_a_long_draw_is_one_stream() -> None:
    """Also across the pieces of a draw: `Stream` compares it with AES."""
    drawn = Stream(bytes(32)).uniform(Place("long", (), 0), (400_000,), Z64)
    assert drawn.nbytes > 3 << 20
    assert len(np.unique(drawn)) == drawn.size


def test_seed_has_all_bytes_of_urandom(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def urandom(count: int) -> bytes:
        counts.append(count)
        return bytes(range(count))

    monkeypatch.setattr("os.urandom", urandom)
    assert fresh_seed() == bytes(range(32))
    assert counts == [32]


def test_seed_depends_on_every_bit_of_part_and_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed changes with any bit of either: none of their bits is ignored."""
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


def test_id_and_mark_depend_on_every_bit_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of the preprocessing run, and the mark of a used seed, depend on every bit."""
    run_ids, marks = set(), set()
    for bit in range(256):
        seed = (1 << bit).to_bytes(32, "little")
        monkeypatch.setattr("privet.runtime.correlations.seeds.fresh_seed", lambda seed=seed: seed)
        run_id, seeds = draw_seeds_offline(2)
        assert seeds == [seed, seed]
        run_ids.add(run_id)
        marks.add(compute_seed_mark(seed))
    assert len(run_ids) == len(marks) == 256


def test_files_of_two_preprocessing_runs_have_different_seeds(tmp_path: Path) -> None:
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


def test_repeated_preprocessing_seed_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dealer restored from a backup repeats a seed, which is used only once."""
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
        for source in found:  # two processes that check at the same time
            source.check_unused(tmp_path / "used")
        found[0].consume(tmp_path / "used")
        with pytest.raises(CorrelationError, match="was used before"):
            found[1].consume(tmp_path / "used")
    assert found[1].path.exists()
