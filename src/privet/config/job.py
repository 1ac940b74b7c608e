"""job.toml: the settings that all participants and dealers of a job agree on.

    name = "churn"
    task = "classification"

    align = true

    [params]
    tables = 50

    [dealer]
    address = "dealer.example:7400"
    fingerprint = "5f0c..."

    [[participants]]
    name = "bank"
    role = "active"
    address = "bank.example:7401"
    fingerprint = "91ab..."

The job describes no participant's data. With `align = true`, `[ids]` sets the parts of an id:

    [ids]
    parts = ["name", "born"]
    minimum = 1000

    [ids.normalise]
    name = ["strip", "casefold"]

Each participant names the columns of these parts in its party.toml, in the same order.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from pydantic import Field, model_validator
from typing_extensions import Self

from privet.boosting.model import Feature
from privet.boosting.model_part import MAX_PREDICTION_BITS
from privet.boosting.prediction import PredictionQuery
from privet.boosting.training import PROTOCOL_TYPES, TrainingSpec, resolve_cut_disclosure
from privet.config.members import Roster, check_no_open_entries
from privet.data.frame import IdRule
from privet.errors import ParameterError
from privet.protocols.protocol import require_capabilities
from privet.runtime.run import COORDINATOR_NAME, make_worker_names
from privet.schema import Config, check_name, is_printable
from privet.spec.capabilities import PROTOCOL_SETTINGS, check_capabilities
from privet.spec.params import DEFAULT_PROTOCOL, Params, Task
from privet.spec.plan import (
    MAX_SHARDS,
    CutDisclosure,
    ExplainBy,
    MonotoneConstraints,
    list_constraints_by_feature,
    require_single_output,
)

MAX_ALIGNED_ROWS = 60_000_000
"""The most rows that a job can align: a stored alignment must fit the file size limit."""
_PARTS = ("id",)
_Count = Annotated[int, Field(ge=1, le=MAX_ALIGNED_ROWS)]


class IdSettings(Config):
    """Ids, as all participants compare them."""

    parts: Annotated[list[str], Field(min_length=1, max_length=16)] = Field(
        default_factory=lambda: list(_PARTS)
    )
    """What an id is composed of."""
    normalise: dict[str, list[IdRule]] = Field(default_factory=dict)
    """How the parts are written where they are compared; a list of rules is for all of them."""
    minimum: _Count = 100
    """With fewer rows that all have, an alignment is an error."""
    padded: _Count | None = None
    """Everybody seems to have so many rows, to the dealer."""
    most_alignments: Annotated[int, Field(ge=1)] | None = None
    """How often a job may be aligned, predictions and services included."""

    @model_validator(mode="before")
    @classmethod
    def _expand_rules(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("normalise"), list):
            parts = values.get("parts", _PARTS)
            return {**values, "normalise": dict.fromkeys(parts, values["normalise"])}
        return values

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if len(set(self.parts)) < len(self.parts) or not all(map(is_printable, self.parts)):
            raise ValueError(f"parts: {self.parts} are not names that all differ")
        for part in self.normalise:
            if part not in self.parts:
                raise ValueError(
                    f"normalise: {part!r} is no part of an id; there are {', '.join(self.parts)}"
                )
        if self.padded is not None and self.padded < self.minimum:
            raise ValueError(f"padded: {self.padded} rows are fewer than the minimum")
        return self

    @property
    def rules_by_part(self) -> list[list[IdRule]]:
        """The normalisation rules of each part."""
        return [self.normalise.get(part, []) for part in self.parts]

    @property
    def alignment_only_keys(self) -> list[str]:
        """The keys set here that have no effect without alignment."""
        keys = ("minimum", "padded", "most_alignments")
        fields = type(self).model_fields
        return [key for key in keys if getattr(self, key) != fields[key].default]

    def list_digest_settings(self) -> dict[str, Any]:
        """Return the settings that decide which rows have the same id."""
        rules = dict(zip(self.parts, self.rules_by_part, strict=True))
        return {"ids.parts": self.parts, "ids.normalise": rules}

    def list_mutable_settings(self) -> dict[str, Any]:
        """Return the other settings, which can change after the start of a job."""
        keys = ("minimum", "padded", "most_alignments")
        return {f"ids.{key}": getattr(self, key) for key in keys}


class DisclosureSettings(Config):
    """The optional disclosures of a job; by default, none is made."""

    reveal_validation: bool = False
    """Whether the label's holder receives the predictions of validation rows when a training ends,
    for metrics and curves in its report. Otherwise it learns their mean loss, table by table."""
    reveal_loss: bool = False
    """Whether all learn the training loss, table by table: the mean squared residual, of several
    classes their sum, in a regression relative to the square of the label's unit, which only its
    holder knows."""
    reveal_gain: bool = False
    """Whether the label's holder learns by how much each level of a table lowers the loss: for
    importances by gain, in its part and its report."""
    explain: ExplainBy | None = None
    """What the recipient may have beside predictions: what each "feature" contributes to a score,
    or what all features of each "participant" do. Nothing, if the job does not say."""
    reveal_importances: bool = False
    """Whether the label's holder learns, when a training ends, how large the contributions to the
    scores of validation rows are on average: of each feature or participant, as `explain` says."""

    def list_settings(self) -> dict[str, object]:
        """Return the disclosure settings, by key."""
        return {key: getattr(self, key) for key in DisclosureSettings.model_fields}


class Job(DisclosureSettings, Roster):
    """One training and the predictions of its model."""

    task: Task
    """What is learned: `"classification"` or `"regression"`."""
    classes: int = 2
    """How many values the label of a classification has, 2 to 32. All learn it, and no names."""
    protocol: str = DEFAULT_PROTOCOL
    """How the participants compute: `"masked"`, or `"paper"`, which is much slower."""
    recipient: str = ""
    """Who receives predictions: the active participant, if nobody else is named."""
    weighted: bool = False
    """Whether rows have weights, which the active participant alone knows: `weight` or
    `class_weight` in its party.toml."""
    export: str = ""
    """Who may get the whole model, all parts of it joined, by `privet export`: nobody, if nobody is
    named. All can agree on it after a training, too: a job with another name here can still be
    used with its model."""
    cuts: CutDisclosure | None = None
    """What all learn of how many cuts each column has: "exact", "rounded" (up to 1, 3, 7, 15, ...)
    or "hidden". The fewer cuts, the less there is to compute. The protocol `masked` has "rounded"
    if the job does not say, `paper` has "hidden" alone."""
    keep_indicators: bool = False
    """Whether participants keep masked indicators, so that another training on the same rows, of
    this job or of one like it, need not publish them again. With the seeds that owners keep and
    tell the dealer, these are all buckets of all rows (SECURITY.md)."""
    prediction_bits: Annotated[int, Field(ge=0, le=MAX_PREDICTION_BITS)] | None = None
    """Predictions are rounded to 2^-prediction_bits before they are revealed: a classification's in
    the score (the log-odds), a regression's in the label's unit, which is between its root mean
    square and about twice that. 10 and 12, if the job does not say."""
    align: bool = False
    """Whether participants find the rows that all of them have, with the dealer's help, and use
    these. Otherwise all must have the same rows, in the same order."""
    ids: IdSettings = Field(default_factory=IdSettings)
    """What an id is, and how ids are compared and aligned."""
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    """In how many parts rows are trained on, all cut alike. Each has a group of workers, one of
    every participant and dealer: where those are is everybody's own business (`cluster` in
    party.toml)."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Hyper-parameters by name, but for the task: see `[params]`."""

    @model_validator(mode="before")
    @classmethod
    def _check_no_open_entries(cls, values: Any) -> Any:
        check_no_open_entries(values)
        return values

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        check_name(self.name)
        if self.protocol not in PROTOCOL_TYPES:
            raise ValueError(f"protocol: {self.protocol!r} is none of {', '.join(PROTOCOL_TYPES)}")
        names = self.party_names
        self.check_dealer_settings(names, self.protocol, align=self.align)
        for noun, values in (
            ("names", names),
            ("fingerprints", [entry.fingerprint for entry in self.get_entries().values()]),
            ("addresses", [entry.address for entry in self.get_entries().values()]),
        ):
            duplicate = next((value for value in values if values.count(value) > 1), None)
            if duplicate is not None:
                raise ValueError(f"participants: two have the same of {noun}, {duplicate!r}")
        active = [p.name for p in self.participants if p.role == "active"]
        if len(active) != 1:
            raise ValueError(
                f'participants: exactly one has role = "active", and here {len(active)} have'
            )
        params = self.make_params()
        settings = {key: getattr(self, key) for key in PROTOCOL_SETTINGS}
        check_capabilities(self.protocol, {**settings, **self.list_settings()}, params)
        if self.shards > 1:
            require_capabilities(PROTOCOL_TYPES[self.protocol], self.protocol, {"shards": True})
            if self.keep_indicators:
                raise ValueError("keep_indicators: are not kept with shards: leave one of them out")
            if reserved := sorted(
                {COORDINATOR_NAME, *make_worker_names(self.shards)}.intersection(names)
            ):
                raise ValueError(f"participants: {reserved[0]!r} is a worker's name: take another")
        if self.ids.alignment_only_keys and not self.align:
            raise ValueError(
                f"ids.{self.ids.alignment_only_keys[0]}: is for jobs that say align = true"
            )
        resolve_cut_disclosure(self.protocol, self.cuts)
        for key, name in (("recipient", self.recipient), ("export", self.export)):
            if name and name not in names:
                raise ValueError(f"{key}: {name!r} is none of {', '.join(names)}")
        if self.monotone:
            require_single_output(params.objective)
        return self

    @property
    def monotone(self) -> dict[str, dict[str, int]]:
        """The monotone constraints on columns, by participant."""
        return {p.name: dict(p.monotone) for p in self.participants if p.monotone}

    @property
    def recipient_index(self) -> int:
        """The index of the participant that receives predictions."""
        return self.party_names.index(self.recipient) if self.recipient else self.label_holder_index

    @property
    def prediction_fraction_bits(self) -> int:
        """The number of fraction bits of revealed predictions."""
        bits = self.prediction_bits
        return self.make_params().objective.prediction_bits if bits is None else bits

    @property
    def cut_disclosure(self) -> CutDisclosure:
        """The disclosure of cut counts to all participants."""
        return resolve_cut_disclosure(self.protocol, self.cuts)

    def make_params(self) -> Params:
        """Return the hyper-parameters, including defaults."""
        task_settings = {"task": self.task, "classes": self.classes}
        for key in type(self).model_fields:
            if key in self.params:
                raise ParameterError(
                    f"params.{key}: is a key of the job itself, and not of [params]: write it "
                    "above all [sections]"
                )
        Params.parse(task_settings)
        try:
            return Params.parse({**task_settings, **self.params})
        except ParameterError as error:
            raise ParameterError(f"params.{error}") from None

    def make_training_spec(
        self,
        features: tuple[Feature, ...],
        cut_counts: tuple[int, ...] | None = None,
        monotone: MonotoneConstraints | None = None,
    ) -> TrainingSpec:
        """Return the specification of a training run on these features.

        `cut_counts` are set if all participants know them. `monotone` is needed only by parties
        that do not know the feature names; otherwise it follows from the job.
        """
        if monotone is None:
            named = [(feature.owner, feature.name) for feature in features]
            monotone = tuple(list_constraints_by_feature(named, self.monotone))
        return TrainingSpec(
            protocol=self.protocol,
            params=self.make_params(),
            parties=tuple(self.party_names),
            features=features,
            active=self.label_holder_index,
            prediction_bits=self.prediction_fraction_bits,
            is_weighted=self.weighted,
            reveal_loss=self.reveal_loss,
            reveal_gain=self.reveal_gain,
            has_explanations=self.explain is not None,
            reveal_validation=self.reveal_validation,
            importances_by=self.explain if self.reveal_importances else None,
            announced_cut_counts=cut_counts,
            monotone=monotone if any(monotone) else (),
            shards=self.shards,
        )

    def make_prediction_query(
        self, n_samples: int, tables: int, n_explained_features: int | None = None
    ) -> PredictionQuery:
        """Return the specification of a prediction batch for a model with this many tables.

        `n_explained_features` is the number of features of all participants together, if the
        predictions are to be explained.
        """
        params = self.make_params()
        return PredictionQuery(
            protocol=self.protocol,
            objective=params.objective,
            shape=(tables, params.depth, n_samples),
            active=self.label_holder_index,
            recipient=self.recipient_index,
            prediction_bits=self.prediction_fraction_bits,
            explain=None if n_explained_features is None else self.explain,
            n_features=n_explained_features or 0,
        )

    def list_digest_settings(self) -> dict[str, Any]:
        """Return all settings that decide the results and who learns them, without addresses."""
        return {
            "job": self.name,
            "protocol": self.protocol,
            "recipient": self.party_names[self.recipient_index],
            "participants": self.party_names,
            "active": self.party_names[self.label_holder_index],
            "weighted": self.weighted,
            **self.list_settings(),
            "cuts": self.cut_disclosure,
            "keep_indicators": self.keep_indicators,
            "prediction_bits": self.prediction_fraction_bits,
            "align": self.align,
            **({"monotone": self.monotone} if self.monotone else {}),
            **({"shards": self.shards} if self.shards > 1 else {}),
            **self.ids.list_digest_settings(),
            **self.make_params().model_dump(),
        }

    def list_agreed_settings(self) -> dict[str, Any]:
        """Return all settings that participants agree on, including defaults."""
        dealers = {"dealers": list(self.dealer_names), "dealers' players": self.dealer_operators}
        # `list_digest_settings` omits these at their defaults, so that the digests of older models
        # do not change.
        defaults = {"monotone": self.monotone, "shards": self.shards}
        agreed = {
            **defaults,
            **self.list_digest_settings(),
            "export": self.export,
            **self.ids.list_mutable_settings(),
            **dealers,
        }
        return {**agreed, **self.list_connection_settings()}

    @property
    def digest(self) -> str:
        """A digest of the settings that decide the results and who learns them.

        It omits settings that can change during a job: addresses and keys, limits on alignments,
        the recipient of the exported model, and `tables` and `patience`, since training can resume.
        """
        omitted_keys = ("tables", "patience")
        settings = {
            key: value
            for key, value in self.list_digest_settings().items()
            if key not in omitted_keys
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    @property
    def stopping_rule(self) -> str:
        """The settings that decide when training stops, besides the data."""
        params = self.make_params()
        return f"{params.tables} tables, patience {params.patience}"
