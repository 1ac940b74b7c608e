"""State of one run for display, built from the records of its journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

_MAX_LOG_LINES = 60
"""Maximum of displayed lines."""
_HIDDEN_EVENTS = frozenset({"table", "revealed"})
"""Events that other parts of the page display."""

LossPoint = tuple[int, float | None, float | None]
"""Table number, training loss before the table, validation loss after it."""


class RunState:
    """Current state of one run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start_record: dict[str, Any] = {}
        self.status = "starting"
        """starting, waiting, running; done, failed, stopped, killed."""
        self.last_message = ""
        """Text of the last record."""
        self.last_time: str | None = None
        """Time of the last record."""
        self.end_record: dict[str, Any] = {}
        """Time and cause of the end, if the run has ended."""
        self.report: dict[str, Any] | None = None
        self.program_record: dict[str, Any] = {}
        self.table_record: dict[str, Any] = {}
        self.progress: dict[str, Any] = {}
        self.loss_points: list[LossPoint] = []
        self.disclosures: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.n_resumed_tables = 0
        self._peers: dict[str, dict[str, Any]] = {}
        self._disclosed: list[dict[str, Any]] = []
        self._log: deque[dict[str, str]] = deque(maxlen=_MAX_LOG_LINES)

    @property
    def job(self) -> str:
        """Name of the job."""
        return str(self.start_record.get("job", ""))

    @property
    def command(self) -> str:
        """Name of the command."""
        return str(self.start_record.get("command", ""))

    @property
    def is_running(self) -> bool:
        """Whether the journal has no final record."""
        return self.status in ("starting", "waiting", "running")

    def apply_event(self, line: Mapping[str, Any]) -> None:
        """Apply one record of the journal."""
        kind, text = str(line.get("event", "")), str(line.get("text", ""))
        self.last_time, self.last_message = str(line.get("time", "")), text
        if kind not in _HIDDEN_EVENTS:
            self._log.append({"time": self.last_time, "text": text})
        handler = getattr(self, f"_apply_{kind.replace('-', '_')}", None)
        if handler is not None:
            handler(line)

    def update_progress(self, line: Mapping[str, Any]) -> None:
        """Apply a progress record."""
        self.progress = dict(line)
        for name, state in line.get("peers", {}).items():
            self._peers.setdefault(name, {}).update(state)
        if self.report is None and line.get("reveals"):
            self.disclosures = list(line["reveals"])

    def mark_terminated(self) -> None:
        """Mark a run whose process ended without a final record."""
        if self.is_running:
            self.status, self.last_message = "killed", "its process ended without a last word"
            self._mark_peers_disconnected()

    def _apply_began(self, line: Mapping[str, Any]) -> None:
        self.start_record = dict(line)
        local_name = line.get("name")
        for name in (*line.get("participants", ()), *line.get("dealers", ())):
            if name != local_name:
                self._peers[name] = {"state": "unknown"}

    def _apply_waiting(self, line: Mapping[str, Any]) -> None:
        self.status = "waiting"
        missing = line.get("missing", ())
        for name, peer in self._peers.items():
            if name in missing:
                peer.update(state="missing", since=None)
            elif peer.get("state") != "connected":
                peer.update(state="connected", since=line.get("time"))

    def _apply_connected(self, line: Mapping[str, Any]) -> None:
        self.status = "running"
        for name in line.get("peers", ()):
            self._peers.setdefault(name, {}).update(state="connected", since=line.get("time"))

    def _apply_workers(self, line: Mapping[str, Any]) -> None:
        """Mark a run as running once its workers are connected."""
        if self.status == "waiting":
            self.status = "running"

    def _apply_started(self, line: Mapping[str, Any]) -> None:
        self.status, self.program_record = "running", dict(line)

    def _apply_resumed(self, line: Mapping[str, Any]) -> None:
        self.n_resumed_tables = int(line.get("tables", 0))

    def _apply_table(self, line: Mapping[str, Any]) -> None:
        self.status, self.table_record = "running", dict(line)
        self.loss_points.append(
            (line["table"], line.get("loss_before"), line.get("validation_loss"))
        )

    def _apply_warning(self, line: Mapping[str, Any]) -> None:
        self.warnings.append(str(line.get("warning") or line.get("text")))

    def _apply_serving(self, line: Mapping[str, Any]) -> None:
        self.status = "running"

    def _apply_lost(self, line: Mapping[str, Any]) -> None:
        """Mark a service as waiting for a disconnected peer."""
        self.status = "waiting"
        self._mark_peer_lost(line)

    def _apply_revealed(self, line: Mapping[str, Any]) -> None:
        self._disclosed.append({key: line[key] for key in ("what", "to", "count")})
        if not self.progress:  # progress records contain the same disclosures earlier
            self.disclosures = self._disclosed

    def _apply_done(self, line: Mapping[str, Any]) -> None:
        self.status, self.end_record = "done", {"time": line.get("time"), "code": 0}
        if "seconds" in line and "rounds" in line:
            excluded = ("time", "event", "text")
            self.report = {key: value for key, value in line.items() if key not in excluded}
            self.disclosures = list(line.get("reveals", ()))
        self._mark_peers_disconnected()

    def _apply_error(self, line: Mapping[str, Any]) -> None:
        self.status = "failed"
        self.end_record = {key: line.get(key) for key in ("time", "code", "error", "peer", "step")}
        self._mark_peers_disconnected()
        self._mark_peer_lost(line)

    def _apply_interrupted(self, line: Mapping[str, Any]) -> None:
        self.status, self.end_record = (
            "stopped",
            {"time": line.get("time"), "code": line.get("code")},
        )
        self._mark_peers_disconnected()

    def _mark_peers_disconnected(self) -> None:
        """Mark all peers as disconnected."""
        for peer in self._peers.values():
            if peer.get("state") in ("connected", "missing"):
                peer.update(state="left", since=None)

    def _mark_peer_lost(self, line: Mapping[str, Any]) -> None:
        if line.get("peer") in self._peers:
            self._peers[line["peer"]].update(state="lost", since=line.get("time"))

    def to_summary(self) -> dict[str, Any]:
        """Return the run as an entry of a list of runs."""
        return {
            "id": self.name,
            "command": self.command,
            "job": self.job,
            "began": self.start_record.get("time"),
            "ended": self.end_record.get("time"),
            "state": self.status,
            "words": self.last_message,
            "table": self.table_record.get("table") or (self.report or {}).get("tables"),
            "tables": self.table_record.get("tables") or (self.report or {}).get("tables"),
            "seconds": (self.report or {}).get("seconds"),
            "has_report": self.report is not None,
            "explained": bool(self.predictions_path)
            and any(reveal["what"] == "contributions and base" for reveal in self.disclosures),
        }

    @property
    def predictions_path(self) -> str | None:
        """Path of the written predictions, if any."""
        return (self.report or {}).get("out")

    def to_dict(self, first_point: int = 0) -> dict[str, Any]:
        """Return the displayed details, with loss points from index `first_point` on."""
        progress = self.progress if self.is_running else {}
        return {
            **self.to_summary(),
            "end": self.end_record,
            "started": _select_keys(
                self.program_record,
                "samples",
                "features",
                "rounds",
                "bytes_online",
                "bytes_offline",
                "memory",
                "masks",
            ),
            "resumed": self.n_resumed_tables,
            "rate": self.table_record.get("tables_per_second"),
            "seconds_left": self.table_record.get("seconds_left"),
            "rounds": self.table_record.get("rounds") or (self.report or {}).get("rounds"),
            "best_table": self.table_record.get("best_table"),
            "step": progress.get("step"),
            "level": progress.get("level"),
            "now_table": progress.get("table"),
            "groups": progress.get("groups"),
            "slowest_group": progress.get("slowest_group"),
            "waits_for_group": progress.get("waits_for_group"),
            "by_workers": self.progress.get("by_workers"),
            "peers": [{"name": name, **peer} for name, peer in self._peers.items()],
            "dealers": self.start_record.get("dealers", []),
            "reveals": self.disclosures,
            "report": self.report,
            "warnings": self.warnings,
            "log": list(self._log),
            "version": self.start_record.get("version"),
            "from": first_point,
            "points": self.loss_points[first_point:],
        }


def _select_keys(line: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: line.get(key) for key in keys}
