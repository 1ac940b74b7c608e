"""Alignment: the views of the dealer and of other participants, and dealers that cheat."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.arithmetic.rings import Z64
from privet.arrays import BoolArray
from privet.config.job import Job
from privet.data.id_hashing import hash_texts
from privet.errors import DataError, DisagreementError, PeerMisbehavedError
from privet.experiments.local_federation import LocalFederation
from privet.federation.alignment import psi
from privet.federation.alignment.psi import N_DUMMIES
from privet.runtime.run import DEALER_NAME
from privet.transport.channel import exchange_messages
from privet.transport.sockets import SocketChannel
from tests.federation.harness import align, prepare, run
from tests.privacy.aligned import Stage, job_of, perform
from tests.privacy.uniform import Group, unfair

COMMON = [f"c{k}" for k in range(200)]
HASHING = ("privet.data.id_hashing", "privet.data.id_hashing")


def make_ids(name: str, count: int) -> list[str]:
    return [f"{name} {k}" for k in range(count)]


def shuffle(ids: list[str], seed: int) -> list[str]:
    return [ids[k] for k in np.random.default_rng(seed).permutation(len(ids))]


def make_lists(n: int, unique: int = 100) -> list[list[str]]:
    """Return n lists with 200 common ids, some ids that two lists contain, and unique ids."""
    pairs = [make_ids(f"{k} and next", 20) for k in range(n)]
    shared = [pairs[k] + pairs[k - 1] if n > 2 else [] for k in range(n)]
    return [shuffle(COMMON + shared[k] + make_ids(f"p{k}", unique + 10 * k), k) for k in range(n)]


def checked(stage: Stage) -> Stage:
    for name, error in stage.errors.items():
        raise AssertionError(f"{name} failed") from error
    return stage


@pytest.fixture
def perform_alignment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    def play(job: Job, ids: list[list[str]], **options: Any) -> Stage:
        return perform(job, ids, monkeypatch, **options)

    return play


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_participants_find_the_same_rows_in_the_same_order(
    n: int, perform_alignment: Callable[..., Stage]
) -> None:
    ids = make_lists(n)
    stage = checked(perform_alignment(job_of(n), ids))
    found = [[ids[k][row] for row in stage.rows[f"p{k}"]] for k in range(n)]
    assert sorted(found[0]) == sorted(COMMON)
    assert all(each == found[0] for each in found)
    assert stage.counted == len(COMMON)


def test_dealer_receives_only_sorted_tags(perform_alignment: Callable[..., Stage]) -> None:
    """It receives the number of tags, and the tags, which are uniform."""
    ids = make_lists(3, unique=5000)
    stage = checked(perform_alignment(job_of(3), ids))
    for k, each in enumerate(ids):
        tags = stage.tags(f"p{k}")
        assert len(tags) == 2 * (len(each) + N_DUMMIES)
        assert (tags[1:] > tags[:-1]).all()
        assert unfair(Group(("alignment",), Z64, tags)) == []


@pytest.mark.parametrize("n", [2, 3, 4])
def test_other_ids_explain_the_view_of_the_dealer(
    n: int, perform_alignment: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the key the hash is a random function.

    With another such function, other ids in another order, with the same sizes and overlaps, give
    the same bytes.
    """
    ids = make_lists(n)
    others = {
        text: f"{hash(text) % 10**9} {k}" for k, text in enumerate({i for e in ids for i in e})
    }
    originals = {new: old for old, new in others.items()}

    def random_function(texts: list[bytes], key: bytes, kind: bytes) -> bytes:
        mapped = (originals.get(text.decode(errors="replace"), text) for text in texts)
        encoded = (text.encode() if isinstance(text, str) else text for text in mapped)
        return b"".join(hashlib.sha256(kind + text).digest()[:24] for text in encoded)

    for module in HASHING:
        monkeypatch.setattr(f"{module}.hash_texts", random_function)
    first = checked(perform_alignment(job_of(n), ids, seed="explained"))
    changed = [shuffle([others[text] for text in each], 17) for each in ids]
    second = checked(perform_alignment(job_of(n), changed, seed="explained"))
    assert first.seen_by(DEALER_NAME) == second.seen_by(DEALER_NAME)


def test_dealer_learns_no_row_order(perform_alignment: Callable[..., Stage]) -> None:
    """It receives no order numbers, and no function of a row's tags correlates with the order."""
    ids = make_lists(2)
    stage = checked(perform_alignment(job_of(2), ids))
    for name, each in stage.lists.items():
        assert not np.isin(each.order_numbers, stage.tags(name)).any()
        pairs = np.empty((len(each.order_numbers), 2), np.uint64)
        for row in range(len(pairs)):
            pairs[row] = stage.tags(name)[stage.entries(name, row)]
        rows = stage.rows[name]
        for key in (pairs[:, 0], pairs[:, 1], pairs[:, 0] ^ pairs[:, 1], pairs.sum(axis=1)):
            ranks = np.argsort(np.argsort(key[rows]))
            correlation = np.corrcoef(ranks, np.arange(len(rows)))[0, 1]
            assert abs(correlation) < 0.5  # seven standard deviations of a random order


@pytest.mark.parametrize("n", [2, 3])
def test_tags_of_two_alignments_have_nothing_in_common(
    n: int, perform_alignment: Callable[..., Stage]
) -> None:
    stages = [checked(perform_alignment(job_of(n), make_lists(n))) for _ in range(2)]
    for k in range(n):
        one, other = (stage.tags(f"p{k}") for stage in stages)
        assert len(one) == len(other)
        assert not np.isin(one, other).any()
        assert not np.isin(one, stages[1].tags(f"p{(k + 1) % n}")).any()
    first, second = (stage.rows["p0"].tolist() for stage in stages)
    assert first != second  # neither have the orders


def test_dealer_never_receives_the_key(
    perform_alignment: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each participant sends its part to all others; the dealer receives neither parts nor key."""
    keys: list[bytes] = []
    agree = psi.agree_on_key

    def recording_agree(*arguments: Any) -> bytes:
        keys.append(agree(*arguments))
        return keys[-1]

    monkeypatch.setattr(psi, "agree_on_key", recording_agree)
    stage = checked(perform_alignment(job_of(3), make_lists(3)))
    assert len(set(keys)) == 1
    assert len(keys) == 3
    parts = set()
    for name in stage.job.party_names:
        for peer in stage.job.party_names:
            if peer != name:
                # A message is its length and its bytes; the first one is the part.
                first = [array for sender, array in stage.received[name] if sender == peer][1]
                assert first.nbytes == 32
                parts.add(first.tobytes())
    assert len(parts) == 3
    to_dealer = b"".join(content for _, _, content in stage.seen_by(DEALER_NAME))
    assert not [secret for secret in (*parts, *keys) if secret in to_dealer]
    # The dealer receives only tags, which are hashes.
    assert {array.dtype for _, array in stage.received[DEALER_NAME]} == {np.dtype(np.uint64)}
    checked(perform_alignment(job_of(3), make_lists(3)))
    assert keys[3] not in keys[:3]


def test_key_depends_on_every_part(
    perform_alignment: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All participants but one cannot choose the key together."""
    keys: dict[str, bytes] = {}
    agree, changed = psi.agree_on_key, [""]

    def recording_agree(channel: Any, job: Job) -> bytes:
        keys[changed[0]] = agree(channel, job)
        return keys[changed[0]]

    def token_bytes(size: int) -> bytes:
        name = threading.current_thread().name
        return hashlib.shake_256(f"{name} {name == changed[0]}".encode()).digest(size)

    monkeypatch.setattr(psi, "agree_on_key", recording_agree)
    monkeypatch.setattr("privet.federation.alignment.psi.secrets.token_bytes", token_bytes)
    for name in ("", "p0", "p1", "p2"):
        changed[0] = name
        checked(perform_alignment(job_of(3), [COMMON[:3]] * 3))
    assert len(set(keys.values())) == 4


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("changed", [0, 1])
def test_other_participants_learn_only_common_ids(
    n: int, changed: int, perform_alignment: Callable[..., Stage]
) -> None:
    """If a participant has other ids, or more, all other participants receive the same bytes."""
    job, ids = job_of(n), make_lists(n)
    first = checked(perform_alignment(job, ids, seed="same"))
    for unique in (make_ids("others", 110), make_ids("more", 333), []):
        lists = [*ids]
        # With three participants, ids that only two of them have are not revealed, either.
        in_two_lists = make_ids(f"p{(changed + 2) % n}", 50) if n > 2 else []
        lists[changed] = shuffle(COMMON + unique + in_two_lists, 5)
        second = checked(perform_alignment(job, lists, seed="same"))
        for name in job.party_names:
            if name != f"p{changed}":
                assert second.seen_by(name) == first.seen_by(name), name
                assert second.rows[name].tolist() == first.rows[name].tolist()


def test_whole_sessions_reveal_no_row_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages to a participant have the same shapes if another participant has more rows."""
    local = prepare(tmp_path, tables=1)
    align(local)
    shapes = []
    for _ in range(2):
        shapes.append(shapes_received_by(local, "shop", monkeypatch))
        path = local.folder / "bank" / "train.csv"
        path.write_text(path.read_text() + "one more,1.0,1.0,1.0\nand more,2.0,2.0,2.0\n")
    assert min(len(each) for each in shapes[0].values()) >= 3
    assert shapes[0] == shapes[1]


def shapes_received_by(
    local: LocalFederation, name: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[tuple[int, ...]]]:
    shapes: dict[str, list[tuple[int, ...]]] = {"bank": [], DEALER_NAME: []}
    receive = SocketChannel.receive

    def recording_receive(self: SocketChannel, peer: str, *arguments: Any) -> Any:
        array = receive(self, peer, *arguments)
        if self.name == name:
            shapes[peer].append(array.shape)
        return array

    with monkeypatch.context() as patch:
        patch.setattr(SocketChannel, "receive", recording_receive)
        run(local, "align").checked()
    return shapes


def test_padded_lists_hide_row_counts(perform_alignment: Callable[..., Stage]) -> None:
    job = job_of(3, padded=1000)
    sizes = set()
    for unique in (10, 200):
        stage = checked(perform_alignment(job, make_lists(3, unique)))
        sizes |= {len(stage.tags(name)) for name in job.party_names}
        for name in job.party_names:
            assert unfair(Group(("alignment",), Z64, stage.tags(name))) == []
        assert stage.counted == len(COMMON)
    assert sizes == {2 * (1000 + N_DUMMIES)}


def row_of(stage: Stage, name: str, ids: list[list[str]], text: str) -> list[int]:
    return stage.entries(name, ids[stage.job.party_names.index(name)].index(text))


IDS = make_lists(3)


def one_tag_everywhere(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    marks[row_of(stage, name, IDS, "c7")[0]] = False
    return marks


def one_tag_at_one(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    return one_tag_everywhere(stage, name, marks) if name == "p1" else marks


def one_id_at_one(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    if name == "p1":
        marks[row_of(stage, name, IDS, "c7")] = False
    return marks


def another_id_at_each(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    """Leave out as many ids at each participant, with both tags."""
    marks[row_of(stage, name, IDS, f"c{name[1]}")] = False
    return marks


def everything(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    return np.zeros_like(marks)


def everything_at_one(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    return np.zeros_like(marks) if name == "p2" else marks


def one_more_tag(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    if name == "p0":
        marks[row_of(stage, name, IDS, "p0 3")[0]] = True
    return marks


def one_more_id(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    if name == "p0":
        marks[row_of(stage, name, IDS, "p0 3")] = True
    return marks


def one_id_that_two_have(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    if "1 and next 3" in IDS[int(name[1])]:
        marks[row_of(stage, name, IDS, "1 and next 3")] = True
    return marks


def everything_marked(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    return np.ones_like(marks)


def padding(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    positions = stage.lists[name]._positions
    entries = np.flatnonzero(positions // 2 >= len(IDS[int(name[1])]) + N_DUMMIES)
    marks[entries[:2]] = True
    return marks


CHEATS: dict[Any, str] = {
    one_tag_everywhere: "marked one of two tags of 1 ids",
    one_tag_at_one: "marked one of two tags of 1 ids|what it told p1 cannot be right",
    one_id_at_one: "told p. other rows than us",
    another_id_at_each: "told p. other rows than us",
    everything: "left out 128 entries that it got from all of us",
    everything_at_one: "left out 128 entries|what it told p2 cannot be right",
    one_more_tag: "marked one of two tags of 1 ids|what it told p0 cannot be right",
    one_more_id: "told p. other rows than us",
    one_id_that_two_have: "told p. other rows than us",
    everything_marked: "told p. other rows than us|marked one|marked .* that nobody else can have",
    padding: "marked 2 entries that nobody else can have",
}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_cheating_dealer_is_detected_by_all_participants(
    cheat: Any, perform_alignment: Callable[..., Stage]
) -> None:
    padded = 1000 if cheat is padding else None
    stage = perform_alignment(job_of(3, padded=padded), IDS, cheat=cheat)
    assert sorted(stage.rows) == []
    for name in stage.job.party_names:
        error = stage.errors[name]
        assert isinstance(error, PeerMisbehavedError), (name, error)
        assert error.peer == DEALER_NAME
        assert re.search(CHEATS[cheat], str(error)), str(error)
        assert "align again; if it does it again, have another dealer" in str(error)


def test_dealer_must_guess_which_tags_belong_to_one_id(
    perform_alignment: Callable[..., Stage],
) -> None:
    """With 400 common tags and 128 of dummies, a guess of two is correct once in 527 times.

    Of 20 guesses, more than 3 are correct in one of 10^7 runs.
    """
    rng = np.random.default_rng(3)
    n_correct = 0
    for _ in range(20):
        # Ranks among the common tags are the same at all participants.
        first, second = rng.choice(2 * (len(COMMON) + N_DUMMIES), 2, replace=False)

        def guess(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
            marks[np.flatnonzero(marks)[[first, second]]] = False  # noqa: B023
            return marks

        stage = perform_alignment(job_of(3), IDS, cheat=guess)
        if stage.rows:
            n_correct += 1
            continue
        assert {getattr(stage.errors[name], "peer", "") for name in stage.job.party_names} == {
            DEALER_NAME
        }
    assert n_correct <= 3


def test_correct_guess_removes_an_id_undetected(perform_alignment: Callable[..., Stage]) -> None:
    """All participants lose an id, which no check detects. Therefore guessing must be hard."""

    def leave_out(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
        marks[row_of(stage, name, IDS, "c7")] = False
        return marks

    stage = checked(perform_alignment(job_of(3), IDS, cheat=leave_out))
    assert {len(rows) for rows in stage.rows.values()} == {len(COMMON) - 1}


def test_tag_collision_raises_data_error(
    perform_alignment: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tags of 64 bits collide in about one of 10^5 alignments of ten million ids."""

    def colliding_hash(texts: list[bytes], key: bytes, kind: bytes) -> bytes:
        digest = bytearray(hash_texts(texts, key, kind))
        if kind == b"privet id":
            digest[24:32] = digest[:8]  # the first tag of the second id is that of the first
        return bytes(digest)

    for module in HASHING:
        monkeypatch.setattr(f"{module}.hash_texts", colliding_hash)
    stage = perform_alignment(job_of(2), [["a", "b"], ["b", "a"]])
    for name in stage.job.party_names:
        assert isinstance(stage.errors[name], DataError)
        assert "are the same number, by chance: nothing is wrong, start again" in str(
            stage.errors[name]
        )


def test_inconsistent_key_parts_are_detected(
    perform_alignment: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A participant that sends two others different parts would make the dealer look dishonest."""

    def inconsistent_exchange(channel: Any, content: dict[str, bytes]) -> dict[str, bytes]:
        if channel.name == "p0" and len(content["p2"]) == 32:
            content = {**content, "p2": bytes(32)}
        return exchange_messages(channel, content)

    monkeypatch.setattr(psi, "exchange_messages", inconsistent_exchange)
    stage = perform_alignment(job_of(3), IDS)
    for name in stage.job.party_names:
        error = stage.errors[name]
        assert isinstance(error, DisagreementError), error
        assert "somebody has told one of us another part of it than the others" in str(error)
    assert not [array for _, array in stage.received[DEALER_NAME] if len(array)]
