"""What differs between participants that must be the same: found by all, who end by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from privet.config import Checked, explain, quoted
from privet.errors import DisagreementError, PeerMisbehavedError
from privet.transport.channel import Channel

_Stated = TypeVar("_Stated", bound=Checked)


def parse(kind: type[_Stated], peer: str, content: bytes) -> _Stated:
    """Return what a peer stated; raise PeerMisbehavedError if it is nothing of that kind."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise PeerMisbehavedError(peer, f"stated nonsense: {quoted(explain(error), 300)}") from None


def refuse_differences(
    channel: Channel,
    table: Mapping[str, Mapping[str, Any]],
    advice: str = "use the same job file everywhere",
) -> None:
    """Raise DisagreementError unless everything is the same at everybody who states it.

    It blames the one who differs from us, if that is one.
    """
    complaints = []
    unlike: set[str] = set()
    for key, values in table.items():
        if all(value == next(iter(values.values())) for value in values.values()):
            continue
        places: dict[str, list[str]] = {}
        for name in sorted(values, key=lambda name: name != channel.name):
            place = "here" if name == channel.name else f"at {name}"
            places.setdefault(quoted(values[name]), []).append(place)
        told = ", ".join(f"{value} {' and '.join(names)}" for value, names in places.items())
        complaints.append(f"{quoted(key)}: {told}")
        ours = values.get(channel.name)
        unlike.update(name for name in values if values[name] != ours and name != channel.name)
        advice = _ADVICE.get(key, advice)
    if complaints:
        # Everybody finds a difference now, and says goodbye: nobody just hangs up.
        channel.leave()
        peer = next(iter(unlike)) if len(unlike) == 1 else None
        raise DisagreementError(f"{'; '.join(complaints)}: {advice}", peer)


_ADVICE = {
    "version": "install the same version everywhere",
    "command": "start the same command everywhere",
    "samples": "all need the rows of the same samples",
    "model": "all need their parts of one training; run it again where one is missing",
    "numbers of cuts": "somebody has told one of us other numbers than the others; train again, "
    "and if it does it again, without it",
    "tables done": "put the missing checkpoints or parts back, or start again with --restart",
}
