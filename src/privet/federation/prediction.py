"""One participant's share in predicting a batch: rows from a file, predictions to the recipient."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import dataclass
from pathlib import Path

from privet.arrays import FloatArray
from privet.boosting.inference import predict, tell_unit
from privet.data.frame import Frame
from privet.data.ids import Ids
from privet.errors import ModelError
from privet.federation.agreement import Statement, agree
from privet.federation.ids import digest_of, refuse_other_ids
from privet.federation.party_report import PartyReport, party_report
from privet.federation.session import Seat
from privet.files.atomic import write_atomically
from privet.files.job import Job
from privet.files.part_file import PartFile, load_part
from privet.files.party_file import PartyFile
from privet.runtime.party import Party
from privet.runtime.roles import run_party


@dataclass(frozen=True, repr=False)
class Predictions:
    """What the recipient receives."""

    ids: Ids
    values: FloatArray
    """Values, or probabilities."""

    def to_csv(self) -> bytes:
        """Return a table of two columns."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("id", "prediction"))
        writer.writerows(zip(self.ids.tolist(), self.values.tolist(), strict=True))
        return text.getvalue().encode()

    def write(self, path: str | Path) -> None:
        """Write the table to a file, atomically."""
        write_atomically(path, self.to_csv(), private=True)


def load_own_part(party: PartyFile, path: str | Path, job: Job | None) -> PartFile:
    """Read our part of a model, and the job to predict with: its own, or one with new addresses."""
    file = load_part(path)
    if file.part.party != party.name:
        raise ModelError(f"{path}: is the part of {file.part.party}, not of {party.name}")
    if job is not None:
        for key, value in file.job.work().items():
            if job.work()[key] != value:
                raise ModelError(
                    f"{path}: was trained with {key}: {value}, and the job says {job.work()[key]}"
                )
    return file


def predict_batch(
    file: PartFile, frame: Frame, seat: Seat
) -> tuple[PartyReport, Predictions | None]:
    """Take part in predicting a batch; the recipient gets the predictions, the others None."""
    job = seat.job
    with seat.meet() as channel:
        started = time.perf_counter()
        statement = Statement.of(
            job,
            command="predict",
            samples=frame.n_samples,
            n_features=len(frame.names),
            features=list(frame.names),
            model=file.model,
        )
        agreement = agree(channel, job, statement)
        assert frame.ids is not None
        digest = digest_of(frame.ids, agreement.run)

        def program(runtime: Party, columns: FloatArray) -> FloatArray | None:
            refuse_other_ids(runtime, job.names, digest, channel)
            query = job.query(frame.n_samples)
            unit = tell_unit(runtime, query, file.part)
            return predict(runtime, query, job.names, file.part, columns, unit)

        index = job.names.index(seat.name)
        record = run_party(program, index, job.names, frame.columns, channel)
    report = party_report(
        record,
        command="predict",
        file=file,
        samples=frame.n_samples,
        seconds=time.perf_counter() - started,
    )
    values = record.result
    return report, None if values is None else Predictions(frame.ids, values)
