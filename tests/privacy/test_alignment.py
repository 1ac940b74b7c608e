"""Alignment: what the dealer and the others learn by it, and that a dealer cannot cheat."""

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


def own(name: str, count: int) -> list[str]:
    return [f"{name} {k}" for k in range(count)]


def mixed(ids: list[str], seed: int) -> list[str]:
    return [ids[k] for k in np.random.default_rng(seed).permutation(len(ids))]


def rows_of(n: int, alone: int = 100) -> list[list[str]]:
    """Return n lists with 200 ids in common, some that two have, and each with some of its own."""
    pairs = [own(f"{k} and next", 20) for k in range(n)]
    shared = [pairs[k] + pairs[k - 1] if n > 2 else [] for k in range(n)]
    return [mixed(COMMON + shared[k] + own(f"p{k}", alone + 10 * k), k) for k in range(n)]


def checked(stage: Stage) -> Stage:
    for name, error in stage.errors.items():
        raise AssertionError(f"{name} failed") from error
    return stage


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    def play(job: Job, ids: list[list[str]], **options: Any) -> Stage:
        return perform(job, ids, monkeypatch, **options)

    return play


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_find_the_same_rows_in_the_same_order(n: int, played: Callable[..., Stage]) -> None:
    ids = rows_of(n)
    stage = checked(played(job_of(n), ids))
    found = [[ids[k][row] for row in stage.rows[f"p{k}"]] for k in range(n)]
    assert sorted(found[0]) == sorted(COMMON)
    assert all(each == found[0] for each in found)
    assert stage.counted == len(COMMON)


def test_the_dealer_gets_sorted_tags_and_nothing_else(played: Callable[..., Stage]) -> None:
    """A number, how many there are, and these; which are uniform."""
    ids = rows_of(3, alone=5000)
    stage = checked(played(job_of(3), ids))
    for k, each in enumerate(ids):
        tags = stage.tags(f"p{k}")
        assert len(tags) == 2 * (len(each) + N_DUMMIES)
        assert (tags[1:] > tags[:-1]).all()
        assert unfair(Group(("alignment",), Z64, tags)) == []


@pytest.mark.parametrize("n", [2, 3, 4])
def test_other_ids_explain_what_the_dealer_sees(
    n: int, played: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To whoever has not got the key, the hash is a random function. With another such function,
    other ids, in another order, with the same sizes and overlaps, give the same bytes.
    """
    ids = rows_of(n)
    others = {
        text: f"{hash(text) % 10**9} {k}" for k, text in enumerate({i for e in ids for i in e})
    }
    meant = {new: old for old, new in others.items()}

    def random_function(texts: list[bytes], key: bytes, kind: bytes) -> bytes:
        found = (meant.get(text.decode(errors="replace"), text) for text in texts)
        encoded = (text.encode() if isinstance(text, str) else text for text in found)
        return b"".join(hashlib.sha256(kind + text).digest()[:24] for text in encoded)

    for module in HASHING:
        monkeypatch.setattr(f"{module}.hash_texts", random_function)
    first = checked(played(job_of(n), ids, seed="explained"))
    changed = [mixed([others[text] for text in each], 17) for each in ids]
    second = checked(played(job_of(n), changed, seed="explained"))
    assert first.seen_by(DEALER_NAME) == second.seen_by(DEALER_NAME)


def test_the_dealer_sees_no_order(played: Callable[..., Stage]) -> None:
    """By order numbers, which it does not get; and by no function of a row's tags, either."""
    ids = rows_of(2)
    stage = checked(played(job_of(2), ids))
    for name, each in stage.lists.items():
        assert not np.isin(each.order_numbers, stage.tags(name)).any()
        pairs = np.empty((len(each.order_numbers), 2), np.uint64)
        for row in range(len(pairs)):
            pairs[row] = stage.tags(name)[stage.entries(name, row)]
        rows = stage.rows[name]
        for key in (pairs[:, 0], pairs[:, 1], pairs[:, 0] ^ pairs[:, 1], pairs.sum(axis=1)):
            apart = np.corrcoef(np.argsort(np.argsort(key[rows])), np.arange(len(rows)))[0, 1]
            assert abs(apart) < 0.5  # seven standard deviations of a random order


@pytest.mark.parametrize("n", [2, 3])
def test_tags_of_two_alignments_have_nothing_in_common(
    n: int, played: Callable[..., Stage]
) -> None:
    stages = [checked(played(job_of(n), rows_of(n))) for _ in range(2)]
    for k in range(n):
        one, other = (stage.tags(f"p{k}") for stage in stages)
        assert len(one) == len(other)
        assert not np.isin(one, other).any()
        assert not np.isin(one, stages[1].tags(f"p{(k + 1) % n}")).any()
    first, second = (stage.rows["p0"].tolist() for stage in stages)
    assert first != second  # and no order


def test_the_key_is_the_participants_alone(
    played: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one's part goes to all other participants; no part, nor the key, to the dealer."""
    keys: list[bytes] = []
    draw = psi.agree_on_key

    def drawing(*arguments: Any) -> bytes:
        keys.append(draw(*arguments))
        return keys[-1]

    monkeypatch.setattr(psi, "agree_on_key", drawing)
    stage = checked(played(job_of(3), rows_of(3)))
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
    told = b"".join(content for _, _, content in stage.seen_by(DEALER_NAME))
    assert not [secret for secret in (*parts, *keys) if secret in told]
    # Nor anything but tags: these are hashes, and there is nothing else.
    sizes = [array.dtype for _, array in stage.received[DEALER_NAME]]
    assert set(sizes) == {np.dtype(np.uint64)}
    checked(played(job_of(3), rows_of(3)))
    assert keys[3] not in keys[:3]


def test_every_part_makes_the_key(
    played: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even all others together choose it."""
    keys: dict[str, bytes] = {}
    draw, changes = psi.agree_on_key, [""]

    def drawing(channel: Any, job: Job) -> bytes:
        keys[changes[0]] = draw(channel, job)
        return keys[changes[0]]

    def tokens(size: int) -> bytes:
        name = threading.current_thread().name
        return hashlib.shake_256(f"{name} {name == changes[0]}".encode()).digest(size)

    monkeypatch.setattr(psi, "agree_on_key", drawing)
    monkeypatch.setattr("privet.federation.alignment.psi.secrets.token_bytes", tokens)
    for name in ("", "p0", "p1", "p2"):
        changes[0] = name
        checked(played(job_of(3), [COMMON[:3]] * 3))
    assert len(set(keys.values())) == 4


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("changed", [0, 1])
def test_what_only_some_have_shows_to_no_other_participant(
    n: int, changed: int, played: Callable[..., Stage]
) -> None:
    """With other ids, and another number of them, all others receive the same bytes."""
    job, ids = job_of(n), rows_of(n)
    first = checked(played(job, ids, seed="same"))
    for alone in (own("others", 110), own("more", 333), []):
        other = [*ids]
        # Not even whether two of three have something in common with each other.
        another = own(f"p{(changed + 2) % n}", 50) if n > 2 else []
        other[changed] = mixed(COMMON + alone + another, 5)
        second = checked(played(job, other, seed="same"))
        for name in job.party_names:
            if name != f"p{changed}":
                assert second.seen_by(name) == first.seen_by(name), name
                assert second.rows[name].tolist() == first.rows[name].tolist()


def test_whole_sessions_show_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows a participant has is nothing that others are told."""
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
    found: dict[str, list[tuple[int, ...]]] = {"bank": [], DEALER_NAME: []}
    receive = SocketChannel.receive

    def receiving(self: SocketChannel, peer: str, *arguments: Any) -> Any:
        array = receive(self, peer, *arguments)
        if self.name == name:
            found[peer].append(array.shape)
        return array

    with monkeypatch.context() as patch:
        patch.setattr(SocketChannel, "receive", receiving)
        run(local, "align").checked()
    return found


def test_padded_lists_show_no_sizes(played: Callable[..., Stage]) -> None:
    job = job_of(3, padded=1000)
    sizes = set()
    for alone in (10, 200):
        stage = checked(played(job, rows_of(3, alone)))
        sizes |= {len(stage.tags(name)) for name in job.party_names}
        for name in job.party_names:
            assert unfair(Group(("alignment",), Z64, stage.tags(name))) == []
        assert stage.counted == len(COMMON)
    assert sizes == {2 * (1000 + N_DUMMIES)}


def row_of(stage: Stage, name: str, ids: list[list[str]], text: str) -> list[int]:
    return stage.entries(name, ids[stage.job.party_names.index(name)].index(text))


IDS = rows_of(3)


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
    """As many at all, and none of them a half."""
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


def something_that_pads(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
    place = stage.lists[name]._positions
    padding = np.flatnonzero(place // 2 >= len(IDS[int(name[1])]) + N_DUMMIES)
    marks[padding[:2]] = True
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
    something_that_pads: "marked 2 entries that nobody else can have",
}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_a_dealer_that_cheats_is_named_by_all(cheat: Any, played: Callable[..., Stage]) -> None:
    padded = 1000 if cheat is something_that_pads else None
    stage = played(job_of(3, padded=padded), IDS, cheat=cheat)
    assert sorted(stage.rows) == []
    for name in stage.job.party_names:
        error = stage.errors[name]
        assert isinstance(error, PeerMisbehavedError), (name, error)
        assert error.peer == DEALER_NAME
        assert re.search(CHEATS[cheat], str(error)), str(error)
        assert "align again; if it does it again, have another dealer" in str(error)


def test_a_dealer_must_guess_which_tags_are_of_one_id(played: Callable[..., Stage]) -> None:
    """Of 400 common tags and 128 of dummies, a guess of two is right once in 527 times."""
    drawn = np.random.default_rng(3)
    for _ in range(20):
        # By the rank among the common tags, which is the same at all.
        first, second = drawn.choice(2 * (len(COMMON) + N_DUMMIES), 2, replace=False)

        def guess(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
            marks[np.flatnonzero(marks)[[first, second]]] = False  # noqa: B023
            return marks

        stage = played(job_of(3), IDS, cheat=guess)
        assert sorted(stage.rows) == []
        assert {getattr(stage.errors[name], "peer", "") for name in stage.job.party_names} == {
            DEALER_NAME
        }


def test_what_a_right_guess_would_do(played: Callable[..., Stage]) -> None:
    """It is not found out: an id less, at all. So it is what guessing must be hard for."""

    def left_out(stage: Stage, name: str, marks: BoolArray) -> BoolArray:
        marks[row_of(stage, name, IDS, "c7")] = False
        return marks

    stage = checked(played(job_of(3), IDS, cheat=left_out))
    assert {len(rows) for rows in stage.rows.values()} == {len(COMMON) - 1}


def test_two_of_one_s_tags_that_are_the_same(
    played: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By chance, in 64 bits: about once in 10^5 alignments of ten million ids."""

    def coarse(texts: list[bytes], key: bytes, kind: bytes) -> bytes:
        digest = bytearray(hash_texts(texts, key, kind))
        if kind == b"privet id":
            digest[24:32] = digest[:8]  # the second one's first tag is the first one's
        return bytes(digest)

    for module in HASHING:
        monkeypatch.setattr(f"{module}.hash_texts", coarse)
    stage = played(job_of(2), [["a", "b"], ["b", "a"]])
    for name in stage.job.party_names:
        assert isinstance(stage.errors[name], DataError)
        assert "are the same number, by chance: nothing is wrong, start again" in str(
            stage.errors[name]
        )


def test_whoever_tells_two_others_different_parts_of_the_key(
    played: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would make the dealer look dishonest."""

    def swapped(channel: Any, content: dict[str, bytes]) -> dict[str, bytes]:
        if channel.name == "p0" and len(content["p2"]) == 32:
            content = {**content, "p2": bytes(32)}
        return exchange_messages(channel, content)

    monkeypatch.setattr(psi, "exchange_messages", swapped)
    stage = played(job_of(3), IDS)
    for name in stage.job.party_names:
        error = stage.errors[name]
        assert isinstance(error, DisagreementError), error
        assert "somebody has told one of us another part of it than the others" in str(error)
    assert not [array for _, array in stage.received[DEALER_NAME] if len(array)]
