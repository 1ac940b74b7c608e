"""party.toml: a participant's keys, table, endpoint and workers, which nobody else sees.

    name = "bank"
    key = "bank.key"
    certificate = "bank.crt"
    folder = "models"
    correlations = "bank.correlations"

    [data]
    path = "customers.parquet"
    id = "customer"
    label = "churned"

Paths are relative to the file. For rows in shards, `[cluster]` starts the workers as processes of
this machine:

    [cluster]
    local = 4

or on machines that a Dask scheduler manages:

    [cluster]
    scheduler = "tls://scheduler.bank.example:8786"
    ca = "ca.pem"
    certificate = "client.pem"
    key = "client.key"

Without it, workers are threads of one process. A dealer has a file of its own for these keys,
without the line `[cluster]`. The recipient of a service sets its HTTP endpoint:

    [endpoint]
    address = "0.0.0.0:8443"
    token = "shop.token"
    certificate = "scores.shop.example.crt"
    key = "scores.shop.example.key"
    hosts = ["scores.shop.example"]

All keys of both tables have defaults, which suit programs on the same machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator, model_validator
from typing_extensions import Self

from privet.config.job import Job
from privet.config.members import parse_address, validate_address
from privet.config.table import TableSpec
from privet.data.encoding import Encoder
from privet.data.frame import Frame, Ids, LazyFrame
from privet.data.reader import IdRules, read_lazy_frame, read_new_rows
from privet.errors import ParameterError, UnavailableError
from privet.schema import Config
from privet.transport.tls import count_host_days_left

TLS_FILE_KEYS = ("ca", "certificate", "key")
"""The files for mutual TLS with a scheduler."""


class ClusterConfig(Config):
    """Where workers are, and how they are reached."""

    local: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many processes on this machine they are spread over: at most one a worker."""
    scheduler: str | None = None
    """The address of a Dask scheduler, tls://HOST:PORT, on whose workers they are placed."""
    ca: str | None = None
    """Who has signed the scheduler's certificate: a PEM file."""
    certificate: str | None = None
    """Our certificate, for the scheduler: a PEM file."""
    key: str | None = None
    """Its key."""
    door: str | None = None
    """HOST:PORT where workers reach us; port 0 is any that is free. The address that we listen on,
    and any port, if nothing is said."""
    advertise: str | None = None
    """The host under which the workers of the others reach ours. That of our address in the job, if
    nothing is said, or, with a scheduler, the name of the machine that a worker is on."""
    ports: list[Annotated[int, Field(ge=1, lt=1 << 16)]] | None = None
    """The first and the last port that workers may listen on; any, if nothing is said."""

    @field_validator("door")
    @classmethod
    def _check_listen(cls, listen: str | None) -> str | None:
        return None if listen is None else validate_address(listen, lowest=0)

    @field_validator("ports")
    @classmethod
    def _check_port_range(cls, ports: list[int] | None) -> list[int] | None:
        if ports is not None and (len(ports) != 2 or ports[0] > ports[1]):
            raise ValueError("give the first and the last port, such as [7500, 7531]")
        return ports

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.scheduler is None:
            set_keys = [key for key in TLS_FILE_KEYS if getattr(self, key) is not None]
            if set_keys:
                raise ValueError(f"{set_keys[0]}: is for a scheduler, and none is named")
            return self
        if self.local is not None:
            raise ValueError(
                "local: workers are on this machine, or a scheduler places them: remove one of both"
            )
        if not self.scheduler.startswith(("tls://", "inproc://")):
            raise ValueError(
                f"scheduler: {self.scheduler!r} is no tls:// address: keys of workers travel to "
                "it, so it must be reached over TLS"
            )
        missing = [key for key in TLS_FILE_KEYS if getattr(self, key) is None]
        if missing and self.scheduler.startswith("tls://"):
            raise ValueError(
                f"{missing[0]}: is required with a scheduler: its operators gave you a PEM file"
            )
        return self

    @classmethod
    def load(cls, path: str | Path) -> ClusterConfig:
        """Read the cluster file of a dealer; paths are relative to the file."""
        return cls.read(path).resolve_paths(Path(path).resolve().parent)

    def resolve_paths(self, folder: Path) -> ClusterConfig:
        """Return the configuration with paths relative to a folder resolved."""
        paths = {
            key: str(folder / value)
            for key in TLS_FILE_KEYS
            if (value := getattr(self, key)) is not None
        }
        return self.model_copy(update=paths)


LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that other machines cannot connect to."""
_MIN_TOKEN_BYTES = 16
PositiveInt = Annotated[int, Field(ge=1)]


class HttpServerConfig(Config):
    """The address, TLS certificate, host names and limits of an HTTP server."""

    address: str = "127.0.0.1:0"
    """HOST:PORT to be asked at; port 0 is any that is free."""
    certificate: str | None = None
    """For TLS: the certificate of the host, with those of its issuers, as PEM."""
    key: str | None = None
    """The private key of that certificate, as PEM."""
    hosts: list[str] = Field(default_factory=list)
    """Names under which the endpoint is asked, beside its address."""
    origins: list[str] = Field(default_factory=list)
    """Pages elsewhere that may ask, as `https://desk.shop.example`; none, by default."""
    most_connections: PositiveInt = 1_000
    """So many clients are connected; whoever has been slow for longest makes room for another."""
    most_per_second: PositiveInt = 5_000
    """So many requests a second are taken from the same address, on average."""

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        parse_address(self.address, lowest=0)
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate, key: TLS takes both, or leave both out")
        return self

    @property
    def host(self) -> str:
        """The host of the address."""
        return parse_address(self.address, lowest=0)[0]

    @property
    def port(self) -> int:
        """The port of the address."""
        return parse_address(self.address, lowest=0)[1]

    def count_days_left(self) -> int | None:
        """Return the days until the certificate expires; None without a certificate."""
        if self.certificate is None or self.key is None:
            return None
        try:
            return count_host_days_left(self.key, self.certificate)
        except UnavailableError as error:
            raise ParameterError(
                f"endpoint.certificate, endpoint.key: cannot be used: {error}"
            ) from None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOOPBACK_HOSTS


class EndpointConfig(HttpServerConfig):
    """How the recipient is asked, by whom, and how much."""

    address: str = "127.0.0.1:8000"
    token: str | None = None
    """A file with the secret that whoever asks must show. Required if other machines can ask."""
    most_bytes: Annotated[int, Field(ge=1, le=1 << 28)] = 1 << 22
    """No request is longer."""
    most_rows: Annotated[int, Field(ge=1, le=5_000_000)] = 100_000
    """No request has more."""
    most_waiting: PositiveInt = 1_000
    """So many requests wait at a time."""
    deadline: Annotated[float, Field(gt=0)] = 30.0
    """Seconds after which a request is given up that was not answered."""

    @model_validator(mode="after")
    def _check_token_present(self) -> Self:
        if not self.is_local and self.token is None:
            raise ValueError(
                f"token: {self.address} can be asked from other machines: name a file with a "
                "secret that whoever asks must show"
            )
        return self

    def resolve_paths(self, folder: Path) -> EndpointConfig:
        """Return the configuration with paths relative to a folder resolved."""
        paths = {"token": self.token, "certificate": self.certificate, "key": self.key}
        named = {key: str(folder / path) for key, path in paths.items() if path is not None}
        return self.model_copy(update=named)

    def with_address(self, address: str | None) -> EndpointConfig:
        """Return the configuration with another address, unless `address` is None."""
        if address is None:
            return self
        return EndpointConfig(**{**self.model_dump(), "address": address})

    def read_token(self) -> bytes | None:
        """Return the secret that clients must send, if any."""
        if self.token is None:
            return None
        try:
            token = Path(self.token).read_bytes().strip()
        except OSError as error:
            raise ParameterError(f"endpoint.token: {self.token}: {error.strerror}") from None
        if len(token) < _MIN_TOKEN_BYTES or not token.isascii() or b" " in token:
            raise ParameterError(
                f"endpoint.token: {self.token}: holds no secret of {_MIN_TOKEN_BYTES} characters "
                "or more, without spaces: make one, as by `openssl rand -hex 32`"
            )
        return token


class LocalDealerConfig(Config):
    """The dealer that a participant plays, if the job has it play one: started with it."""

    key: str
    """The private key, as `privet keys` made it for this dealer."""
    certificate: str
    """The certificate of that key."""
    listen: str | None = None
    """HOST:PORT to listen on, where it is not the dealer's address in the job."""

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, listen: str | None) -> str | None:
        return None if listen is None else validate_address(listen)


class PartyConfig(Config):
    """One participant."""

    name: str
    """Ours, as the job has it."""
    key: str
    """The file with our private key, as `privet keys` made it."""
    certificate: str
    """The file with the certificate of that key."""
    listen: str | None = None
    """HOST:PORT to listen on, where it is not the address in the job."""
    folder: str = "models"
    """Where models, checkpoints and the record of used correlations are kept."""
    correlations: str | list[str] | None = None
    """The file that the dealer made ahead for a training, at which it is not there then; of three
    dealers, the file of each, in the order of the job."""
    dealer: LocalDealerConfig | None = None
    """If the job has us play a dealer, and it is to be started with us: a process of its own."""
    audit: str | None = None
    """The audit log, to which every session is added (`privet audit`)."""
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    """Where our workers are, in jobs that have rows in shards."""
    endpoint: EndpointConfig = Field(default_factory=EndpointConfig)
    """Where and how we are asked for predictions, if we are their recipient."""
    data: TableSpec
    """Our table: where it is, and what its columns are."""
    _file: str = PrivateAttr("party.toml")
    """Where this was read, for complaints."""

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, listen: str | None) -> str | None:
        return None if listen is None else validate_address(listen)

    @classmethod
    def load(cls, path: str | Path) -> PartyConfig:
        """Read a participant's file; its paths are relative to the file."""
        folder, config = Path(path).resolve().parent, cls.read(path)
        paths: dict[str, Any] = {
            key: str(folder / getattr(config, key)) for key in ("key", "certificate", "folder")
        }
        if config.audit is not None:
            paths["audit"] = str(folder / config.audit)
        if config.dealer is not None:
            keys = {
                key: str(folder / getattr(config.dealer, key)) for key in ("key", "certificate")
            }
            paths["dealer"] = config.dealer.model_copy(update=keys)
        if config.correlations is not None:
            paths["correlations"] = [str(folder / path) for path in config.preprocessing_paths]
        paths["endpoint"] = config.endpoint.resolve_paths(folder)
        paths["cluster"] = config.cluster.resolve_paths(folder)
        if config.data.id is None:
            raise ParameterError(f"{path}: data.id: is required: which sample a row is")
        loaded = config.model_copy(update={**paths, "data": config.data.resolve_paths(folder)})
        loaded._file = str(path)
        return loaded

    def check_membership(self, job: Job) -> None:
        """Raise ParameterError unless this participant is in the job."""
        if self.name not in job.party_names:
            raise self._make_error(
                f"name: {self.name!r} takes no part in the job {job.name!r}; there are "
                f"{', '.join(job.party_names)}"
            )

    def _make_error(self, text: str) -> ParameterError:
        return ParameterError(f"{self._file}: {text}")

    @property
    def preprocessing_paths(self) -> list[str]:
        """The preprocessing files, if any."""
        named = self.correlations or []
        return [named] if isinstance(named, str) else named

    def read_rows(self, job: Job) -> LazyFrame:
        """Read the rows for training, with the label at the label holder."""
        data, role = self.data, job.get_role(self.name)
        if role == "active" and data.label is None:
            raise self._make_error(
                f"data.label: is required of {self.name}, the active participant of the job"
            )
        if role != "active" and data.label is not None:
            raise self._make_error(
                f"data.label: {self.name} is a passive participant of the job; the label is the "
                "active one's: leave it out"
            )
        if role != "active" and data.is_weighted:
            raise self._make_error(
                f"data.weight, data.class_weight: {self.name} is a passive participant of the job; "
                "weights are the active one's: leave them out"
            )
        if role == "active" and data.is_weighted != job.weighted:
            raise self._make_error(
                "weighted: the job says that rows have weights, and data.weight and "
                "data.class_weight are not there: give one of them, or change everybody's job"
                if job.weighted
                else "data.weight, data.class_weight: the job has no weights: say weighted = true "
                "in everybody's job, since all compute with them, or leave them out"
            )
        return read_lazy_frame(data, self._get_id_rules(job))

    def read_new_rows(
        self,
        job: Job,
        encoders: Sequence[Encoder],
        path: str | Path | None = None,
        query: str | None = None,
    ) -> Frame:
        """Read rows to predict, from the configured table or another one like it."""
        return read_new_rows(
            self.make_prediction_table_spec(path, query), encoders, self._get_id_rules(job)
        )

    def make_prediction_table_spec(
        self, path: str | Path | None = None, query: str | None = None
    ) -> TableSpec:
        """Return the specification of rows to predict: the configured one, elsewhere if set."""
        data = self.data if path is None else self.data.with_path(path)
        return data if query is None else data.with_query(query)

    def read_ids(self, job: Job) -> Ids:
        """Read only the ids of the configured table."""
        ids = self.read_new_rows(job, ()).ids
        assert ids is not None
        return ids

    def _get_id_rules(self, job: Job) -> IdRules:
        """Return the id rules; raise ParameterError unless `data.id` has the parts of the job."""
        ids, parts = self.data.id_columns, job.ids.parts
        if len(ids) != len(parts):
            raise self._make_error(
                f"data.id: names {', '.join(ids) or 'no column'}, and an id of the job has "
                f"{len(parts)} parts, {', '.join(parts)}: name a column for each of them"
            )
        return job.ids.rules_by_part
