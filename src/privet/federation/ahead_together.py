"""Three dealers that deal ahead: they meet, see that they mean the same, and write files each."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from privet.boosting.federation import Federation
from privet.federation.ahead import Work, deal_files
from privet.federation.differences import refuse_differences
from privet.federation.session import Seat
from privet.runtime.fellows import Fellows
from privet.transport.messages import swap


def deal_files_together(
    seat: Seat, federation: Federation, folder: Path, samples: int, done: int
) -> list[Path]:
    """Deal for a training with the other two dealers; return our files for the participants."""
    job = seat.job
    with seat.meet(ahead=True) as channel:
        channel.where = lambda: "agreement"
        work = Work.of(job, federation, samples, done).model_dump()
        ours = {"terms": job.terms(), **work}
        received = swap(channel, dict.fromkeys(channel.peers, json.dumps(_digests(ours)).encode()))
        stated = {seat.name: _digests(ours)}
        for peer, content in received.items():
            stated[peer] = _parsed(content)
        keys = dict.fromkeys(key for each in stated.values() for key in each)
        refuse_differences(
            channel,
            {key: {name: stated[name].get(key, "none") for name in stated} for key in keys},
            "all three dealers take the same job and the same options",
        )
        fellows = Fellows(job.dealer_names.index(seat.name), job.dealer_names, channel)
        channel.where = lambda: "dealing ahead"
        paths = deal_files(
            job, federation, seat.identity, folder, samples, done, seat.tell, fellows
        )
        channel.close()
    return paths


def _digests(terms: dict[str, object]) -> dict[str, str]:
    """Return what is compared: short values as they are, long ones as digests."""
    texts = {key: json.dumps(value, sort_keys=True) for key, value in terms.items()}
    return {
        key: text if len(text) < 100 else hashlib.sha256(text.encode()).hexdigest()[:16]
        for key, text in texts.items()
    }


def _parsed(content: bytes) -> dict[str, str]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        found = {"statement": "no statement"}
    return {str(key): str(value) for key, value in found.items()}
