"""`privet init`: the first files of a federation, and the next steps for its participants."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from privet.cli.options import (
    CategoricalOption,
    DecimalOption,
    DropOption,
    EncodingOption,
    MissingOption,
    TypesOption,
    complete_from,
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
    split_list,
)
from privet.config.draft import (
    JOB_FILE_NAME,
    PARTY_FILE_NAME,
    JobDraft,
    LocalEntry,
    check_draft_dealers,
    format_party_toml,
    make_key_paths,
    write_entries,
)
from privet.config.job import Job
from privet.config.members import format_settings_digest, is_open_entry, join_names
from privet.config.party import PartyConfig
from privet.config.table import guess_label_column
from privet.data.encoding import infer_task, prepare_label
from privet.data.frame import Frame
from privet.data.reader import read_table
from privet.errors import ParameterError, UnavailableError
from privet.objectives.regression import OBJECTIVES
from privet.schema import check_name
from privet.spec.params import Params


def print_note(text: str) -> None:
    """Print a note on stderr, so that stdout contains only values for programs."""
    typer.echo(text, err=True)


def print_job_settings(job: Job) -> None:
    """Print the settings that a participant accepts by joining a job."""
    params = job.make_params()
    rows = "those that all have" if job.align else "the same at all, in the same order"
    print_note(
        f"The job {job.name}: {job.task}, {params.tables} tables of {params.depth} tests each.\n"
        f"  {job.party_names[job.label_holder_index]} has the label, "
        f"{job.party_names[job.recipient_index]} gets "
        f"predictions, {join_names(job.dealer_names)} deal{'s' * (len(job.dealer_names) == 1)}. "
        f"The rows: {rows}."
    )
    settings = {**job.list_settings(), "export": job.export, "keep_indicators": job.keep_indicators}
    lines = [f"{key} = {value}" for key, value in settings.items() if value]
    if lines:
        print_note(f"  It also says: {', '.join(lines)}.")


def print_written_files(
    draft: JobDraft, entries: Sequence[LocalEntry], created: Sequence[Path]
) -> None:
    """Print the written files, and the local fingerprints on stdout."""
    existing = [entry.key_pair[0] for entry in entries if entry.key_pair[0] not in created]
    if existing:
        print_note(f"used, since there were keys: {_join_paths(existing)}")
    print_note(f"written: {_join_paths(created)}" if created else "written: your seat in the job")
    for entry in entries:
        print_note(f"The fingerprint of {entry.name}, to read out on the phone to the others:")
        typer.echo(draft.entries[entry.name]["fingerprint"])


def print_merged_entries(old_draft: JobDraft, new_draft: JobDraft, local_name: str) -> None:
    """Print new entries of other members; all of them if the local entry was open before."""
    known = {} if is_open_entry(old_draft.entries[local_name]) else old_draft.entries
    operators = new_draft.make_placeholder_job().dealer_operators
    unknown = {
        name: entry
        for name, entry in new_draft.entries.items()
        if not is_open_entry(entry)
        and local_name not in (name, operators.get(name))
        and known.get(name) != entry
    }
    for name, entry in unknown.items():
        print_note(f"taken in: {name} at {entry['address']}, fingerprint\n  {entry['fingerprint']}")
    if unknown:
        print_note(
            "Compare on the phone: fingerprints now, or the digest of the whole job at the end."
        )


def print_next_steps(
    draft: JobDraft,
    local_names: Sequence[str],
    folder: Path,
    *,
    send_advice: str,
    was_complete: bool,
) -> None:
    """Print how to complete the job; or, if it is complete, its digest and the first commands.

    `local_names` contains the local name, and that of a dealer that this participant plays.
    `send_advice` says where to send a job with open entries. `was_complete` means that the received
    job had none.
    """
    path = quote_path(folder / JOB_FILE_NAME)
    if draft.open_names:
        plural = "s" * (len(draft.open_names) > 1)
        print_note(f"Not filled in yet: the seat{plural} of {join_names(draft.open_names)}.")
        print_note(f"What next: {send_advice}")
        return
    agreed = draft.to_job()
    others = [name for name in draft.resolve_operators(draft.entries) if name not in local_names]
    print_note("All seats are filled in. Everybody must see this digest of the job; read it out:")
    print_note(f"  {format_settings_digest(agreed.list_agreed_settings())}")
    if was_complete:
        print_note("What next, once all see it:")
    else:
        print_note(
            f"What next: send {path} to {join_names(others)}, who run `privet join` with it."
        )
        print_note("Then, once all see the same digest:")
    for command in _format_commands(local_names[0], folder, dealers=agreed.dealer_names):
        print_note(f"  {command}")


def _format_commands(name: str, folder: Path, *, dealers: Sequence[str]) -> list[str]:
    job = quote_path(folder / JOB_FILE_NAME)
    if name not in dealers:
        party = quote_path(folder / PARTY_FILE_NAME)
        return [f"privet {verb} --job {job} --party {party}" for verb in ("check", "train")]
    options = f"--job {job}" + (f" --name {name}" if len(dealers) > 1 else "")
    if folder.resolve() != Path().resolve():
        key, certificate = (quote_path(folder / f"{name}.{end}") for end in ("key", "crt"))
        options += f" --key {key} --certificate {certificate}"
    return [f"privet check --dealer {options}", f"privet dealer {options}"]


def quote_path(path: Path) -> str:
    """Return a path quoted for the shell."""
    return shlex.quote(str(path))


def _join_paths(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


_WRITTEN_PARAMS = ("tables", "depth", "learning_rate")


def init(
    folder: FolderOption = None,
    name: NameOption = None,
    address: AddressOption = None,
    others: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="The other participants, who have columns, too.",
            show_default=False,
        ),
    ] = None,
    dealers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME,NAME]",
            help="Who deals: one or three from outside, or three of the participants.",
            show_default="dealer",
        ),
    ] = None,
    dealer_address: DealerAddressOption = None,
    table: TableOption = None,
    id_: IdOption = None,
    label: LabelOption = None,
    active: Annotated[
        str | None, typer.Option(help="Who has the label.", show_default="you")
    ] = None,
    drop: DropOption = None,
    categorical: CategoricalOption = None,
    types: TypesOption = None,
    missing: MissingOption = None,
    encoding: EncodingOption = None,
    decimal: DecimalOption = None,
    task: Annotated[
        str | None,
        typer.Option(
            help=f"What is learned: {', '.join(OBJECTIVES)}.",
            show_default="by the label",
            autocompletion=complete_from(OBJECTIVES),
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(help="How many the label has.", show_default="those of the label, or 2"),
    ] = None,
    recipient: Annotated[
        str | None, typer.Option(help="Who gets predictions.", show_default="who has the label")
    ] = None,
    job_name: Annotated[
        str | None, typer.Option(help="What the model is called.", show_default="as the label")
    ] = None,
    same_rows: Annotated[
        bool | None,
        typer.Option(
            "--same-rows/--align",
            help="All have the same rows in the same order; or find those that all have.",
            show_default="--align",
        ),
    ] = None,
    tables: Annotated[int | None, typer.Option(help="How many decision tables.")] = None,
    depth: Annotated[int | None, typer.Option(help="How many tests in a table.")] = None,
) -> None:
    """Begin a federation: ask five questions, write keys, party.toml and a job to send round.

    What is not given is asked for. The others fill in their side with `privet join`.
    """
    prompter = Prompter()
    target_folder = prompter.ask(
        None if folder is None else str(folder),
        "1. Folder for your keys, party.toml and job.toml",
        _check_new_folder,
        ".",
    )
    party_config = (
        PartyConfig.load(target_folder / PARTY_FILE_NAME)
        if (target_folder / PARTY_FILE_NAME).exists()
        else None
    )
    if party_config is not None:
        check_table_not_described(party_config, name, table=table, id=id_, label=label)
        name = party_config.name
    required = {
        "--name": name,
        "--address": address,
        "--others": others,
        "--table": party_config or table,
    }
    prompter.check_answerable(required)
    prompter.print_note("2. Who takes part?")
    local_name = prompter.ask(name, "Your name, as the others will see it", _validate_name)
    address = ask_address(prompter, address, ())
    party_names, dealer_operators = _ask_others(prompter, local_name, others, dealers)
    keys = (
        make_key_paths(local_name, target_folder)
        if party_config is None
        else (Path(party_config.key), Path(party_config.certificate))
    )
    entries = [LocalEntry(local_name, address, keys)]
    local_dealer = next(
        (dealer for dealer, operator in dealer_operators.items() if operator == local_name), None
    )
    if local_dealer is not None:
        given_dealer_address = ask_dealer_address(
            prompter, dealer_address, local_dealer, address, ()
        )
        entries.append(
            LocalEntry(
                local_dealer, given_dealer_address, make_key_paths(local_dealer, target_folder)
            )
        )
    prompter.print_note("3. Your table")
    if party_config is None:
        table_options = parse_table_options(
            drop=drop,
            categorical=categorical,
            types=types,
            missing=missing,
            encoding=encoding,
            decimal=decimal,
        )
        table_prompts = TablePrompts(prompter, table, table_options)
        ids = table_prompts.ask_id_columns(id_)
        label_column = (
            None
            if active not in (None, local_name)
            else table_prompts.ask_label_column(label, is_label_holder=active == local_name)
        )
        data, frame = table_prompts.read_table(id=ids, label=label_column)
    else:
        data, frame = party_config.data, read_table(party_config.data)
    prompter.print_note("4. What is predicted?")
    holder = local_name
    if data.label is None:
        holder = prompter.ask(
            active, "Who has the label", make_choice_parser("active", party_names[1:])
        )
    settings = {
        "name": prompter.ask(
            job_name, "A name for the model", _validate_name, _suggest_model_name(data.label)
        ),
        **_ask_task(prompter, task, classes, frame),
        "recipient": prompter.ask(
            recipient, "Who gets predictions", make_choice_parser("recipient", party_names), holder
        ),
        "align": _ask_align(prompter, same_rows, by_parties=any(dealer_operators.values())),
    }
    params = Params.parse({"task": settings["task"]}).model_dump(include=set(_WRITTEN_PARAMS))
    overrides = {"tables": tables, "depth": depth}
    params |= {key: value for key, value in overrides.items() if value is not None}
    job = JobDraft.create(settings, params, party_names, holder, dealer_operators)
    party = (
        None
        if party_config is not None
        else format_party_toml(local_name, data, target_folder, local_dealer)
    )
    job, created = write_entries(job, entries, target_folder, party)
    print_written_files(job, entries, created)
    path = quote_path(target_folder / JOB_FILE_NAME)
    folder_option = "" if target_folder == Path() else f" --folder {quote_path(target_folder)}"
    print_next_steps(
        job,
        [entry.name for entry in entries],
        target_folder,
        was_complete=False,
        send_advice=f"see whether {path} says what you want, its params for instance.\n"
        f"Send it to {join_names(job.open_names)}. Each runs `privet join job.toml` and sends its "
        f"own job.toml back.\nTake each of them in: privet join THE_FILE{folder_option}",
    )


def _check_new_folder(text: str) -> Path:
    """Return a folder that does not contain a job yet."""
    folder = Path(text).expanduser()
    if (folder / JOB_FILE_NAME).exists():
        raise UnavailableError(
            f"{folder / JOB_FILE_NAME}: is there already, and is not overwritten: choose another "
            "folder, or take part in that job with `privet join`"
        )
    if folder.exists() and not folder.is_dir():
        raise UnavailableError(f"{folder}: is no folder; choose another name")
    return folder


def _validate_name(text: str) -> str:
    check_name(text)
    return text


def _suggest_model_name(label: str | None) -> str:
    """Return the label's column name as a model name, unless it is generic."""
    if label is None or guess_label_column([label]) is not None:
        return "model"
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("_.-")[:64] or "model"


def _ask_others(
    prompter: Prompter, local_name: str, others: str | None, dealers: str | None
) -> tuple[list[str], dict[str, str]]:
    """Return all participants, local first, and the operator of each dealer."""

    def parse_parties(text: str) -> list[str]:
        found = [local_name, *split_list(text)]
        for name in found:
            check_name(name)
            if found.count(name) > 1:
                raise ParameterError(f"others: {name} is taken; everybody has a name of its own")
        if len(found) < 2:
            raise ParameterError("others: there must be one other participant at least")
        return found

    def parse_dealers(text: str) -> dict[str, str]:
        names = split_list(text)
        operators = {f"{name}-dealer" if name in party_names else name: name for name in names}
        found = {name: by if by in party_names else "" for name, by in operators.items()}
        check_draft_dealers(found, party_names)
        return found

    party_names = prompter.ask(others, "The other participants, with commas", parse_parties)
    question = "Who deals: one or three from outside, or three of the participants"
    return party_names, prompter.ask(dealers, question, parse_dealers, "dealer")


def _ask_task(
    prompter: Prompter, task: str | None, classes: int | None, frame: Frame
) -> dict[str, Any]:
    """Return the task and the class count; by default, infer them from the label."""

    def check(text: str) -> dict[str, Any]:
        make_choice_parser("task", list(OBJECTIVES))(text)
        found = 2 if classes is None else classes
        if frame.label is not None:
            found = len(prepare_label(frame, text, n_classes=classes)[1])
        return {"task": text, **({"classes": found} if found > 2 else {})}

    if frame.label is None:
        prompter.check_answerable({"--task": task})
    default = None if frame.label is None else infer_task(frame)
    return prompter.ask(task, f"What is learned: {' or '.join(OBJECTIVES)}", check, default)


def _ask_align(prompter: Prompter, same_rows: bool | None, *, by_parties: bool) -> bool:
    """Return whether rows are aligned; dealers that participants play cannot align them."""

    def check(text: str) -> bool:
        return make_choice_parser("same_rows", ["yes", "no"])(text.lower()) == "no"

    if same_rows is not None or by_parties:
        return same_rows is False
    prompter.print_note("5. Whose rows?")
    return prompter.ask(
        None, "Do all have the same rows, in the same order (yes or no)", check, "no"
    )
