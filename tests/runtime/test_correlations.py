from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.arithmetic.shares import Share
from privet.errors import CorrelationError, PeerMisbehavedError, PrivetError, UnavailableError
from privet.gates.beaver import multiply
from privet.runtime.correlations.dealer import Dealer
from privet.runtime.correlations.files import PreprocessingFile
from privet.runtime.correlations.seeds import compute_seed_mark
from privet.runtime.correlations.source import LiveSender, NoCorrelations
from privet.runtime.local.launcher import simulate
from privet.runtime.party import Party
from privet.runtime.run import (
    DEALER_NAME,
    count_preprocessing_bytes,
    preprocess,
    run_dealer,
    run_party,
)
from privet.runtime.runtime import Runtime
from privet.transport.memory import MemoryChannel, create_memory_channels
from privet.transport.tls import Identity, create_identity

NAMES = ["party1", "party2", "party3"]


def products(runtime: Runtime, _: object = None, times: int = 5, size: int = 100) -> Any:
    x = runtime.share_public(np.full(size, 3, dtype=np.uint64), Z64)
    for _i in range(times):
        x = multiply(runtime, x, x)
    return runtime.reveal(x, recipients=[0, 1, 2], disclosure="x")


@pytest.fixture(scope="module")
def dealer(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return create_identity("dealer", tmp_path_factory.mktemp("dealer"))


@pytest.fixture
def paths(tmp_path: Path, dealer: Identity) -> list[Path]:
    """A dealer's files for `products`, written before any participant is there."""
    return preprocess(products, NAMES, tmp_path, dealer, {"for": "products"})


def consume(paths: list[Path], dealer: Identity, program: Any = products) -> list[Any]:
    """Run a program with files, each participant with a record of its own beside its file."""
    channels = create_memory_channels(NAMES, peer_timeout=5)
    results: list[Any] = [None] * 3

    def party(index: int) -> None:
        try:
            with closing(PreprocessingFile(paths[index], dealer.fingerprint)) as source:
                source.consume(paths[index].parent / "used")
                channel = channels[NAMES[index]]
                results[index] = run_party(program, index, NAMES, None, channel, source).result
        except Exception as error:  # noqa: BLE001
            results[index] = error
            channels[NAMES[index]].abort()

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


def test_participants_run_with_the_dealer_gone(paths: list[Path], dealer: Identity) -> None:
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    for result in consume(paths, dealer):
        assert (result == np.uint64(pow(3, 32, 2**64))).all()


def test_a_file_says_what_it_is_for(paths: list[Path], dealer: Identity) -> None:
    covers = []
    for path in paths:
        with closing(PreprocessingFile(path, dealer.fingerprint)) as source:
            covers.append(source.manifest)
    assert [(cover.participant, cover.number) for cover in covers] == [
        *zip(NAMES, range(3), strict=True)
    ]
    assert len({cover.dealing for cover in covers}) == 1
    assert all(cover.terms == {"for": "products"} for cover in covers)
    assert all(path.exists() for path in paths)  # looking does not use it up


@pytest.mark.parametrize("times", [1, 5, 12])
def test_the_room_that_files_take_is_known(tmp_path: Path, dealer: Identity, times: int) -> None:
    program = partial(products, times=times, size=33)
    needed = count_preprocessing_bytes(program, NAMES, dealer, {"a": "b"})
    found = preprocess(program, NAMES, tmp_path, dealer, {"a": "b"})
    assert sum(path.stat().st_size for path in found) == needed


def test_correlations_are_used_once(paths: list[Path], dealer: Identity) -> None:
    copies = [path.read_bytes() for path in paths]
    consume(paths, dealer)
    assert not any(path.exists() for path in paths)  # nor does a seed stay on disk
    with pytest.raises(CorrelationError, match=r"No such file.*ask the dealer for a new dealing"):
        consume(paths, dealer)
    others = [path.with_name(f"another name of {path.name}") for path in paths]
    for path, copy in zip(others, copies, strict=True):
        path.write_bytes(copy)
    with pytest.raises(CorrelationError, match=r"another name of .* was used before, under"):
        consume(others, dealer)
    assert all(path.exists() for path in others)  # it is not ours to remove


def test_the_record_tells_nothing_of_the_seed(paths: list[Path], dealer: Identity) -> None:
    with closing(PreprocessingFile(paths[0], dealer.fingerprint)) as source:
        source.consume(paths[0].parent / "used")
        _, (seed,) = source.receive_seeds(0)
    (mark,) = (paths[0].parent / "used").iterdir()
    assert (mark.name, mark.read_bytes()) == (compute_seed_mark(seed), b"")
    assert seed.hex() not in mark.name
    assert mark.name not in seed.hex()


def test_parts_of_two_dealings_do_not_meet(
    paths: list[Path], tmp_path: Path, dealer: Identity
) -> None:
    (tmp_path / "second").mkdir()
    others = preprocess(products, NAMES, tmp_path / "second", dealer, {})
    with pytest.raises((CorrelationError, PeerMisbehavedError)):
        consume([paths[0], others[1], others[2]], dealer)


def test_a_file_is_for_one_participant(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match="is for participant"):
        consume([paths[1], paths[0], paths[2]], dealer)


def test_they_run_out(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match=r"where .* is due at step 'multiply'") as caught:
        consume(paths, dealer, partial(products, times=6))
    assert (caught.value.peer, caught.value.step) == ("dealer", "multiply")


def test_they_are_left_over(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match="'end of the program'"):
        consume(paths, dealer, partial(products, times=4))


def test_they_are_for_another_program(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match="made for another program"):
        consume(paths, dealer, partial(products, size=101))


def refused(path: Path, dealer: Identity, match: str) -> None:
    """Opening a file fails with its name and a next step, and leaves it as it is."""
    before = path.read_bytes()
    with pytest.raises(CorrelationError, match=match) as caught:
        PreprocessingFile(path, dealer.fingerprint)
    assert str(path) in str(caught.value)
    assert "ask the dealer for a new dealing" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", [8, 10, 12, 100, 900, -200, -64, -1])
def test_a_file_that_is_cut_short(paths: list[Path], dealer: Identity, left: int) -> None:
    paths[0].write_bytes(paths[0].read_bytes()[:left])
    refused(paths[0], dealer, "was cut short or changed")


def test_every_changed_byte_is_found(paths: list[Path], dealer: Identity) -> None:
    whole = paths[0].read_bytes()
    for place in [*range(0, len(whole), 97), len(whole) - 1]:
        changed = bytearray(whole)
        changed[place] ^= 1
        paths[0].write_bytes(changed)
        with pytest.raises(CorrelationError, match="ask the dealer for a new dealing"):
            PreprocessingFile(paths[0], dealer.fingerprint)


def test_a_cover_that_is_nonsense(paths: list[Path], dealer: Identity) -> None:
    """Whoever wrote it: a certificate of half a byte, a cover that is longer than its file."""
    whole, certificate = paths[0].read_bytes(), dealer.certificate.hex().encode()
    for changed in (
        whole.replace(certificate, certificate[:-1] + b" ").replace(b' "', b'"'),
        whole[:8] + b"\xff\xff\xff\xff" + whole[12:],
        whole[:8] + (len(whole) + 1).to_bytes(4, "little") + whole[12:],
        whole[:12] + b"[" * 1000,
    ):
        assert changed != whole
        paths[0].write_bytes(changed)
        refused(paths[0], dealer, "was cut short or changed")


def test_bytes_behind_the_end_are_found(paths: list[Path], dealer: Identity) -> None:
    paths[0].write_bytes(paths[0].read_bytes() + b"x")
    refused(paths[0], dealer, "was cut short or changed")


def test_a_file_of_another_dealer(tmp_path: Path, dealer: Identity) -> None:
    """Its own certificate on the cover, or the job's dealer's with another key's signature."""
    stranger = create_identity("stranger", tmp_path)
    for liar, complaint in (
        (stranger, "was signed with the certificate"),
        (replace(stranger, certificate=dealer.certificate), "was cut short or changed"),
    ):
        path, other = preprocess(products, ["a", "b"], tmp_path, liar, {})
        refused(path, dealer, complaint)
        path.unlink()
        other.unlink()


def test_a_file_of_something_else(tmp_path: Path, dealer: Identity) -> None:
    path = tmp_path / "party1.correlations"
    path.write_bytes(b"something else")
    refused(path, dealer, "does not hold a dealer's correlations")
    path.write_bytes(b"")
    refused(path, dealer, "does not hold a dealer's correlations")
    path.write_bytes(b"PVCORR02" + bytes(100))
    refused(path, dealer, "is of another version of this software")


def test_files_are_never_overwritten(paths: list[Path], dealer: Identity) -> None:
    before = paths[1].read_bytes()
    paths[0].unlink()
    with pytest.raises(UnavailableError, match=r"party2\.correlations: exists already"):
        preprocess(products, NAMES, paths[0].parent, dealer, {})
    assert paths[1].read_bytes() == before
    assert not paths[0].exists()  # half a dealing is of no use


def test_a_dealing_that_fails_leaves_nothing(tmp_path: Path, dealer: Identity) -> None:
    def program(runtime: Runtime, _: object) -> None:
        products(runtime)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        preprocess(program, NAMES, tmp_path, dealer, {})
    assert not list(tmp_path.iterdir())


class Counting(MemoryChannel):
    """A dealer's channel that remembers how much waited for its participants at most."""

    most = 0

    def send(self, peer: str, array: Any, tag: int = 0, stream: int = 0) -> None:
        super().send(peer, array, tag, stream)
        Counting.most = max(Counting.most, sum(self.backlog(name) for name in NAMES))


def test_the_dealer_runs_ahead_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 MB for participants that start late and take turns in being slow; 3 MB wait at most."""
    monkeypatch.setattr("privet.runtime.run.LiveSender", partial(LiveSender, max_backlog=1 << 20))
    channels = create_memory_channels([*NAMES, DEALER_NAME], peer_timeout=20)
    channels[DEALER_NAME].__class__ = Counting

    def program(runtime: Runtime, _: object = None) -> None:
        for i in range(400):
            if isinstance(runtime, Party):
                if i % 50 == 0 and runtime.index == i // 50 % 3:
                    time.sleep(0.05)
                runtime.derived((1 << 15,), Z64)
                runtime.open(Share(np.zeros(1, dtype=np.uint64), Z64))
            elif isinstance(runtime, Dealer):
                runtime.distribute(np.zeros(1 << 15, dtype=np.uint64), Z64)

    def party(index: int) -> None:
        run_party(program, index, NAMES, None, channels[NAMES[index]])

    threads = [threading.Thread(target=party, args=(index,)) for index in range(3)]
    threads.append(
        threading.Thread(target=run_dealer, args=(program, NAMES, channels[DEALER_NAME]))
    )
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
                runtime.distribute(np.zeros(size, dtype=np.uint64), Z64)
        return 0

    outcome = simulate(program, 3)
    received = [meter.sum_traffic("offline").received for meter in outcome.meters]
    assert max(received) - min(received) <= 80_000 + 60 * 40


def test_a_dealer_with_more_to_give_is_noticed() -> None:
    def program(runtime: Runtime, _: object = None) -> None:
        if isinstance(runtime, Dealer):
            runtime.distribute(np.zeros(2, dtype=np.uint64), Z64)

    with pytest.raises((CorrelationError, PeerMisbehavedError)):
        simulate(program, 2)


def test_a_program_without_a_dealer() -> None:
    """Shares can be revealed; whatever needs randomness is refused."""
    channels: dict[str, MemoryChannel] = {}
    found: dict[str, Any] = {}

    def role(index: int, name: str, computes: bool) -> None:
        def program(runtime: Party, _: None) -> Any:
            share = Share(np.array([5 + index], dtype=np.uint64), Z64)
            if computes:
                multiply(runtime, share, share)
            return runtime.reveal(share, [0], "sum")

        try:
            channel = channels[name]
            found[name] = run_party(
                program, index, ["a", "b"], None, channel, NoCorrelations()
            ).result
        except PrivetError as error:  # who does not need any loses the other
            found[name] = error

    for computes in (False, True):
        channels.update(create_memory_channels(["a", "b"]))
        threads = [
            threading.Thread(target=role, args=(index, name, computes), daemon=True)
            for index, name in enumerate(("a", "b"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        if computes:
            refused = [e for e in found.values() if isinstance(e, CorrelationError)]
            assert refused
            assert all("there is no dealer" in str(error) for error in refused)
        else:
            assert found["a"].tolist() == [11]
            assert found["b"] is None
