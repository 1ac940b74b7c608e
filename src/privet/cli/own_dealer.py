"""The dealer that a participant plays, if the job has it play one: a process beside its own.

It has a key and an address of its own. It may as well be started by itself, elsewhere
(`privet dealer`): then party.toml does not describe it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator

from privet.config.job import Job
from privet.config.party import LocalDealerConfig, PartyConfig
from privet.errors import EXIT_CODE_INTERRUPTED, PrivetError
from privet.federation.dealer import run_dealer_session
from privet.federation.monitoring.events import Event, EventHandler, discard_event
from privet.federation.session.retry import run_with_retry
from privet.federation.session.session import LocalMember, open_session

_END_SECONDS = 10.0
"""How long our dealer may take to end after us."""


@contextlib.contextmanager
def own_dealer(
    own: PartyConfig,
    job: Job,
    wait: float,
    tell: EventHandler,
    *,
    service: bool = False,
    keep: bool = False,
) -> Iterator[None]:
    """Have the dealer that we play there as long as we are, in a service session after session."""
    names = [dealer for dealer, player in job.dealer_operators.items() if player == own.name]
    if not names or own.preprocessing_paths:
        yield
        return
    (name,) = names
    if own.dealer is None:
        text = (
            f"the job has us play {name}: start it by `privet dealer --name {name}`, or describe "
            "it under [dealer] in party.toml"
        )
        tell(Event("dealer", text, {"dealer": name}))
        yield
        return
    process = multiprocessing.get_context("spawn").Process(
        target=_deal,
        args=(job.model_dump_json(), name, own.dealer, wait, service, keep),
        name=name,
        daemon=True,
    )
    process.start()
    tell(Event("dealer", f"started {name}, which we play", {"dealer": name}))
    try:
        yield
        if not keep:
            process.join(_END_SECONDS)
    finally:
        process.terminate()
        process.join()


def _deal(
    job: str, name: str, ours: LocalDealerConfig, wait: float, service: bool, keep: bool
) -> None:
    """Be that dealer; whatever it fails with, the others of the job are told, and we are.

    It ends with the participant that plays it, even if that is killed: nobody would stop it, and it
    would keep its port from the next.
    """
    threading.Thread(target=_end_with_player, daemon=True).start()
    agreed = Job.model_validate_json(job)
    keys = ours.key, ours.certificate, ours.listen

    def sit(seconds: float) -> contextlib.AbstractContextManager[LocalMember]:
        return open_session(agreed, name, *keys, timeout=seconds)

    def session(seat: LocalMember) -> None:
        run_dealer_session(seat)

    try:
        run_with_retry(sit, session, wait, discard_event, is_service=service, keep_running=keep)
    except PrivetError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # Ctrl-C reaches both of us
        sys.exit(EXIT_CODE_INTERRUPTED)


def _end_with_player() -> None:
    player = multiprocessing.parent_process()
    assert player is not None
    player.join()
    os._exit(EXIT_CODE_INTERRUPTED)
