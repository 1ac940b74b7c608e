"""`privet join`: fill in the local entry of a received job, and merge the entries of others."""

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
    prompter = Prompter()
    target_folder = folder or Path()
    received = JobDraft.read(job)
    party_config = (
        PartyConfig.load(target_folder / PARTY_FILE_NAME)
        if (target_folder / PARTY_FILE_NAME).exists()
        else None
    )
    local_draft, merged = _merge_draft(target_folder, received, replace or [])
    local_name = _ask_name(prompter, merged, party_config, name, target_folder)
    keys = (
        make_key_paths(local_name, target_folder)
        if party_config is None
        else (Path(party_config.key), Path(party_config.certificate))
    )
    used_addresses = _list_other_addresses(merged, local_name)
    agreed = merged.make_placeholder_job()
    if is_open_entry(merged.entries[local_name]):
        print_job_settings(agreed)
    has_columns = local_name not in agreed.dealer_names
    if party_config is not None:
        check_table_not_described(party_config, name, table=table, id=id_, label=label)
    required = {"--address": address} if is_open_entry(merged.entries[local_name]) else {}
    prompter.check_answerable(
        {**required, "--table": party_config or table} if has_columns else required
    )
    entries = [_ask_local_entry(prompter, merged, local_name, keys, address, used_addresses)]
    local_dealer = next(
        (dealer for dealer, operator in agreed.dealer_operators.items() if operator == local_name),
        None,
    )
    if local_dealer is not None:
        keys = make_key_paths(local_dealer, target_folder)
        if party_config is not None and party_config.dealer is not None:
            keys = Path(party_config.dealer.key), Path(party_config.dealer.certificate)
        if is_open_entry(merged.entries[local_dealer]):
            dealer_address = ask_dealer_address(
                prompter, dealer_address, local_dealer, entries[0].address, used_addresses
            )
        entries.append(
            _ask_local_entry(prompter, merged, local_dealer, keys, dealer_address, used_addresses)
        )
    party = None
    if has_columns and party_config is None:
        table_options = parse_table_options(
            drop=drop,
            categorical=categorical,
            types=types,
            missing=missing,
            encoding=encoding,
            decimal=decimal,
        )
        table_prompts = TablePrompts(prompter, table, table_options)
        party = format_party_toml(
            local_name,
            _ask_table_spec(table_prompts, agreed, local_name, id_, label),
            target_folder,
            local_dealer,
        )
    draft, created = write_entries(merged, entries, target_folder, party)
    print_merged_entries(local_draft, draft, local_name)
    changed = [
        entry for entry in entries if local_draft.entries[entry.name] != draft.entries[entry.name]
    ]
    send_advice = "when one of them sends you its job.toml, run `privet join` with it"
    if changed:
        print_written_files(draft, changed, created)
        send_advice = (
            f"send {quote_path(target_folder / JOB_FILE_NAME)} back to whom you have it from; or "
            f"on to {join_names(draft.open_names)}, if that is agreed on"
        )
    was_complete = not received.open_names and not changed
    print_next_steps(
        draft,
        [entry.name for entry in entries],
        target_folder,
        send_advice=send_advice,
        was_complete=was_complete,
    )


def _ask_table_spec(
    table_prompts: TablePrompts, job: Job, local_name: str, id_: str | None, label: str | None
) -> TableSpec:
    """Return the local table specification; it has a label only for the label holder."""
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
    """Return the local draft, and the same merged with the filled entries of the received one."""
    path = folder / JOB_FILE_NAME
    for name in replace:
        make_choice_parser("replace", list(received.entries))(name)
    if not path.exists():
        return received, received
    local_draft = JobDraft.read(path)
    return local_draft, local_draft.merge(received, replace)


def _ask_name(
    prompter: Prompter,
    draft: JobDraft,
    party_config: PartyConfig | None,
    name: str | None,
    folder: Path,
) -> str:
    """Return the local name: from party.toml, from existing keys, or else from a prompt."""
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
    operators = draft.make_placeholder_job().dealer_operators
    with_keys = [
        each
        for each in draft.entries
        if make_key_paths(each, folder)[0].exists() and each not in operators
    ]
    if len(with_keys) == 1:
        return with_keys[0]
    open_names = draft.open_names
    if not prompter.is_interactive or not open_names:
        raise ParameterError(
            f"name: say who you are with --name: {join_names(list(draft.entries))}; or with "
            "--folder where your files are"
        )
    default = open_names[0] if len(open_names) == 1 else None
    return prompter.ask(None, f"Who are you: {join_names(open_names)}", check, default)


def _list_other_addresses(draft: JobDraft, local_name: str) -> list[str]:
    """Return the addresses of all other members."""
    operators = draft.make_placeholder_job().dealer_operators
    return [
        str(entry["address"])
        for name, entry in draft.entries.items()
        if not is_open_entry(entry) and local_name not in (name, operators.get(name))
    ]


def _ask_local_entry(
    prompter: Prompter,
    draft: JobDraft,
    name: str,
    key_pair: KeyPair,
    address: str | None,
    used_addresses: Sequence[str],
) -> LocalEntry:
    """Return the local entry, with a new address if it is open.

    Raise DisagreementError if a filled entry has another fingerprint than the local key.
    """
    entry = draft.entries[name]
    if is_open_entry(entry):
        return LocalEntry(name, ask_address(prompter, address, used_addresses), key_pair)
    if not key_pair[0].exists():
        raise DisagreementError(
            f"the seat of {name} in {draft.display_name} is filled in, with the fingerprint "
            f"{entry['fingerprint']}, and its key is not here ({key_pair[0]}): if that is you, say "
            "where your files are with --folder; if it is not, say who you are with --name"
        )
    fingerprint = load_identity(*key_pair).fingerprint
    if fingerprint != entry["fingerprint"]:
        raise DisagreementError(
            f"the seat of {name} in {draft.display_name} is filled in with another key: "
            f"{entry['fingerprint']}, and yours is {fingerprint}. Somebody else has done that: ask "
            "whoever sent you the job"
        )
    if address is None or address == entry["address"]:
        return LocalEntry(name, str(entry["address"]), key_pair)
    print_note(
        f"your address was {entry['address']}; the others take the new one with --replace {name}"
    )
    return LocalEntry(name, ask_address(prompter, address, used_addresses), key_pair)
