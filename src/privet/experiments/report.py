"""The report of an experiment: its settings, metrics and cost."""

from __future__ import annotations

from pydantic import Field

from privet.federation.monitoring.report import ReportModel, Reveal, ValidationReport
from privet.spec.params import Params
from privet.spec.plan import CutDisclosure


class ExperimentSeconds(ReportModel):
    """Wall time."""

    train: float
    """Bucketing and training; with a secure protocol, also starting the participants and the
    predictions of the test rows. Dealing is part of it as `dealer` says, and none of it if that was
    done ahead."""
    total: float = 0.0
    """Everything from reading the data to the metrics."""
    setup: float = 0.0
    """Of `train`: what the participants share before the first table."""
    offline: float = 0.0
    """The dealer's own computing: beside the participants', or ahead."""
    ahead: float = 0.0
    """Dealing into files before the participants start; not part of `train`."""
    online: float = 0.0
    """Of `train`: the participants' work on all tables, waiting for each other included."""


class ExperimentBytes(ReportModel):
    """Traffic of a training: the arrays' bytes, without frames and TLS."""

    online_total: int = 0
    """What all participants sent each other for the tables."""
    online_max_party: int = 0
    """What the busiest participant sent."""
    offline_total: int = 0
    """What the dealer sent, or all three."""
    between_dealers: int = 0
    """What three dealers sent each other."""
    setup_total: int = 0
    """What all participants sent each other before the first table."""


class EstimatedSeconds(ReportModel):
    """What the cost model says a training takes, for each place of the dealer's.

    On this machine's cores and the report's network.
    """

    ahead: float
    """With correlations that were dealt, and sent, before."""
    own: float
    """With a dealer that sends meanwhile, on a link of its own of the same delay and rate."""
    shared: float
    """With a dealer that sends on the participants' link."""


class ExperimentRounds(ReportModel):
    """Network delays that a participant waited for in a training."""

    total: int = 0
    """Of the whole training."""
    per_level: float = 0.0
    """Choosing one test and splitting by it, on average."""


class Report(ReportModel):
    """One experiment. Keys may be added in later versions; none is renamed."""

    version: str
    """Of this software."""
    data: str
    """The data set, or the file's name."""
    protocol: str
    """How it was trained."""
    cuts: CutDisclosure = "hidden"
    """What all learn of the numbers of cuts."""
    n_parties: int
    """How many participants."""
    n_samples: int
    """Training rows."""
    n_test_samples: int
    """Rows that were set aside and predicted."""
    n_features: int
    """Of all participants together."""
    seed: int
    """What test rows were chosen by."""
    stratified: bool = False
    """Whether training and test rows have the same share of each class."""
    classes: list[str] = Field(default_factory=list)
    """Of the label, if it has any: of two, the positive one is the last."""
    warnings: list[str] = Field(default_factory=list)
    """What there is to know of the table."""
    params: Params
    """The hyper-parameters."""
    metrics: dict[str, float | None]
    """On the test rows: rmse, mae and r2; or accuracy, auc, ks, average_precision (null where the
    test rows have one class), log_loss and brier; or, of more than two classes, accuracy, log_loss
    and auc, the mean of each class against the rest (null where the test rows lack a class)."""
    plain_metrics: dict[str, float | None]
    """The same of the model that `plain` trains on the same rows with the same parameters."""
    validation: ValidationReport | None = None
    """What the label's holder learned of validation rows, if there are any."""
    plain_validation: ValidationReport | None = None
    """The same of the model that `plain` trains."""
    same_tests: float
    """The share of levels at which both models split the training rows in the same way."""
    network: str
    """How the participants were connected."""
    dealer: str = "own"
    """Where the dealer's bytes went: `ahead`, into files; or meanwhile on its `own` link, the
    `shared` one of the participants, or `none`, past any emulated link."""
    seconds: ExperimentSeconds
    """What it took, in time."""
    estimated_seconds: EstimatedSeconds | None = None
    """Where the network is an emulated link that all share."""
    bytes: ExperimentBytes
    """What was sent."""
    rounds: ExperimentRounds
    """How often somebody waited for a message."""
    reveals: list[Reveal]
    """What left the protocol in the clear."""
    peak_rss_mb: float
    """The most memory of any participant's process; of the whole process where they share one."""
    feature_names: list[str]
    """In the order in which `tests` count them."""
    feature_owners: list[str]
    """Who holds each of them."""
    tests: list[list[tuple[int, int]]]
    """The feature's index and the bucket of every level of every table."""
