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
    """A dealer's files for `products`, written in offline preprocessing."""
    return preprocess(products, NAMES, tmp_path, dealer, {"for": "products"})


def consume(paths: list[Path], dealer: Identity, program: Any = products) -> list[Any]:
    """Run a program with files; each participant has a separate record next to its file."""
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


def test_participants_run_without_an_online_dealer(paths: list[Path], dealer: Identity) -> None:
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    for result in consume(paths, dealer):
        assert (result == np.uint64(pow(3, 32, 2**64))).all()


def test_the_manifest_describes_the_file(paths: list[Path], dealer: Identity) -> None:
    manifests = []
    for path in paths:
        with closing(PreprocessingFile(path, dealer.fingerprint)) as source:
            manifests.append(source.manifest)
    assert [(manifest.participant, manifest.number) for manifest in manifests] == [
        *zip(NAMES, range(3), strict=True)
    ]
    assert len({manifest.dealing for manifest in manifests}) == 1
    assert all(manifest.terms == {"for": "products"} for manifest in manifests)
    assert all(path.exists() for path in paths)  # opening does not consume it


@pytest.mark.parametrize("times", [1, 5, 12])
def test_file_sizes_are_estimated_exactly(tmp_path: Path, dealer: Identity, times: int) -> None:
    program = partial(products, times=times, size=33)
    expected = count_preprocessing_bytes(program, NAMES, dealer, {"a": "b"})
    paths = preprocess(program, NAMES, tmp_path, dealer, {"a": "b"})
    assert sum(path.stat().st_size for path in paths) == expected


def test_a_file_is_consumed_once(paths: list[Path], dealer: Identity) -> None:
    copies = [path.read_bytes() for path in paths]
    consume(paths, dealer)
    assert not any(path.exists() for path in paths)  # no seed stays on disk
    with pytest.raises(CorrelationError, match=r"No such file.*ask the dealer for a new dealing"):
        consume(paths, dealer)
    others = [path.with_name(f"another name of {path.name}") for path in paths]
    for path, copy in zip(others, copies, strict=True):
        path.write_bytes(copy)
    with pytest.raises(CorrelationError, match=r"another name of .* was used before, under"):
        consume(others, dealer)
    assert all(path.exists() for path in others)  # a refused file is not removed


def test_the_record_reveals_nothing_about_the_seed(paths: list[Path], dealer: Identity) -> None:
    with closing(PreprocessingFile(paths[0], dealer.fingerprint)) as source:
        source.consume(paths[0].parent / "used")
        _, (seed,) = source.receive_seeds(0)
    (mark,) = (paths[0].parent / "used").iterdir()
    assert (mark.name, mark.read_bytes()) == (compute_seed_mark(seed), b"")
    assert seed.hex() not in mark.name
    assert mark.name not in seed.hex()


def test_files_of_two_preprocessing_runs_are_refused(
    paths: list[Path], tmp_path: Path, dealer: Identity
) -> None:
    (tmp_path / "second").mkdir()
    others = preprocess(products, NAMES, tmp_path / "second", dealer, {})
    with pytest.raises((CorrelationError, PeerMisbehavedError)):
        consume([paths[0], others[1], others[2]], dealer)


def test_a_file_for_another_participant_is_refused(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match="is for participant"):
        consume([paths[1], paths[0], paths[2]], dealer)


def test_missing_correlations_are_detected(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match=r"where .* is due at step 'multiply'") as caught:
        consume(paths, dealer, partial(products, times=6))
    assert (caught.value.peer, caught.value.step) == ("dealer", "multiply")


def test_unused_correlations_are_detected(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match="'end of the program'"):
        consume(paths, dealer, partial(products, times=4))


def test_a_file_for_another_program_is_refused(paths: list[Path], dealer: Identity) -> None:
    with pytest.raises(CorrelationError, match="made for another program"):
        consume(paths, dealer, partial(products, size=101))


def check_refused(path: Path, dealer: Identity, match: str) -> None:
    """Check that opening fails with the file name and a next step, and does not change the file."""
    before = path.read_bytes()
    with pytest.raises(CorrelationError, match=match) as caught:
        PreprocessingFile(path, dealer.fingerprint)
    assert str(path) in str(caught.value)
    assert "ask the dealer for a new dealing" in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("left", [8, 10, 12, 100, 900, -200, -64, -1])
def test_a_truncated_file_is_refused(paths: list[Path], dealer: Identity, left: int) -> None:
    paths[0].write_bytes(paths[0].read_bytes()[:left])
    check_refused(paths[0], dealer, "was cut short or changed")


def test_every_changed_byte_is_found(paths: list[Path], dealer: Identity) -> None:
    whole = paths[0].read_bytes()
    for position in [*range(0, len(whole), 97), len(whole) - 1]:
        changed = bytearray(whole)
        changed[position] ^= 1
        paths[0].write_bytes(changed)
        with pytest.raises(CorrelationError, match="ask the dealer for a new dealing"):
            PreprocessingFile(paths[0], dealer.fingerprint)


def test_an_invalid_manifest_is_refused(paths: list[Path], dealer: Identity) -> None:
    """A certificate of half a byte, or a manifest that is longer than its file."""
    whole, certificate = paths[0].read_bytes(), dealer.certificate.hex().encode()
    for changed in (
        whole.replace(certificate, certificate[:-1] + b" ").replace(b' "', b'"'),
        whole[:8] + b"\xff\xff\xff\xff" + whole[12:],
        whole[:8] + (len(whole) + 1).to_bytes(4, "little") + whole[12:],
        whole[:12] + b"[" * 1000,
    ):
        assert changed != whole
        paths[0].write_bytes(changed)
        check_refused(paths[0], dealer, "was cut short or changed")


def test_trailing_bytes_are_refused(paths: list[Path], dealer: Identity) -> None:
    paths[0].write_bytes(paths[0].read_bytes() + b"x")
    check_refused(paths[0], dealer, "was cut short or changed")


def test_a_file_of_another_dealer_is_refused(tmp_path: Path, dealer: Identity) -> None:
    """With its own certificate, or with the agreed certificate and another key's signature."""
    other = create_identity("stranger", tmp_path)
    for identity, complaint in (
        (other, "was signed with the certificate"),
        (replace(other, certificate=dealer.certificate), "was cut short or changed"),
    ):
        path, second = preprocess(products, ["a", "b"], tmp_path, identity, {})
        check_refused(path, dealer, complaint)
        path.unlink()
        second.unlink()


def test_a_file_of_another_format_is_refused(tmp_path: Path, dealer: Identity) -> None:
    path = tmp_path / "party1.correlations"
    path.write_bytes(b"something else")
    check_refused(path, dealer, "does not hold a dealer's correlations")
    path.write_bytes(b"")
    check_refused(path, dealer, "does not hold a dealer's correlations")
    path.write_bytes(b"PVCORR02" + bytes(100))
    check_refused(path, dealer, "is of another version of this software")


def test_files_are_never_overwritten(paths: list[Path], dealer: Identity) -> None:
    before = paths[1].read_bytes()
    paths[0].unlink()
    with pytest.raises(UnavailableError, match=r"party2\.correlations: exists already"):
        preprocess(products, NAMES, paths[0].parent, dealer, {})
    assert paths[1].read_bytes() == before
    assert not paths[0].exists()  # incomplete output is removed


def test_failed_preprocessing_leaves_no_files(tmp_path: Path, dealer: Identity) -> None:
    def program(runtime: Runtime, _: object) -> None:
        products(runtime)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        preprocess(program, NAMES, tmp_path, dealer, {})
    assert not list(tmp_path.iterdir())


class BacklogRecorder(MemoryChannel):
    """A dealer's channel that records the largest total backlog."""

    max_backlog = 0

    def send(self, peer: str, array: Any, tag: int = 0, stream: int = 0) -> None:
        super().send(peer, array, tag, stream)
        BacklogRecorder.max_backlog = max(
            BacklogRecorder.max_backlog, sum(self.backlog(name) for name in NAMES)
        )


def test_the_dealers_backlog_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send 100 MB to participants that are slow in turn; the total backlog stays below 5 MB."""
    monkeypatch.setattr("privet.runtime.run.LiveSender", partial(LiveSender, max_backlog=1 << 20))
    channels = create_memory_channels([*NAMES, DEALER_NAME], peer_timeout=20)
    channels[DEALER_NAME].__class__ = BacklogRecorder

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
    # One megabyte at the smallest backlog; the others lag behind it by one or two arrays.
    assert 1 << 20 < BacklogRecorder.max_backlog < 5 << 20


def test_large_corrections_are_balanced() -> None:
    """No participant gets more than one large array more than another, for any sequence."""

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


def test_extra_corrections_are_detected() -> None:
    def program(runtime: Runtime, _: object = None) -> None:
        if isinstance(runtime, Dealer):
            runtime.distribute(np.zeros(2, dtype=np.uint64), Z64)

    with pytest.raises((CorrelationError, PeerMisbehavedError)):
        simulate(program, 2)


def test_a_program_without_a_dealer() -> None:
    """Shares can be revealed; operations that need correlations fail."""
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
        except PrivetError as error:  # the other participant loses its peer
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
            errors = [e for e in found.values() if isinstance(e, CorrelationError)]
            assert errors
            assert all("there is no dealer" in str(error) for error in errors)
        else:
            assert found["a"].tolist() == [11]
            assert found["b"] is None
