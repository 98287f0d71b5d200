"""`peeklock-pipeline`: one command for each job, with progress for people and `--json` for machines."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from peeklock_pipeline.plurals import batches, messages, queues
from peeklock_pipeline.refusals import Refusal
from peeklock_pipeline.replay_request import InDoubtAction

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

DatabaseUrl = Annotated[
    str, typer.Option("--database-url", envvar="PEEKLOCK_DATABASE_URL", help="As the server's PEEKLOCK_DATABASE_URL.")
]
LakeDirectory = Annotated[Path, typer.Option("--lake", help="The directory of the lake.")]
Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], spark://host:port, yarn, k8s://...")]
LOCAL = "local[*]"
Url = Annotated[str, typer.Option(envvar="PEEKLOCK_URL", help="The server.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="PEEKLOCK_API_KEY", help="Where the server wants keys.")]
SERVER = "http://127.0.0.1:8080"
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of sentences.")]


def main(words: Sequence[str] | None = None) -> None:
    """Run the job that these words, or those of the command line, ask for; a refusal is one sentence and exit status 2."""
    try:
        app(words)
    except Refusal as refusal:
        err.print(str(refusal), markup=False, soft_wrap=True)
        raise SystemExit(2) from None


@app.callback()
def peeklock_pipeline() -> None:
    """What happened to every message, kept for good and asked with Spark."""


def print_result(result: Any, as_json: bool, sentence: str) -> None:
    """Print what came of a job."""
    if as_json:
        print(json.dumps(asdict(result), default=str))
    else:
        out.print(sentence, markup=False, soft_wrap=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, where that is somebody's terminal, that hears how much of how much is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command()
def export(database_url: DatabaseUrl, lake: LakeDirectory, master: Master = LOCAL, as_json: AsJson = False) -> None:
    """Bring what was archived since the last export into the lake, each message exactly once."""
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.jobs.export import export as run
    from peeklock_pipeline.jobs.export import pending_batches
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.session import open_session

    source, target = Database.from_url(database_url), Lake(lake)
    pending_batches(source, target.export_position())  # refused before Spark starts, which takes seconds
    with progress("exporting") as report_progress:
        done = run(open_session(master), source, target, report_progress)
    sentence = f"{messages(done.messages)} in {batches(done.batches)} went into {lake}."
    if done.missed:
        sentence += f" {done.missed} more were removed by their retention before this export came for them."
    print_result(done, as_json, sentence)


@app.command()
def report(
    lake: LakeDirectory,
    page: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path("report.html"),
    queue: Annotated[str | None, typer.Option(help="Only this queue; the lake's tables then stay as they are.")] = None,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Say what happened to messages: tables in the lake, and one HTML page that needs nothing else."""
    from peeklock_pipeline.jobs.report import begin
    from peeklock_pipeline.jobs.report import report as run
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.session import open_session

    source = Lake(lake)
    begin(source)  # refused before Spark starts, which takes seconds
    with progress("reporting") as report_progress:
        done = run(open_session(master), source, page, queue, report_progress)
    sentence = f"{messages(done.messages)} of {queues(done.queues)}: see {done.page}."
    if done.tables:
        sentence += f" The lake has the tables {', '.join(done.tables)}."
    print_result(done, as_json, sentence)


@app.command()
def replay(
    lake: LakeDirectory,
    queue: Annotated[str, typer.Option("--to", help="The queue that messages are sent to.")],
    where: Annotated[str, typer.Option(help="Which messages: Spark SQL over the archive's columns.")],
    url: Url = SERVER,
    api_key: Key = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="Say what would be sent, and send nothing.")] = False,
    rate: Annotated[float, typer.Option(help="Messages per second, of all tasks together.")] = 500.0,
    name: Annotated[str | None, typer.Option(help="Go on with, or begin, the replay of this name.")] = None,
    in_doubt: Annotated[
        InDoubtAction, typer.Option(help="What to do with messages that the queue may have had and forgotten.")
    ] = InDoubtAction.REFUSE,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Send messages from the lake to a queue again: each once, whatever dies, and however often this is run."""
    from peeklock_pipeline.jobs.replay import plan
    from peeklock_pipeline.jobs.replay import replay as run
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.replay_request import ReplayRequest
    from peeklock_pipeline.sending import Destination
    from peeklock_pipeline.session import open_session

    source = Lake(lake)
    order = ReplayRequest.create(where, Destination.from_url(url, queue, api_key), rate, name)
    source.archive_table()  # refused before Spark starts, which takes seconds
    if only_plan:
        found = plan(open_session(master), source, order)
        print_result(found, as_json, found.sentence(queue))
        return
    with progress("replaying") as report_progress:
        done = run(open_session(master), source, order, in_doubt, report_progress)
    print_result(done, as_json, done.sentence(queue))


Queues = Annotated[list[str] | None, typer.Option("--queue", help="Only this queue; may be given several times.")]


@app.command()
def snapshot(database_url: DatabaseUrl, lake: LakeDirectory, master: Master = LOCAL, as_json: AsJson = False) -> None:
    """Put the messages that are in queues now, dead-lettered ones among them, into the lake's table `messages`."""
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.jobs.export import sealed_batches_after
    from peeklock_pipeline.jobs.snapshot import snapshot as run
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.session import open_session

    source, target = Database.from_url(database_url), Lake(lake)
    sealed_batches_after(source, target.export_position())
    done = run(open_session(master), source, target)
    print_result(done, as_json, f"{messages(done.messages)} from queues at {done.taken_at:%F %T} UTC went into {lake}.")


@app.command()
def audit(
    database_url: DatabaseUrl,
    lake: LakeDirectory,
    expect: Annotated[
        Path | None,
        typer.Option(help="Ids of messages that were sent: a JSON string, or object with message_id, a line."),
    ] = None,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Prove that nothing was lost and nothing is there twice; exit status 1 where something was, and it is named."""
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.jobs.audit import audit as run
    from peeklock_pipeline.jobs.export import sealed_batches_after
    from peeklock_pipeline.lake import Lake, export_position_of
    from peeklock_pipeline.session import open_session

    source, target = Database.from_url(database_url), Lake(lake)
    sealed_batches_after(source, export_position_of(target.archive_table()))
    with progress("auditing") as report_progress:
        done = run(open_session(master), source, target, expect, report_progress)
    print_result(done, as_json, done.sentences())
    if done.findings:
        raise typer.Exit(1)


@app.command()
def trim(
    lake: LakeDirectory,
    url: Url = SERVER,
    api_key: Key = None,
    older_than: Annotated[str, typer.Option(help="Only what was sealed longer ago, such as 7d or 12h.")] = "1d",
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Have the server remove what is in the lake, message for message; exit status 1 where a batch differs."""
    from peeklock_pipeline.ages import parse_age
    from peeklock_pipeline.jobs.trim import Server
    from peeklock_pipeline.jobs.trim import trim as run
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.session import open_session

    target, sealed_before = Lake(lake), parse_age(older_than)
    target.archive_table()
    with Server(url, api_key) as server:
        next(server.batches(), None)  # refused before Spark starts
        with progress("trimming") as report_progress:
            done = run(open_session(master), server, target, sealed_before, report_progress)
    print_result(done, as_json, done.sentences())
    if done.count("differs") or done.count("unknown"):
        raise typer.Exit(1)


@app.command()
def compact(lake: LakeDirectory, as_json: AsJson = False) -> None:
    """Put the many files of exports together into few large ones; the messages stay the same."""
    from peeklock_pipeline.jobs.compact import compact as run
    from peeklock_pipeline.lake import Lake

    done = run(Lake(lake))
    print_result(
        done, as_json, f"{done.files_before} files before, {done.files} now; `vacuum` removes the old ones later."
    )


@app.command()
def vacuum(
    lake: LakeDirectory,
    older_than: Annotated[str, typer.Option(help="Only files older than that, such as 7d or 12h.")] = "7d",
    as_json: AsJson = False,
) -> None:
    """Remove files that belong to nothing: what a crash left, a compaction replaced, a removal took out."""
    from peeklock_pipeline.ages import parse_age
    from peeklock_pipeline.jobs.compact import vacuum as run
    from peeklock_pipeline.lake import Lake

    done = run(Lake(lake), parse_age(older_than))
    print_result(done, as_json, f"{done.files} files of {done.bytes} bytes were removed from {lake}.")


@app.command()
def retention(
    lake: LakeDirectory,
    older_than: Annotated[str, typer.Option(help="What ended longer ago, in whole days, such as 400d.")],
    queue: Queues = None,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Remove messages that ended long ago from the lake, of all queues or of some."""
    from peeklock_pipeline.ages import parse_age
    from peeklock_pipeline.jobs.retention import first_kept_day
    from peeklock_pipeline.jobs.retention import retention as run
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.session import open_session

    target, before = Lake(lake), first_kept_day(parse_age(older_than))
    target.archive_table()
    done = run(open_session(master), target, before, queue or ())
    print_result(done, as_json, f"Removed {messages(done.messages)} that ended before {done.before} from {lake}.")


def _explain(wanted: bool) -> None:
    if wanted:
        from peeklock_pipeline.transforms import what_if

        out.print(what_if.__doc__, markup=False, soft_wrap=True, end="")
        raise typer.Exit


@app.command()
def what_if(
    lake: LakeDirectory,
    policy: Annotated[str, typer.Option(help="As lock=30s,limit=10,retry=exponential:1s:2:60s, or a part of it.")],
    was: Annotated[str, typer.Option(help="What was in force, likewise; the rest is as in a new queue.")] = "",
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    crashed: Annotated[float, typer.Option(min=0, max=1, help="Share of lost locks whose receiver had died.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The luck of the draws.")] = 1,
    _explained: Annotated[bool, typer.Option("--explain", is_eager=True, callback=_explain, help="Say how.")] = False,
    master: Master = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Ask what another lock duration, delivery limit or retry delay would have done with the messages there were."""
    from peeklock_pipeline.jobs.report import begin
    from peeklock_pipeline.jobs.what_if import WhatIfRequest
    from peeklock_pipeline.jobs.what_if import what_if as run
    from peeklock_pipeline.lake import Lake
    from peeklock_pipeline.policy import Policy, read_policy
    from peeklock_pipeline.session import open_session

    in_force = read_policy(was, Policy())
    question, source = WhatIfRequest(in_force, read_policy(policy, in_force), crashed, seed), Lake(lake)
    begin(source)  # refused before Spark starts, which takes seconds
    with progress("asking what if") as report_progress:
        done = run(open_session(master), source, question, queue, report_progress)
    print_result(done, as_json, done.sentences())
