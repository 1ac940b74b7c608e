"""Offline preprocessing: correlated randomness for a training run, by one dealer or three.

No dealer is there to compare anything, so a file says all that a dealer would have stated, and the
participants compare it with what they agreed on. They take their files when that is done, all of
one dealing or nobody any.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from privet.boosting.binning import BucketedColumns
from privet.boosting.model import Feature
from privet.boosting.prediction import reveal_validation_results
from privet.boosting.training import IndicatorCacheConfig, TrainingSpec, train
from privet.config.job import Job
from privet.errors import CorrelationError, ParameterError, PrivetError
from privet.federation.alignment.alignment import require_same_ids
from privet.federation.monitoring.events import Event, EventHandler
from privet.federation.session.agreement import Agreement
from privet.federation.session.public_constants import MISMATCH_ADVICE, digest_public_constants
from privet.federation.session.session import LocalMember, require_equal
from privet.filesystem import check_free_space, make_folder
from privet.runtime.correlations.files import (
    NEW_RUN_ADVICE,
    PreprocessingReceiver,
    open_preprocessing,
)
from privet.runtime.correlations.replicated import DealerPeers
from privet.runtime.run import count_preprocessing_bytes, preprocess
from privet.runtime.runtime import Runtime
from privet.runtime.workers import WorkerHandle
from privet.schema import StrictSchema, format_validation_error
from privet.spec.plan import Plan, disclose_cut_counts
from privet.storage.json_records import Name
from privet.transport.channel import Channel, exchange_messages
from privet.transport.tls import Identity
from privet.version import __version__


def make_anonymous_features(job: Job, counts: Sequence[int]) -> tuple[Feature, ...]:
    """Return features as the dealer knows them: whose, and how many."""
    return tuple(
        Feature(str(number), owner)
        for owner, count in zip(job.party_names, counts, strict=True)
        for number in range(count)
    )


def make_dealer_training_program(
    training_spec: TrainingSpec,
    plan: Plan,
    n_trained_tables: int,
    channel: Channel | None,
    keeping: IndicatorCacheConfig | None = None,
    *,
    rows_are_aligned: bool = False,
    worker_handles: Sequence[WorkerHandle] = (),
) -> Callable[[Runtime, None], None]:
    """Return a training as the dealer runs it: with the participants' channel, or ahead of them.

    Rows that were aligned are known to be the same, so their ids are not compared.
    """

    def run_training(runtime: Runtime, _: None) -> None:
        if not rows_are_aligned:
            require_same_ids(runtime, training_spec.parties, None, channel)
        trained = train(
            runtime,
            training_spec,
            plan,
            None,
            n_trained_tables=n_trained_tables,
            indicator_cache=keeping,
            workers=worker_handles,
        )
        reveal_validation_results(runtime, training_spec, plan, trained, None, worker_handles)

    return run_training


USED_SEEDS_FOLDER = "used-correlations"
"""The folder, beside a participant's models, of the marks of seeds that it has used."""
_NO_RANDOMNESS = "none"
"""What a participant without a file states as its dealing."""


class PreprocessingSpec(StrictSchema):
    """What correlations are dealt for: all that the dealer's part depends on."""

    version: Name
    """Of the software."""
    job: Name
    """The job's digest."""
    samples: Annotated[int, Field(ge=0)]
    features: list[int]
    """How many each participant has."""
    cuts: list[int] | None
    """How many cuts each of them has, if the job has that told."""
    length: Name
    """How many tables are trained."""
    monotone: list[int] = Field(default_factory=list)
    """The constraint of each of them, if there are any."""
    done: Annotated[int, Field(ge=0)]
    """How many tables are there already."""
    numbers: dict[Name, Name]
    """Digests of the numbers that the dealer computed with."""

    @classmethod
    def for_training(
        cls, job: Job, training_spec: TrainingSpec, n_samples: int, n_trained_tables: int
    ) -> PreprocessingSpec:
        """Return what there is to do, as this machine would do it."""
        features, cuts = training_spec.features, training_spec.announced_cut_counts
        counts = Counter(feature.owner for feature in features)
        return cls(
            version=__version__,
            job=job.digest,
            samples=n_samples,
            features=[counts[name] for name in job.party_names],
            cuts=None if cuts is None else list(cuts),
            length=job.stopping_rule,
            monotone=list(training_spec.monotone),
            done=n_trained_tables,
            numbers=digest_public_constants(training_spec, n_samples),
        )

    def format_command(self) -> str:
        """Return the command that deals for it."""
        counts = ",".join(str(count) for count in self.features)
        if self.cuts is not None:
            cuts = self.cuts[:1] if len(set(self.cuts)) == 1 else self.cuts
            counts += f" --cuts {','.join(str(count) for count in cuts)}"
        if self.monotone:
            counts += f" --monotone={','.join(str(sign) for sign in self.monotone)}"
        done = f" --done {self.done}" if self.done else ""
        return (
            f"`privet dealer --job job.toml --ahead FOLDER --samples {self.samples} "
            f"--features {counts}{done}`"
        )


def generate_preprocessing_files(
    job: Job,
    training_spec: TrainingSpec,
    identity: Identity,
    folder: Path,
    n_samples: int,
    n_trained_tables: int,
    emit: EventHandler,
    dealer_peers: DealerPeers | None = None,
) -> list[Path]:
    """Deal for a training before anybody is there; return the participants' files.

    Three dealers do so together, each with its fellows, once they have `agreed_with` each other.
    """
    plan = training_spec.make_plan(n_samples)
    if plan.params.patience is not None and (plan.reveal_validation or plan.has_explanations):
        raise ParameterError(
            "reveal_validation, explain: nobody knows ahead when a training with patience will "
            "end, so its last step cannot be dealt for: leave one of the two out, or have the "
            "dealer be there"
        )
    program = make_dealer_training_program(
        training_spec, plan, n_trained_tables, None, rows_are_aligned=job.align
    )
    terms = PreprocessingSpec.for_training(
        job, training_spec, n_samples, n_trained_tables
    ).model_dump()
    needed = count_preprocessing_bytes(program, job.party_names, identity, terms, dealer_peers)
    most = "" if dealer_peers is None else "at most "
    emit(
        Event(
            "room",
            f"{len(job.party_names)} files in {folder} will take {most}{needed:,} bytes",
            {"bytes": needed},
        )
    )
    check_free_space(make_folder(folder), needed)
    tables = job.make_params().tables

    def on_table(table: int) -> None:
        emit(Event("table", f"table {table} of {tables} dealt", {"table": table, "tables": tables}))

    return preprocess(program, job.party_names, folder, identity, terms, on_table, dealer_peers)


class LocalPreprocessing:
    """One participant's file, or the lack of it."""

    def __init__(
        self, source: PreprocessingReceiver | None, problem: str, used_seeds_folder: Path
    ) -> None:
        self._source = source
        self._problem = problem
        self._used_seeds_folder = used_seeds_folder

    @classmethod
    def load(
        cls,
        paths: Sequence[str],
        folder: Path,
        job: Job,
        name: str,
        columns: BucketedColumns,
        *,
        is_resuming: bool = False,
    ) -> LocalPreprocessing:
        """Check a file, or one of each of three dealers, before anybody is bothered.

        Whoever is going on with a training has used its file up. What to order then depends on what
        the others have, so the complaint waits until all have met.
        """
        record = folder / USED_SEEDS_FOLDER
        try:
            dealers = {n: contact.fingerprint for n, contact in job.get_dealer_entries().items()}
            source = open_preprocessing(paths, dealers)
            try:
                _check_local_file(source, record, job, name, columns)
            except BaseException:
                source.close()
                raise
        except CorrelationError as error:
            if not is_resuming:
                raise
            return cls(None, str(error), record)
        return cls(source, "", record)

    @property
    def randomness_id(self) -> str:
        """The name of the dealing, to be compared."""
        return _NO_RANDOMNESS if self._source is None else self._source.manifest.dealing

    def consume(self, channel: Channel, job: Job, agreement: Agreement) -> PreprocessingReceiver:
        """Use the file up, if everybody has its own of the same dealing, made for this."""
        federation = job.make_training_spec(agreement.features, agreement.cut_counts)
        work = PreprocessingSpec.for_training(
            job, federation, agreement.n_samples, agreement.resume_from[0]
        )
        anew = f"{NEW_RUN_ADVICE}: {work.format_command()}"
        ours = f"{self._problem}; " if self._problem else ""
        told = {n: f"dealing {dealing}" for n, dealing in agreement.randomness_ids.items()}
        require_equal(
            channel,
            {"correlations": told},
            f"{ours}all need their files of one dealing: fetch them from the dealer, or {anew}",
        )
        try:
            if self._source is None:
                raise CorrelationError(f"{ours}{work.done} tables are done, so {anew}")
            _check_spec(self._source, work.model_dump(), anew)
            self._source.consume(self._used_seeds_folder)
        except PrivetError:
            channel.close_best_effort()  # as everybody does, who has its file of the same dealing
            raise
        return self._source

    def close(self) -> None:
        """Leave the file as it is."""
        if self._source is not None:
            self._source.close()


def _check_local_file(
    source: PreprocessingReceiver,
    used_seeds_folder: Path,
    job: Job,
    name: str,
    columns: BucketedColumns,
) -> None:
    """Raise CorrelationError unless a file is ours, not used, and for what we know of the work."""
    if source.manifest.participant != name:
        raise CorrelationError(
            f"{source.path}: is for {source.manifest.participant}, not for {name}: put our own "
            "there"
        )
    source.check_unused(used_seeds_folder)
    work, own, n_features = _parse_spec(source), job.party_names.index(name), len(columns.names)
    features = [*work.features[:own], n_features, *work.features[own + 1 :]]
    before = sum(features[:own])
    told = disclose_cut_counts(
        columns.cut_counts, job.cut_disclosure, job.make_params().max_cut_count
    )
    cuts = work.cuts or []
    due = {
        "version": __version__,
        "job": job.digest,
        "length": job.stopping_rule,
        "samples": columns.n_samples,
        "features": features,
        "cuts": told and [*cuts[:before], *told, *cuts[before + n_features :]],
    }
    _check_spec(source, due, NEW_RUN_ADVICE)


def _parse_spec(source: PreprocessingReceiver) -> PreprocessingSpec:
    try:
        return PreprocessingSpec.model_validate(source.manifest.terms)
    except ValidationError as error:
        raise CorrelationError(
            f"{source.path}: says nonsense of what it is for: {format_validation_error(error)}: "
            f"{NEW_RUN_ADVICE}"
        ) from None


def _check_spec(source: PreprocessingReceiver, expected: dict[str, Any], advice: str) -> None:
    """Raise CorrelationError unless a file was dealt for what is due, as far as that is known."""
    found = _parse_spec(source).model_dump()
    keys = ("version", "job", "length", "samples", "features", "cuts", "monotone", "done")
    for key in keys:
        if key in expected and found[key] != expected[key]:
            raise CorrelationError(
                f"{source.path}: was dealt for {_NAMES[key]}: {found[key]}, and here it is "
                f"{expected[key]}: {advice}"
            )
    if "numbers" in expected and found["numbers"] != expected["numbers"]:
        differing = [k for k, v in expected["numbers"].items() if found["numbers"].get(k) != v]
        raise CorrelationError(
            f"{source.path}: was dealt with other {', '.join(differing)}: {MISMATCH_ADVICE}"
        )


_NAMES = {
    "version": "the version",
    "job": "a job with the digest",
    "length": "a training of",
    "samples": "samples",
    "features": "features of the participants",
    "cuts": "numbers of cuts",
    "monotone": "constraints",
    "done": "tables done",
}


def generate_replicated_preprocessing(
    member: LocalMember,
    training_spec: TrainingSpec,
    folder: Path,
    n_samples: int,
    n_trained_tables: int,
) -> list[Path]:
    """Deal for a training with the other two dealers; return our files for the participants."""
    job = member.job
    with member.connect(same_role_only=True) as channel:
        channel.current_step = lambda: "agreement"
        work = PreprocessingSpec.for_training(
            job, training_spec, n_samples, n_trained_tables
        ).model_dump()
        ours = {"terms": job.list_agreed_settings(), **work}
        received = exchange_messages(
            channel, dict.fromkeys(channel.peers, json.dumps(_digest_values(ours)).encode())
        )
        stated = {member.name: _digest_values(ours)}
        for peer, content in received.items():
            stated[peer] = _parse_digests(content)
        keys = dict.fromkeys(key for each in stated.values() for key in each)
        require_equal(
            channel,
            {key: {name: stated[name].get(key, "none") for name in stated} for key in keys},
            "all three dealers take the same job and the same options",
        )
        fellows = DealerPeers(job.dealer_names.index(member.name), job.dealer_names, channel)
        channel.current_step = lambda: "dealing ahead"
        paths = generate_preprocessing_files(
            job,
            training_spec,
            member.identity,
            folder,
            n_samples,
            n_trained_tables,
            member.emit,
            fellows,
        )
        channel.close()
    return paths


def _digest_values(settings: dict[str, object]) -> dict[str, str]:
    """Return what is compared: short values as they are, long ones as digests."""
    texts = {key: json.dumps(value, sort_keys=True) for key, value in settings.items()}
    return {
        key: text if len(text) < 100 else hashlib.sha256(text.encode()).hexdigest()[:16]
        for key, text in texts.items()
    }


def _parse_digests(content: bytes) -> dict[str, str]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        found = {"statement": "no statement"}
    return {str(key): str(value) for key, value in found.items()}
