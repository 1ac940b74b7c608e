from __future__ import annotations

import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.errors import CorrelationError, PeerMisbehavedError, UnavailableError
from privet.gates.beaver import multiply
from privet.runtime.correlations import FileSink, FileSource, LiveSink
from privet.runtime.dealer import Dealer
from privet.runtime.launcher import simulate
from privet.runtime.party import Party
from privet.runtime.roles import DEALER, run_dealer, run_party
from privet.runtime.runtime import Runtime
from privet.transport.memory import MemoryChannel, memory_channels

NAMES = ["party1", "party2", "party3"]
NONCES = [bytes([k]) * 32 for k in range(3)]


def products(runtime: Runtime, _: object = None, times: int = 5, size: int = 100) -> Any:
    x = runtime.public(np.full(size, 3, dtype=np.uint64), Z64)
    for _i in range(times):
        x = multiply(runtime, x, x)
    return runtime.reveal(x, to=[0, 1, 2], what="x")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """A dealer's files for `products`, written before any participant is there."""
    paths = [tmp_path / f"{name}.correlations" for name in NAMES]
    deal(paths)
    return paths


def deal(paths: list[Path]) -> None:
    dealer = Dealer(3, FileSink(paths, NONCES))
    products(dealer)
    dealer.close()


def consume(paths: list[Path], program: Any = products, nonces: list[bytes] = NONCES) -> list[Any]:
    channels = memory_channels(NAMES, deadline=5)
    results: list[Any] = [None] * 3

    def party(index: int) -> None:
        try:
            with (
                channels[NAMES[index]] as channel,
                closing(FileSource(paths[index], nonces[index])) as source,
            ):
                runtime = Party(index, NAMES, channel, source)
                results[index] = program(runtime)
                runtime.finish()
        except Exception as error:  # noqa: BLE001
            results[index] = error

    threads = [threading.Thread(target=party, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for kind in (CorrelationError, PeerMisbehavedError):
        for result in results:
            if isinstance(result, kind):
                raise result
    return results


def test_participants_run_with_the_dealer_gone(paths: list[Path]) -> None:
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    for result in consume(paths):
        assert (result == np.uint64(pow(3, 32, 2**64))).all()


def test_correlations_are_used_once(paths: list[Path]) -> None:
    copies = [path.read_bytes() for path in paths]
    consume(paths)
    assert not any(path.exists() for path in paths)  # nor does a seed stay on disk
    with pytest.raises(CorrelationError, match="No such file"):
        consume(paths)
    for path, copy in zip(paths, copies, strict=True):
        path.with_name(f"another name of {path.name}").write_bytes(copy)
    with pytest.raises(CorrelationError, match="was used before: ask the dealer for a new one"):
        consume([path.with_name(f"another name of {path.name}") for path in paths])


def test_parts_of_two_dealings_do_not_meet(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    others = [tmp_path / "second" / path.name for path in paths]
    deal(others)
    with pytest.raises((CorrelationError, PeerMisbehavedError)):
        consume([paths[0], others[1], others[2]])


def test_a_file_is_for_one_participant(paths: list[Path]) -> None:
    with pytest.raises(CorrelationError, match="is for participant 2"):
        consume([paths[1], paths[0], paths[2]], nonces=[NONCES[1], NONCES[0], NONCES[2]])


def test_a_file_that_was_ordered_with_another_nonce(paths: list[Path]) -> None:
    before = [path.read_bytes() for path in paths]
    with pytest.raises(CorrelationError, match="another nonce than ours: order it anew"):
        consume(paths, nonces=[NONCES[1], NONCES[0], NONCES[2]])
    # It may be somebody else's, so it is not used up.
    assert [path.read_bytes() for path in paths[:2]] == before[:2]


def test_they_run_out(paths: list[Path]) -> None:
    with pytest.raises(CorrelationError, match=r"where .* is due at step 'multiply'") as caught:
        consume(paths, partial(products, times=6))
    assert (caught.value.peer, caught.value.step) == ("dealer", "multiply")


def test_they_are_left_over(paths: list[Path]) -> None:
    with pytest.raises(CorrelationError, match="'end of the program'"):
        consume(paths, partial(products, times=4))


def test_they_are_for_another_program(paths: list[Path]) -> None:
    with pytest.raises(CorrelationError, match="made for another program"):
        consume(paths, partial(products, size=101))


@pytest.mark.parametrize("cut", [8, 20, 60, 200])
def test_a_file_that_ends_early(paths: list[Path], cut: int) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CorrelationError, match="ran out"):
        consume(paths)


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"something else")
    with pytest.raises(CorrelationError, match="does not hold a dealer's correlations"):
        FileSource(tmp_path / "f", NONCES[0])
    assert (tmp_path / "f").read_bytes() == b"something else"
    with pytest.raises(CorrelationError, match="No such file"):
        FileSource(tmp_path / "none", NONCES[0])
    with pytest.raises(UnavailableError, match="File exists"):
        FileSink([tmp_path / "f"], NONCES[:1])
    (tmp_path / "g").write_bytes(b"PVCORR02")
    with pytest.raises(CorrelationError, match="ran out or is damaged at step 'start'"):
        FileSource(tmp_path / "g", NONCES[0])


class Counting(MemoryChannel):
    """A dealer's channel that remembers how much waited for its participants at most."""

    most = 0

    def send(self, peer: str, array: Any, tag: int = 0) -> None:
        super().send(peer, array, tag)
        Counting.most = max(Counting.most, sum(self.backlog(name) for name in NAMES))


def test_the_dealer_runs_ahead_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 MB for participants that start late and take turns in being slow; 3 MB wait at most."""
    monkeypatch.setattr("privet.runtime.roles.LiveSink", partial(LiveSink, ahead=1 << 20))
    channels = memory_channels([*NAMES, DEALER], deadline=20)
    channels[DEALER].__class__ = Counting

    def program(runtime: Runtime, _: object = None) -> None:
        for i in range(400):
            if isinstance(runtime, Party):
                if i % 50 == 0 and runtime.index == i // 50 % 3:
                    time.sleep(0.05)
                runtime.derived((1 << 15,), Z64)
                runtime.open(Share(np.zeros(1, dtype=np.uint64), Z64))
            elif isinstance(runtime, Dealer):
                runtime.deal(np.zeros(1 << 15, dtype=np.uint64), Z64)

    def party(index: int) -> None:
        run_party(program, index, NAMES, None, channels[NAMES[index]])

    threads = [threading.Thread(target=party, args=(index,)) for index in range(3)]
    threads.append(threading.Thread(target=run_dealer, args=(program, NAMES, channels[DEALER])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    # A full megabyte at the emptiest, and at the others what they lag behind: an array or two.
    assert 1 << 20 < Counting.most < 5 << 20


def test_large_corrections_are_spread_evenly() -> None:
    """Whatever the rhythm of the program, nobody gets more than one large array above others."""

    def program(runtime: Runtime, _: object = None) -> int:
        for i in range(60):
            size = 10_000 if i % 3 == 0 else 1
            if isinstance(runtime, Party):
                runtime.derived((size,), Z64)
            elif isinstance(runtime, Dealer):
                runtime.deal(np.zeros(size, dtype=np.uint64), Z64)
        return 0

    outcome = simulate(program, 3)
    received = [meter.total("offline").received for meter in outcome.meters]
    assert max(received) - min(received) <= 80_000 + 60 * 40


def test_a_dealer_with_more_to_give_is_noticed() -> None:
    def program(runtime: Runtime, _: object = None) -> None:
        if isinstance(runtime, Dealer):
            runtime.deal(np.zeros(2, dtype=np.uint64), Z64)

    with pytest.raises((CorrelationError, PeerMisbehavedError)):
        simulate(program, 2)
