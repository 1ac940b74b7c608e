"""The dealer's side of an alignment: intersection of sorted lists, piece by piece."""

from __future__ import annotations

import threading
from functools import reduce
from typing import Any

import numpy as np
import pytest

from privet.config.job import MAX_ALIGNED_ROWS
from privet.data.id_hashing import TagArray
from privet.errors import PeerMisbehavedError
from privet.federation.alignment import psi
from privet.federation.alignment.psi import (
    MESSAGE_TAG,
    N_DUMMIES,
    count_entries,
    make_marks_layout,
    mark_and_count_common,
)
from privet.transport.memory import create_memory_channels
from tests.privacy.aligned import job_of


def intersect(lists: list[TagArray], padded: int | None = None) -> tuple[int, list[Any]]:
    """Let participants send lists; return the dealer's count of common ids, and its marks."""
    job = job_of(len(lists), padded=padded)
    channels = create_memory_channels([*job.party_names, "dealer"])
    marks: list[Any] = [None] * len(lists)

    def send(k: int) -> None:
        channel, tags = channels[f"p{k}"], lists[k]
        channel.send("dealer", np.array([len(tags)], np.uint64), MESSAGE_TAG)
        for start in range(0, len(tags), psi.PIECE_TAGS):
            channel.send("dealer", tags[start : start + psi.PIECE_TAGS], MESSAGE_TAG)
        bits = channel.receive("dealer", make_marks_layout(len(tags)), MESSAGE_TAG)
        marks[k] = np.unpackbits(bits, count=len(tags)).astype(bool)

    threads = [threading.Thread(target=send, args=(k,), daemon=True) for k in range(len(lists))]
    for thread in threads:
        thread.start()
    count = mark_and_count_common(channels["dealer"], job)
    for thread in threads:
        thread.join(20)
    return count, marks


def random_lists(rng: np.random.Generator, n: int, top: int) -> list[TagArray]:
    """Return sorted lists of even length, at least as long as the dummies."""
    found = []
    for _ in range(n):
        size = 2 * int(rng.integers(N_DUMMIES, 400))
        found.append(np.sort(rng.choice(top, size, replace=False).astype(np.uint64)))
    return found


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("piece", [1, 7, 1 << 19])
def test_marks_match_the_intersection(n: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psi, "PIECE_TAGS", piece)
    rng = np.random.default_rng(piece)
    for top in (800, 3000, 2**62):  # much, some and nothing in common
        lists = random_lists(rng, n, top) if top < 2**62 else disjoint_lists(rng, n)
        common = reduce(np.intersect1d, lists)
        count, marks = intersect(lists)
        for tags, mark in zip(lists, marks, strict=True):
            np.testing.assert_array_equal(tags[mark], common)
        assert count == max(0, len(common) // 2 - N_DUMMIES)


def disjoint_lists(rng: np.random.Generator, n: int) -> list[TagArray]:
    return [np.sort(rng.integers(0, 2**64, 200 + 20 * k, dtype=np.uint64)) for k in range(n)]


def test_one_list_ends_long_before_another() -> None:
    low = np.arange(200, dtype=np.uint64)
    high = np.arange(2**64 - 300, 2**64, dtype=np.uint64)
    both = np.concatenate([low, high])
    assert intersect([low, both])[0] == 100 - N_DUMMIES
    assert intersect([both, high])[0] == 150 - N_DUMMIES
    assert intersect([low, high])[0] == 0


@pytest.mark.parametrize(
    ("tags", "padded", "complaint"),
    [
        (np.arange(200)[::-1], None, "sent tags that are not sorted, or one twice"),
        (np.arange(200) // 2, None, "sent tags that are not sorted, or one twice"),
        (np.arange(126), None, "announced 126 tags"),
        (np.arange(201), None, "announced 201 tags"),
        (np.arange(200), 30, "announced 200 tags of 30 padded rows"),
    ],
)
def test_invalid_lists_are_rejected(tags: Any, padded: int | None, complaint: str) -> None:
    tags = np.ascontiguousarray(tags.astype(np.uint64))
    with pytest.raises(PeerMisbehavedError, match=complaint) as caught:
        intersect([tags, np.arange(200, dtype=np.uint64)], padded)
    assert caught.value.peer == "p0"


def test_order_is_checked_across_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psi, "PIECE_TAGS", 100)
    tags = np.concatenate([np.arange(100, 200), np.arange(100)]).astype(np.uint64)
    with pytest.raises(PeerMisbehavedError, match="not sorted"):
        intersect([tags, np.arange(200, dtype=np.uint64)])


def test_oversized_list_is_rejected() -> None:
    job = job_of(2)
    channels = create_memory_channels([*job.party_names, "dealer"])
    for size in (count_entries(MAX_ALIGNED_ROWS) + 2, 2**63):
        channels["p0"].send("dealer", np.array([size], np.uint64), MESSAGE_TAG)
        with pytest.raises(PeerMisbehavedError, match=f"announced {size} tags"):
            mark_and_count_common(channels["dealer"], job)
