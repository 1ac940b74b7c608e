"""What Prometheus reads at /metrics, in its text format.

Ids, features and predictions are in none of it; names of participants are.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

from privet.federation.request_queue import RequestQueue

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Latencies:
    """How long answers took, by the code that they had."""

    def __init__(self) -> None:
        self.codes: Counter[int] = Counter()
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def note(self, code: int, seconds: float) -> None:
        """Count one answer."""
        self.codes[code] += 1
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str) -> list[str]:
        """Return a histogram's samples."""
        found, below = [], 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._counts, strict=True):
            below += count
            found.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*found, f"{name}_sum {self._sum!r}", f"{name}_count {below}"]


def exposition(queue: RequestQueue, latencies: Latencies, connections: int) -> str:
    """Return all metrics."""
    served = queue.served
    text = [
        *_family("privet_up", "gauge", "Whether all participants are there.", queue.status == "ok"),
        *_labelled(
            "privet_peer_up",
            "gauge",
            "Whether a participant or dealer is connected.",
            "peer",
            queue.peers,
        ),
        *_labelled(
            "privet_http_requests_total",
            "counter",
            "Predictions asked for, by HTTP status.",
            "code",
            {str(code): n for code, n in sorted(latencies.codes.items())},
        ),
        "# HELP privet_http_request_seconds Time from a request to its answer.",
        "# TYPE privet_http_request_seconds histogram",
        *latencies.lines("privet_http_request_seconds"),
    ]
    sessions = max(0, served.sessions - 1)
    for name, kind, meaning, value in (
        ("privet_http_connections", "gauge", "Clients that are connected.", connections),
        ("privet_waiting_requests", "gauge", "Requests that wait.", queue.waiting),
        ("privet_rows_total", "counter", "Rows asked for.", served.rows),
        ("privet_batches_total", "counter", "Runs of the protocol.", served.batches),
        ("privet_batch_seconds_total", "counter", "Time in runs of the protocol.", served.seconds),
        ("privet_rounds_total", "counter", "Network delays waited for.", served.rounds),
        ("privet_sent_bytes_total", "counter", "Sent to participants.", served.bytes_sent),
        ("privet_received_bytes_total", "counter", "Received from them.", served.bytes_received),
        (
            *("privet_dealer_bytes_total", "counter", "Received from dealers."),
            served.bytes_from_dealer,
        ),
        ("privet_meetings_total", "counter", "Attempts to meet the others.", served.meetings),
        ("privet_reconnections_total", "counter", "Sessions after the first.", sessions),
        ("privet_lost_sessions_total", "counter", "Sessions that ended early.", served.lost),
        ("privet_model_changes_total", "counter", "Models that replaced another.", served.models),
        (
            *("privet_refused_models_total", "counter", "New models of ours that are of no use."),
            served.refused_models,
        ),
        ("privet_uptime_seconds", "gauge", "Time since the start.", time.time() - queue.started),
    ):
        text += _family(name, kind, meaning, value)
    return "\n".join(text) + "\n"


def _family(name: str, kind: str, meaning: str, value: float) -> Iterable[str]:
    return (*_head(name, kind, meaning), f"{name} {_number(value)}")


def _labelled(
    name: str, kind: str, meaning: str, label: str, values: Mapping[str, float]
) -> Iterable[str]:
    # Names of participants are letters, digits and a few signs that need no escaping.
    samples = (f'{name}{{{label}="{key}"}} {_number(value)}' for key, value in values.items())
    return (*_head(name, kind, meaning), *samples)


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))
