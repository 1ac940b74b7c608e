"""What a participant's commands start from: its own file, and its seat in a job.

Whatever fails from then on, before all have met, is told to the others of the job. But first of all
we see whether another process of ours is at it already: it speaks for us, so one that comes second
is recorded nowhere, starts no dealer, never listens, and tells nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from privet.cli.commands import COMMAND
from privet.cli.own_dealer import own_dealer
from privet.errors import BusyError, UnavailableError
from privet.federation.audited import audited
from privet.federation.events import Event, Teller
from privet.federation.prediction import load_own_part
from privet.federation.recorded import recorded
from privet.federation.session import Seat, seated
from privet.files.job import Job
from privet.files.lock import Doing, locked
from privet.files.part_file import PartFile
from privet.files.party_file import PartyFile


@contextlib.contextmanager
def training(party: Path, job: Path, wait: float, tell: Teller) -> Iterator[tuple[PartyFile, Seat]]:
    """Yield what is ours, and our seat in a job."""
    own = PartyFile.load(party)
    with _seated(own, Job.read(job), "train", wait, tell, job) as seat:
        yield own, seat


@contextlib.contextmanager
def predicting(
    party: Path, model: Path, job: Path | None, wait: float, tell: Teller
) -> Iterator[tuple[PartyFile, Seat, PartFile]]:
    """Yield what is ours, our seat in the model's job or the one given, and our part of the model.

    Unless a job is given, a part that cannot be read leaves nobody who could be told so.
    """
    own = PartyFile.load(party)
    if job is None:
        file = load_own_part(own, model, None)
        with _seated(own, file.job, "predict", wait, tell) as seat:
            yield own, seat, file
        return
    with _seated(own, Job.read(job), "predict", wait, tell, job) as seat:
        yield own, seat, load_own_part(own, model, seat.job)


@contextlib.contextmanager
def alone(
    own: PartyFile, job: Job, doing: Doing, tell: Teller
) -> Iterator[UnavailableError | None]:
    """Be the only process of ours that does something for a job; raise BusyError if one is.

    Yields what else keeps a training from having the folder to itself, a full disk for instance.
    Other commands, which may do without, warn of that.
    """
    with contextlib.ExitStack() as stack:
        trouble: UnavailableError | None = None
        try:
            stack.enter_context(locked(own.folder, job.name, doing))
        except BusyError:
            raise
        except UnavailableError as error:
            if doing == "train":
                trouble = error
            else:
                text = f"warning: nothing keeps another process from doing the same: {error}"
                tell(Event("warning", text))
        yield trouble


@contextlib.contextmanager
def _seated(
    own: PartyFile, job: Job, doing: Doing, wait: float, tell: Teller, file: Path | None = None
) -> Iterator[Seat]:
    own.check_seat(job)
    keys = own.key, own.certificate, own.listen
    with (
        alone(own, job, doing, tell) as trouble,
        recorded(own.folder, job, own.name, COMMAND.get(), tell, file),
        audited(own.audit, job, own.name, COMMAND.get(), tell),
        own_dealer(own, job, wait, tell),
        seated(job, own.name, *keys, wait=wait, tell=tell) as seat,
    ):
        if trouble is not None:
            raise trouble  # only here, where the others are told of it
        yield seat
