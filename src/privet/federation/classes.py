"""The names of a label's classes: known to its holder, told to whoever receives predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from privet.arrays import FloatArray
from privet.config import quoted
from privet.errors import PeerMisbehavedError
from privet.files.job import Job
from privet.files.part_file import PartFile
from privet.runtime.party import Party
from privet.terms.metrics import by_class, likeliest
from privet.transport.channel import Channel
from privet.transport.messages import pack, receive, send, unpack


def tell_classes(runtime: Party, channel: Channel, job: Job, file: PartFile) -> tuple[str, ...]:
    """Return the names of the classes to their holder and to the recipient; none to others.

    Reveals: the names to the recipient, if it is not the active participant, who has them.
    """
    active, recipient = job.names[job.active], job.names[job.recipient_index]
    params = job.hyper_parameters()
    if not params.objective.has_classes or active == recipient:
        return file.classes
    runtime.ledger.record("names of the classes", (recipient,), 1, "predict")
    if channel.name == active:
        send(channel, [recipient], pack(file.classes))
    if channel.name != recipient:
        return file.classes
    try:
        names = unpack(receive(channel, active))
    except ValueError:
        names = []
    if len(names) != params.classes:
        raise PeerMisbehavedError(active, "told what are no names of classes")
    return tuple(quoted(name, 1000) for name in names)


@dataclass(frozen=True)
class ByClass:
    """Predictions of a classification, by the names of its classes."""

    classes: tuple[str, ...]
    probabilities: FloatArray
    """Of each class, a row a sample: (n_samples, n_classes)."""

    @classmethod
    def of(cls, classes: Sequence[str], predicted: FloatArray) -> ByClass:
        """Return what an objective's predictions say."""
        return cls(tuple(classes), by_class(predicted))

    def likeliest(self) -> list[str]:
        """Return the class of each sample."""
        return [self.classes[k] for k in likeliest(self.probabilities.T)]
