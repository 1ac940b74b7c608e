"""`privet join`: our own side of a job that we were sent, and the others' sides in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from privet.cli.init import (
    print_job_settings,
    print_merged_entries,
    print_next_steps,
    print_note,
    print_written_files,
    quote_path,
)
from privet.cli.options import (
    CategoricalOption,
    DecimalOption,
    DropOption,
    EncodingOption,
    MissingOption,
    TypesOption,
    parse_table_options,
)
from privet.cli.prompts import (
    AddressOption,
    DealerAddressOption,
    FolderOption,
    IdOption,
    LabelOption,
    NameOption,
    Prompter,
    TableOption,
    TablePrompts,
    ask_address,
    ask_dealer_address,
    check_table_not_described,
    make_choice_parser,
)
from privet.config.draft import (
    JOB_FILE_NAME,
    PARTY_FILE_NAME,
    JobDraft,
    KeyPair,
    LocalEntry,
    format_party_toml,
    make_key_paths,
    write_entries,
)
from privet.config.job import Job
from privet.config.members import is_open_entry, join_names
from privet.config.party import PartyConfig
from privet.config.table import TableSpec
from privet.data.encoding import prepare_label
from privet.data.sources.base import locate_errors
from privet.errors import DisagreementError, ParameterError
from privet.transport.tls import load_identity


def join(
    job: Annotated[Path, typer.Argument(help="The job, as somebody sent it to you.")],
    name: NameOption = None,
    address: AddressOption = None,
    dealer_address: DealerAddressOption = None,
    table: TableOption = None,
    id_: IdOption = None,
    label: LabelOption = None,
    drop: DropOption = None,
    categorical: CategoricalOption = None,
    types: TypesOption = None,
    missing: MissingOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    replace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Take in the seat of somebody who has filled it in anew. May be repeated.",
        ),
    ] = None,
    folder: FolderOption = None,
) -> None:
    """Take part in a job that you were sent: fill in your side, and take in those of others.

    Run it with every copy of the job that you are sent: the seats in it go into your own copy,
    job.toml, once the rest is known to be the same.
    """
    questions = Prompter()
    place = folder or Path()
    sent = JobDraft.read(job)
    own = PartyConfig.load(place / PARTY_FILE_NAME) if (place / PARTY_FILE_NAME).exists() else None
    ours, joined = _merge_draft(place, sent, replace or [])
    us = _ask_name(questions, joined, own, name, place)
    keys = make_key_paths(us, place) if own is None else (Path(own.key), Path(own.certificate))
    taken = _list_other_addresses(joined, us)
    agreed = joined.make_placeholder_job()
    if is_open_entry(joined.entries[us]):
        print_job_settings(agreed)
    has_columns = us not in agreed.dealer_names
    if own is not None:
        check_table_not_described(own, name, table=table, id=id_, label=label)
    needed = {"--address": address} if is_open_entry(joined.entries[us]) else {}
    questions.check_answerable({**needed, "--table": own or table} if has_columns else needed)
    seats = [_ask_local_entry(questions, joined, us, keys, address, taken)]
    played = next((dealer for dealer, by in agreed.dealer_operators.items() if by == us), None)
    if played is not None:
        keys = make_key_paths(played, place)
        if own is not None and own.dealer is not None:
            keys = Path(own.dealer.key), Path(own.dealer.certificate)
        if is_open_entry(joined.entries[played]):
            dealer_address = ask_dealer_address(
                questions, dealer_address, played, seats[0].address, taken
            )
        seats.append(_ask_local_entry(questions, joined, played, keys, dealer_address, taken))
    party = None
    if has_columns and own is None:
        known = parse_table_options(
            drop=drop,
            categorical=categorical,
            types=types,
            missing=missing,
            encoding=encoding,
            decimal=decimal,
        )
        asked = TablePrompts(questions, table, known)
        party = format_party_toml(us, _ask_table_spec(asked, agreed, us, id_, label), place, played)
    filled, new = write_entries(joined, seats, place, party)
    print_merged_entries(ours, filled, us)
    changed = [seat for seat in seats if ours.entries[seat.name] != filled.entries[seat.name]]
    send = "when one of them sends you its job.toml, run `privet join` with it"
    if changed:
        print_written_files(filled, changed, new)
        send = (
            f"send {quote_path(place / JOB_FILE_NAME)} back to whom you have it from; or on to "
            f"{join_names(filled.open_names)}, if that is agreed on"
        )
    whole = not sent.open_names and not changed
    print_next_steps(
        filled, [seat.name for seat in seats], place, send_advice=send, was_complete=whole
    )


def _ask_table_spec(
    table_prompts: TablePrompts, job: Job, local_name: str, id_: str | None, label: str | None
) -> TableSpec:
    """Return our table, described as the job needs it: with its label, if that is ours."""
    ids = table_prompts.ask_id_columns(id_, len(job.ids.parts))
    if job.get_role(local_name) != "active":
        if label is not None:
            raise ParameterError(
                f"label: the job has {job.party_names[job.label_holder_index]} hold the label"
            )
        return table_prompts.read_table(id=ids)[0]
    data, frame = table_prompts.read_table(
        id=ids, label=table_prompts.ask_label_column(label, is_label_holder=True)
    )
    with locate_errors(data.display_name):
        prepare_label(frame, job.task, n_classes=job.classes)
    return data


def _merge_draft(folder: Path, received: JobDraft, replace: list[str]) -> tuple[JobDraft, JobDraft]:
    """Return our own copy, and the same with the seats that are filled in in another."""
    path = folder / JOB_FILE_NAME
    for name in replace:
        make_choice_parser("replace", list(received.entries))(name)
    if not path.exists():
        return received, received
    ours = JobDraft.read(path)
    return ours, ours.merge(received, replace)


def _ask_name(
    prompter: Prompter,
    draft: JobDraft,
    party_config: PartyConfig | None,
    name: str | None,
    folder: Path,
) -> str:
    """Return who we are: as party.toml says, or our keys; or else it is asked."""
    check = make_choice_parser("name", list(draft.entries))
    known = name if party_config is None else party_config.name
    if known is not None:
        try:
            return check(known)
        except ParameterError:
            raise ParameterError(
                f"name: nobody called {known!r} takes part in {draft.display_name}; there are "
                f"{join_names(list(draft.entries))}. Choose the name that whoever sent the job "
                "gave you, or have them write you into it"
            ) from None
    players = draft.make_placeholder_job().dealer_operators
    with_keys = [
        each
        for each in draft.entries
        if make_key_paths(each, folder)[0].exists() and each not in players
    ]
    if len(with_keys) == 1:
        return with_keys[0]
    waited_for = draft.open_names
    if not prompter.is_interactive or not waited_for:
        raise ParameterError(
            f"name: say who you are with --name: {join_names(list(draft.entries))}; or with "
            "--folder where your files are"
        )
    default = waited_for[0] if len(waited_for) == 1 else None
    return prompter.ask(None, f"Who are you: {join_names(waited_for)}", check, default)


def _list_other_addresses(draft: JobDraft, local_name: str) -> list[str]:
    """Return the addresses of everybody else."""
    players = draft.make_placeholder_job().dealer_operators
    return [
        str(seat["address"])
        for name, seat in draft.entries.items()
        if not is_open_entry(seat) and local_name not in (name, players.get(name))
    ]


def _ask_local_entry(
    prompter: Prompter,
    draft: JobDraft,
    name: str,
    key_pair: KeyPair,
    address: str | None,
    used_addresses: Sequence[str],
) -> LocalEntry:
    """Return our seat: to be filled in; or filled in by us, which our keys show."""
    seat = draft.entries[name]
    if is_open_entry(seat):
        return LocalEntry(name, ask_address(prompter, address, used_addresses), key_pair)
    if not key_pair[0].exists():
        raise DisagreementError(
            f"the seat of {name} in {draft.display_name} is filled in, with the fingerprint "
            f"{seat['fingerprint']}, and its key is not here ({key_pair[0]}): if that is you, say "
            "where your files are with --folder; if it is not, say who you are with --name"
        )
    fingerprint = load_identity(*key_pair).fingerprint
    if fingerprint != seat["fingerprint"]:
        raise DisagreementError(
            f"the seat of {name} in {draft.display_name} is filled in with another key: "
            f"{seat['fingerprint']}, and yours is {fingerprint}. Somebody else has done that: ask "
            "whoever sent you the job"
        )
    if address is None or address == seat["address"]:
        return LocalEntry(name, str(seat["address"]), key_pair)
    print_note(
        f"your address was {seat['address']}; the others take the new one with --replace {name}"
    )
    return LocalEntry(name, ask_address(prompter, address, used_addresses), key_pair)
