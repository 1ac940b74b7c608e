"""One run as the page shows it, made of what its record says, line by line."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

_LOGGED = 60
"""So many lines are shown."""
_UNLOGGED = frozenset({"table", "revealed"})
"""What is shown elsewhere."""

Point = tuple[int, float | None, float | None]
"""Of a table: its number, the training loss before it, the validation loss after it."""


class RunView:
    """A run, as far as it has come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began: dict[str, Any] = {}
        self.state = "starting"
        """starting, waiting, running; done, failed, stopped, killed."""
        self.words = ""
        """The last that was said."""
        self.time: str | None = None
        """When."""
        self.end: dict[str, Any] = {}
        """How it ended, if it did."""
        self.report: dict[str, Any] | None = None
        self.started: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.standing: dict[str, Any] = {}
        self.points: list[Point] = []
        self.reveals: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.resumed = 0
        self._peers: dict[str, dict[str, Any]] = {}
        self._told: list[dict[str, Any]] = []
        self._log: deque[dict[str, str]] = deque(maxlen=_LOGGED)

    @property
    def job(self) -> str:
        """Whose run it is."""
        return str(self.began.get("job", ""))

    @property
    def command(self) -> str:
        """Which command it is."""
        return str(self.began.get("command", ""))

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended, as far as its record says."""
        return self.state in ("starting", "waiting", "running")

    def take(self, line: Mapping[str, Any]) -> None:
        """Take in a line of the record."""
        kind, text = str(line.get("event", "")), str(line.get("text", ""))
        self.time, self.words = str(line.get("time", "")), text
        if kind not in _UNLOGGED:
            self._log.append({"time": self.time, "text": text})
        taking = getattr(self, f"_take_{kind.replace('-', '_')}", None)
        if taking is not None:
            taking(line)

    def stand(self, line: Mapping[str, Any]) -> None:
        """Take in how the run stands."""
        self.standing = dict(line)
        for name, state in line.get("peers", {}).items():
            self._peers.setdefault(name, {}).update(state)
        if self.report is None and line.get("reveals"):
            self.reveals = list(line["reveals"])

    def bury(self) -> None:
        """Take note that its process is gone, without a last word."""
        if self.goes_on:
            self.state, self.words = "killed", "its process ended without a last word"
            self._leave()

    def _take_began(self, line: Mapping[str, Any]) -> None:
        self.began = dict(line)
        ours = line.get("name")
        for name in (*line.get("participants", ()), *line.get("dealers", ())):
            if name != ours:
                self._peers[name] = {"state": "unknown"}

    def _take_waiting(self, line: Mapping[str, Any]) -> None:
        self.state = "waiting"
        missing = line.get("missing", ())
        for name, peer in self._peers.items():
            if name in missing:
                peer.update(state="missing", since=None)
            elif peer.get("state") != "connected":
                peer.update(state="connected", since=line.get("time"))

    def _take_connected(self, line: Mapping[str, Any]) -> None:
        self.state = "running"
        for name in line.get("peers", ()):
            self._peers.setdefault(name, {}).update(state="connected", since=line.get("time"))

    def _take_workers(self, line: Mapping[str, Any]) -> None:
        """Take note that our own workers are there, for whom we may have waited."""
        if self.state == "waiting":
            self.state = "running"

    def _take_started(self, line: Mapping[str, Any]) -> None:
        self.state, self.started = "running", dict(line)

    def _take_resumed(self, line: Mapping[str, Any]) -> None:
        self.resumed = int(line.get("tables", 0))

    def _take_table(self, line: Mapping[str, Any]) -> None:
        self.state, self.tables = "running", dict(line)
        self.points.append((line["table"], line.get("loss_before"), line.get("validation_loss")))

    def _take_warning(self, line: Mapping[str, Any]) -> None:
        self.warnings.append(str(line.get("warning") or line.get("text")))

    def _take_serving(self, line: Mapping[str, Any]) -> None:
        self.state = "running"

    def _take_lost(self, line: Mapping[str, Any]) -> None:
        """Take note that a service has lost somebody, and waits for it."""
        self.state = "waiting"
        self._blame(line)

    def _take_revealed(self, line: Mapping[str, Any]) -> None:
        self._told.append({key: line[key] for key in ("what", "to", "count")})
        if not self.standing:  # which has the same, sooner
            self.reveals = self._told

    def _take_done(self, line: Mapping[str, Any]) -> None:
        self.state, self.end = "done", {"time": line.get("time"), "code": 0}
        if "seconds" in line and "rounds" in line:
            beside = ("time", "event", "text")
            self.report = {key: value for key, value in line.items() if key not in beside}
            self.reveals = list(line.get("reveals", ()))
        self._leave()

    def _take_error(self, line: Mapping[str, Any]) -> None:
        self.state = "failed"
        self.end = {key: line.get(key) for key in ("time", "code", "error", "peer", "step")}
        self._leave()
        self._blame(line)

    def _take_interrupted(self, line: Mapping[str, Any]) -> None:
        self.state, self.end = "stopped", {"time": line.get("time"), "code": line.get("code")}
        self._leave()

    def _leave(self) -> None:
        """Nobody is connected any more."""
        for peer in self._peers.values():
            if peer.get("state") in ("connected", "missing"):
                peer.update(state="left", since=None)

    def _blame(self, line: Mapping[str, Any]) -> None:
        if line.get("peer") in self._peers:
            self._peers[line["peer"]].update(state="lost", since=line.get("time"))

    def brief(self) -> dict[str, Any]:
        """Return it as a list of runs shows it."""
        return {
            "id": self.name,
            "command": self.command,
            "job": self.job,
            "began": self.began.get("time"),
            "ended": self.end.get("time"),
            "state": self.state,
            "words": self.words,
            "table": self.tables.get("table") or (self.report or {}).get("tables"),
            "tables": self.tables.get("tables") or (self.report or {}).get("tables"),
            "seconds": (self.report or {}).get("seconds"),
            "has_report": self.report is not None,
            "explained": bool(self.out)
            and any(reveal["what"] == "contributions and base" for reveal in self.reveals),
        }

    @property
    def out(self) -> str | None:
        """Where predictions were written, if any were."""
        return (self.report or {}).get("out")

    def whole(self, since: int = 0) -> dict[str, Any]:
        """Return all that is shown of it; of the points, those after the first `since`."""
        where = self.standing if self.goes_on else {}
        return {
            **self.brief(),
            "end": self.end,
            "started": _of(
                self.started,
                "samples",
                "features",
                "rounds",
                "bytes_online",
                "bytes_offline",
                "memory",
                "masks",
            ),
            "resumed": self.resumed,
            "rate": self.tables.get("tables_per_second"),
            "seconds_left": self.tables.get("seconds_left"),
            "rounds": self.tables.get("rounds") or (self.report or {}).get("rounds"),
            "best_table": self.tables.get("best_table"),
            "step": where.get("step"),
            "level": where.get("level"),
            "now_table": where.get("table"),
            "groups": where.get("groups"),
            "slowest_group": where.get("slowest_group"),
            "waits_for_group": where.get("waits_for_group"),
            "by_workers": self.standing.get("by_workers"),
            "peers": [{"name": name, **peer} for name, peer in self._peers.items()],
            "dealers": self.began.get("dealers", []),
            "reveals": self.reveals,
            "report": self.report,
            "warnings": self.warnings,
            "log": list(self._log),
            "version": self.began.get("version"),
            "from": since,
            "points": self.points[since:],
        }


def _of(line: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: line.get(key) for key in keys}
