"""Offline preprocessing: correlated randomness for a training run, by one dealer or three.

No dealer is online to compare anything, so a preprocessing file contains all that a dealer would
have stated, and each participant compares it with the agreement. Only then do the participants use
their files: all of them, from the same preprocessing run, or none.
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
    """Return features as the dealer knows them: with owners and numbers, without names."""
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
    """Return the dealer's program of a training run, with a channel or for preprocessing.

    If `rows_are_aligned`, the ids are known to match, and are not compared.
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
"""The folder, next to a participant's models, that records which seeds it has used."""
_NO_RANDOMNESS = "none"
"""Stands for the preprocessing run in the proposal of a participant without a file."""


class PreprocessingSpec(StrictSchema):
    """The settings that correlated randomness is generated for: all that the dealer depends on."""

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
        """Return the specification for a training run on this machine."""
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
        """Return the command that generates files for this specification."""
        counts = ",".join(str(count) for count in self.features)
        if self.cuts is not None:
            cuts = self.cuts[:1] if len(set(self.cuts)) == 1 else self.cuts
            counts += f" --cuts {','.join(str(count) for count in cuts)}"
        if self.monotone:
            counts += f" --monotone={','.join(str(sign) for sign in self.monotone)}"
        done_option = f" --done {self.done}" if self.done else ""
        return (
            f"`privet dealer --job job.toml --ahead FOLDER --samples {self.samples} "
            f"--features {counts}{done_option}`"
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
    """Generate preprocessing files for a training run; return one file for each participant.

    Three dealers generate theirs together, each with its `dealer_peers`, after they have agreed
    (`generate_replicated_preprocessing`).
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
    spec = PreprocessingSpec.for_training(
        job, training_spec, n_samples, n_trained_tables
    ).model_dump()
    n_bytes = count_preprocessing_bytes(program, job.party_names, identity, spec, dealer_peers)
    bound = "" if dealer_peers is None else "at most "
    emit(
        Event(
            "room",
            f"{len(job.party_names)} files in {folder} will take {bound}{n_bytes:,} bytes",
            {"bytes": n_bytes},
        )
    )
    check_free_space(make_folder(folder), n_bytes)
    tables = job.make_params().tables

    def on_table(table: int) -> None:
        emit(Event("table", f"table {table} of {tables} dealt", {"table": table, "tables": tables}))

    return preprocess(program, job.party_names, folder, identity, spec, on_table, dealer_peers)


class LocalPreprocessing:
    """One participant's preprocessing file, or the reason why it has none."""

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
        """Open and check a file, or one from each of three dealers, before peers are contacted.

        A participant that resumes training has used its file. The command for a new one depends on
        the other participants' checkpoints, so that error is raised later, in `consume`.
        """
        used_seeds_folder = folder / USED_SEEDS_FOLDER
        try:
            dealers = {
                dealer: entry.fingerprint for dealer, entry in job.get_dealer_entries().items()
            }
            source = open_preprocessing(paths, dealers)
            try:
                _check_local_file(source, used_seeds_folder, job, name, columns)
            except BaseException:
                source.close()
                raise
        except CorrelationError as error:
            if not is_resuming:
                raise
            return cls(None, str(error), used_seeds_folder)
        return cls(source, "", used_seeds_folder)

    @property
    def randomness_id(self) -> str:
        """Id of the preprocessing run, to be compared with the other participants."""
        return _NO_RANDOMNESS if self._source is None else self._source.manifest.dealing

    def consume(self, channel: Channel, job: Job, agreement: Agreement) -> PreprocessingReceiver:
        """Mark the file as used and return it, if all participants' files match the agreement."""
        training_spec = job.make_training_spec(agreement.features, agreement.cut_counts)
        spec = PreprocessingSpec.for_training(
            job, training_spec, agreement.n_samples, agreement.resume_from[0]
        )
        advice = f"{NEW_RUN_ADVICE}: {spec.format_command()}"
        problem = f"{self._problem}; " if self._problem else ""
        randomness_ids = {
            name: f"dealing {randomness_id}"
            for name, randomness_id in agreement.randomness_ids.items()
        }
        require_equal(
            channel,
            {"correlations": randomness_ids},
            f"{problem}all need their files of one dealing: fetch them from the dealer, or "
            f"{advice}",
        )
        try:
            if self._source is None:
                raise CorrelationError(f"{problem}{spec.done} tables are done, so {advice}")
            _check_spec(self._source, spec.model_dump(), advice)
            self._source.consume(self._used_seeds_folder)
        except PrivetError:
            channel.close_best_effort()  # as do all participants with files of the same run
            raise
        return self._source

    def close(self) -> None:
        """Close the file without marking it as used."""
        if self._source is not None:
            self._source.close()


def _check_local_file(
    source: PreprocessingReceiver,
    used_seeds_folder: Path,
    job: Job,
    name: str,
    columns: BucketedColumns,
) -> None:
    """Raise CorrelationError unless a file is the participant's, unused and matches its data."""
    if source.manifest.participant != name:
        raise CorrelationError(
            f"{source.path}: is for {source.manifest.participant}, not for {name}: put our own "
            "there"
        )
    source.check_unused(used_seeds_folder)
    spec, index, n_features = _parse_spec(source), job.party_names.index(name), len(columns.names)
    features = [*spec.features[:index], n_features, *spec.features[index + 1 :]]
    n_before = sum(features[:index])
    cut_counts = disclose_cut_counts(
        columns.cut_counts, job.cut_disclosure, job.make_params().max_cut_count
    )
    cuts = spec.cuts or []
    expected = {
        "version": __version__,
        "job": job.digest,
        "length": job.stopping_rule,
        "samples": columns.n_samples,
        "features": features,
        "cuts": cut_counts and [*cuts[:n_before], *cut_counts, *cuts[n_before + n_features :]],
    }
    _check_spec(source, expected, NEW_RUN_ADVICE)


def _parse_spec(source: PreprocessingReceiver) -> PreprocessingSpec:
    try:
        return PreprocessingSpec.model_validate(source.manifest.terms)
    except ValidationError as error:
        raise CorrelationError(
            f"{source.path}: says nonsense of what it is for: {format_validation_error(error)}: "
            f"{NEW_RUN_ADVICE}"
        ) from None


def _check_spec(source: PreprocessingReceiver, expected: dict[str, Any], advice: str) -> None:
    """Raise CorrelationError unless a file was generated for the expected values."""
    spec = _parse_spec(source).model_dump()
    keys = ("version", "job", "length", "samples", "features", "cuts", "monotone", "done")
    for key in keys:
        if key in expected and spec[key] != expected[key]:
            raise CorrelationError(
                f"{source.path}: was dealt for {_NAMES[key]}: {spec[key]}, and here it is "
                f"{expected[key]}: {advice}"
            )
    if "numbers" in expected and spec["numbers"] != expected["numbers"]:
        differing = [k for k, v in expected["numbers"].items() if spec["numbers"].get(k) != v]
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
    """Generate preprocessing files with the other two dealers; return those of this dealer."""
    job = member.job
    with member.connect(same_role_only=True) as channel:
        channel.current_step = lambda: "agreement"
        spec = PreprocessingSpec.for_training(
            job, training_spec, n_samples, n_trained_tables
        ).model_dump()
        local_terms = {"terms": job.list_agreed_settings(), **spec}
        received = exchange_messages(
            channel, dict.fromkeys(channel.peers, json.dumps(_digest_values(local_terms)).encode())
        )
        stated = {member.name: _digest_values(local_terms)}
        for peer, content in received.items():
            stated[peer] = _parse_digests(content)
        keys = dict.fromkeys(key for each in stated.values() for key in each)
        require_equal(
            channel,
            {key: {name: stated[name].get(key, "none") for name in stated} for key in keys},
            "all three dealers take the same job and the same options",
        )
        dealer_peers = DealerPeers(job.dealer_names.index(member.name), job.dealer_names, channel)
        channel.current_step = lambda: "dealing ahead"
        paths = generate_preprocessing_files(
            job,
            training_spec,
            member.identity,
            folder,
            n_samples,
            n_trained_tables,
            member.emit,
            dealer_peers,
        )
        channel.close()
    return paths


def _digest_values(settings: dict[str, object]) -> dict[str, str]:
    """Return the values to compare: short ones as they are, long ones as digests."""
    texts = {key: json.dumps(value, sort_keys=True) for key, value in settings.items()}
    return {
        key: text if len(text) < 100 else hashlib.sha256(text.encode()).hexdigest()[:16]
        for key, text in texts.items()
    }


def _parse_digests(content: bytes) -> dict[str, str]:
    try:
        digests = json.loads(content)
    except (ValueError, RecursionError):
        digests = None
    if not isinstance(digests, dict):
        digests = {"statement": "no statement"}
    return {str(key): str(value) for key, value in digests.items()}
