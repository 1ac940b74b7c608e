"""What a participant's commands start from: its own file, and its seat in a job.

Whatever fails from then on, before all have met, is told to the others of the job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from privet.cli.commands import COMMAND
from privet.cli.own_dealer import own_dealer
from privet.federation.audited import audited
from privet.federation.events import Teller
from privet.federation.prediction import load_own_part
from privet.federation.recorded import recorded
from privet.federation.session import Seat, seated
from privet.files.job import Job
from privet.files.part_file import PartFile
from privet.files.party_file import PartyFile


@contextlib.contextmanager
def training(party: Path, job: Path, wait: float, tell: Teller) -> Iterator[tuple[PartyFile, Seat]]:
    """Yield what is ours, and our seat in a job."""
    own = PartyFile.load(party)
    with _seated(own, Job.read(job), wait, tell, job) as seat:
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
        with _seated(own, file.job, wait, tell) as seat:
            yield own, seat, file
        return
    with _seated(own, Job.read(job), wait, tell, job) as seat:
        yield own, seat, load_own_part(own, model, seat.job)


@contextlib.contextmanager
def _seated(
    own: PartyFile, job: Job, wait: float, tell: Teller, file: Path | None = None
) -> Iterator[Seat]:
    own.check_seat(job)
    keys = own.key, own.certificate, own.listen
    with (
        recorded(own.folder, job, own.name, COMMAND.get(), tell, file),
        audited(own.audit, job, own.name, COMMAND.get(), tell),
        own_dealer(own, job, wait, tell),
        seated(job, own.name, *keys, wait=wait, tell=tell) as seat,
    ):
        yield seat
