"""`peeklock-pipeline`: one command for each job, with progress on terminals and `--json` for programs."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from peeklock_pipeline.dialects import Dialect
from peeklock_pipeline.job_app import JobApp
from peeklock_pipeline.job_options import AsJson, Job, LakePlace, StorageOptions, err, open_lake, out, print_result
from peeklock_pipeline.output_file import write_output
from peeklock_pipeline.plurals import batches, files, messages, queues, size
from peeklock_pipeline.replay_request import InDoubtAction
from peeklock_pipeline.run_metrics import AUDIT_FROM_SCRATCH, measure, name_run

app = JobApp(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database-url",
        envvar="PEEKLOCK_DATABASE_URL",
        help="The URL of the server's database, as in the server's PEEKLOCK_DATABASE_URL.",
    ),
]
Url = Annotated[str, typer.Option(envvar="PEEKLOCK_URL", help="The URL of the server.")]
Key = Annotated[
    str | None, typer.Option("--api-key", envvar="PEEKLOCK_API_KEY", help="An API key, if the server requires keys.")
]
SERVER = "http://127.0.0.1:8080"


def main(words: Sequence[str] | None = None) -> None:
    """Run a job from these words or the command line, as `JobApp.run` does.

    deltalake prints only errors, as the JVM does, unless `RUST_LOG` says otherwise. A refusal says what it warns of.
    """
    os.environ.setdefault("RUST_LOG", "error")
    app.run(words)


@app.callback()
def peeklock_pipeline() -> None:
    """Keep the history of every message in a lake, and query it with Spark."""


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if stderr is a terminal. Yields the function that updates it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command()
def export(
    database_url: DatabaseUrl,
    job: Job,
) -> None:
    """Copy what was archived since the last export into the lake, each message exactly once."""
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.export_lag import export_lag
    from peeklock_pipeline.jobs.export import export as run
    from peeklock_pipeline.jobs.export import missed_messages, require_same_database

    source, target = Database.from_url(database_url), job.open_lake()
    began, position = time.time(), target.export_position()
    require_same_database(source, position)  # before Spark starts, which takes seconds
    lag = export_lag(source, position.number, source.pending(position.number), began)
    measure(**lag, missed_messages=missed_messages(target))
    with progress("exporting") as report_progress:
        done = run(job.open_session(), source, target, report_progress)
    measure(exported_until_timestamp_seconds=began, missed_messages=missed_messages(target))
    sentence = f"{messages(done.messages)} in {batches(done.batches)} went into {job.lake}."
    if not position.number and (begun := target.first_batch()):
        sentence += f" This is a new lake, which begins with batch {begun.number}."
    if done.missed:
        sentence += f" {done.missed} more were removed by their retention before this export came for them."
    job.print_result(done, sentence)


@app.command()
def report(
    job: Job,
    page: Annotated[Path, typer.Option("--out", help="The path of the page.")] = Path("report.html"),
    queue: Annotated[str | None, typer.Option(help="Only this queue; the lake's tables then stay unchanged.")] = None,
    begins: Annotated[
        str | None,
        typer.Option(
            "--from", help="The page begins here: a day or hour in UTC, such as 2026-11-01 or 2026-11-01T14:00."
        ),
    ] = None,
    ends: Annotated[
        str | None, typer.Option("--to", help="The page ends before this day or hour; by default now.")
    ] = None,
    last: Annotated[str | None, typer.Option(help="The page covers the time up to now, such as 7d or 24h.")] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Read every message again, not only those of new batches.")
    ] = False,
) -> None:
    """Report what happened to messages, as tables in the lake and as one self-contained HTML page.

    With a period, the page compares it with the period of the same length directly before. The tables cover all of the
    time.
    """
    from peeklock_pipeline.jobs.report import ReportRequest, begin
    from peeklock_pipeline.jobs.report import report as run
    from peeklock_pipeline.period import parse_period

    request = ReportRequest(queue, parse_period(begins, ends, last), from_scratch)
    source = job.open_lake()
    begin(source)  # refuse before Spark starts, which takes seconds
    with progress("reporting") as report_progress:
        done = run(job.open_session(), source, page, request, report_progress)
    sentence = f"{messages(done.messages)} of {queues(done.queues)}: see {done.page}."
    if done.tables:
        sentence += f" The lake has the tables {', '.join(done.tables)}."
    if done.unarchived:
        sentence += f" It is unknown how {messages(done.unarchived)} of queues without an archive ended."
    job.print_result(done, sentence)


@app.command()
def replay(
    job: Job,
    queue: Annotated[str, typer.Option("--to", help="The queue to send messages to.")],
    where: Annotated[str, typer.Option(help="A filter of messages: Spark SQL over the archive's columns.")],
    url: Url = SERVER,
    api_key: Key = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="Print what would be sent, and send nothing.")] = False,
    rate: Annotated[float, typer.Option(help="Messages per second, over all tasks.")] = 500.0,
    name: Annotated[str | None, typer.Option(help="Continue or begin the replay with this name.")] = None,
    in_doubt: Annotated[
        InDoubtAction,
        typer.Option(help="What to do with messages that may have been sent, and whose ids the queue has forgotten."),
    ] = InDoubtAction.REFUSE,
) -> None:
    """Send messages from the lake to a queue again: each once, after any crash and any number of runs."""
    from peeklock_pipeline.jobs.replay import plan
    from peeklock_pipeline.jobs.replay import replay as run
    from peeklock_pipeline.replay_request import ReplayRequest
    from peeklock_pipeline.sending import Destination

    source = job.open_lake()
    request = ReplayRequest.create(where, Destination.from_url(url, queue, api_key), rate, name)
    source.archive_table()  # refuse before Spark starts, which takes seconds
    if only_plan:
        found = plan(job.open_session(), source, request)
        job.print_result(found, found.sentence(queue))
        return
    with progress("replaying") as report_progress:
        done = run(job.open_session(), source, request, in_doubt, report_progress)
    job.print_result(done, done.sentence(queue))


Queues = Annotated[list[str] | None, typer.Option("--queue", help="Only this queue; can be repeated.")]


@app.command()
def snapshot(
    database_url: DatabaseUrl,
    job: Job,
    replace_later: Annotated[
        bool, typer.Option("--replace-later", help="Replace also what a snapshot wrote that began later.")
    ] = False,
) -> None:
    """Replace the lake's tables of what is in the broker now: messages in queues, groups, topics, states and others."""
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.jobs.export import require_same_database
    from peeklock_pipeline.jobs.snapshot import snapshot as run

    source, target = Database.from_url(database_url), job.open_lake()
    require_same_database(source, target.export_position())
    done = run(job.open_session(), source, target, replaces_later=replace_later)
    sentence = f"{messages(done.messages)} from queues at {done.taken_at:%F %T} UTC went into {job.lake}."
    job.print_result(done, f"{sentence} The lake has the tables {', '.join(done.tables)}.")


@app.command()
def audit(
    database_url: DatabaseUrl,
    job: Job,
    expect: Annotated[
        Path | None,
        typer.Option(help="A file of the ids that were sent: each line a JSON string, or an object with message_id."),
    ] = None,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Read all messages again, also those that an earlier audit has.")
    ] = False,
) -> None:
    """Prove that no message is lost or duplicated. Faults are named, and the exit status is then 1."""
    from peeklock_pipeline.database import Database
    from peeklock_pipeline.jobs.audit import AuditOptions
    from peeklock_pipeline.jobs.audit import audit as run
    from peeklock_pipeline.jobs.export import require_same_database
    from peeklock_pipeline.tables import export_position_of

    if from_scratch:
        name_run(AUDIT_FROM_SCRATCH)
    source, target = Database.from_url(database_url), job.open_lake()
    require_same_database(source, export_position_of(target.archive_table()))
    with progress("auditing") as report_progress:
        done = run(job.open_session(), source, target, expect, report_progress, AuditOptions(from_scratch))
    measure(findings=len(done.findings) + done.unnamed)
    job.print_result(done, done.sentences())
    if done.findings:
        raise typer.Exit(1)


@app.command()
def views(
    lake: LakePlace,
    dialect: Annotated[Dialect, typer.Option(help="The engine that the statements are for.")] = Dialect.SPARK,
    script: Annotated[Path | None, typer.Option("--out", help="Write the statements to this file.")] = None,
    storage_option: StorageOptions = None,
) -> None:
    """Print SQL that makes the views messages, deliveries, dead_letters and waiting_time over the lake."""
    from peeklock_pipeline.jobs.views import statements

    written = statements(open_lake(lake, storage_option), dialect)
    if script is None:
        print(written, end="")
    else:
        write_output(script, written)


@app.command()
def trim(
    job: Job,
    url: Url = SERVER,
    api_key: Key = None,
    older_than: Annotated[
        str, typer.Option(help="Only batches that were sealed longer ago than this, such as 7d or 12h.")
    ] = "1d",
) -> None:
    """Have the server remove batches that the lake holds completely; exit status 1 if a batch differs."""
    from peeklock_pipeline.ages import parse_age
    from peeklock_pipeline.jobs.trim import Server
    from peeklock_pipeline.jobs.trim import trim as run

    target, sealed_before = job.open_lake(), parse_age(older_than)
    target.archive_table()
    with Server(url, api_key) as server:
        next(server.batches(), None)  # refuse before Spark starts
        with progress("trimming") as report_progress:
            done = run(job.open_session(), server, target, sealed_before, report_progress)
    measure(findings=done.count("differs") + done.count("unknown"))
    job.print_result(done, done.sentences())
    if done.count("differs") or done.count("unknown"):
        raise typer.Exit(1)


@app.command()
def compact(
    job: Job,
) -> None:
    """Merge the many files of exports into few large ones; the messages stay the same."""
    from peeklock_pipeline.jobs.compact import compact as run

    target = job.open_lake()
    target.archive_table()  # refuse before Spark starts, which takes seconds
    with progress("compacting") as report_progress:
        done = run(job.open_session(), target, report_progress)
    job.print_result(done, f"{files(done.files_before)} before, {done.files} now; `vacuum` removes the old ones later.")


@app.command()
def copy(
    job: Job,
    to: Annotated[str, typer.Option("--to", help="The place of the copy: a new directory, or a URI.")],
    to_storage_option: Annotated[
        list[str] | None,
        typer.Option("--to-storage-option", metavar="KEY=VALUE", help="An option of the copy's object store."),
    ] = None,
) -> None:
    """Copy a lake to another place, in the layout of this version; run it again after a crash."""
    from peeklock_pipeline.jobs.copy import copy as run

    source, target = job.open_lake(), open_lake(to, to_storage_option)
    source.archive_table()  # refuse before Spark starts, which takes seconds
    with progress("copying") as report_progress:
        done = run(job.open_session(), source, target, report_progress)
    sentence = f"{messages(done.messages)} in {files(done.files)} went into {to}, which has all batches up to {done.last_batch}."
    job.print_result(done, sentence)


@app.command()
def vacuum(
    lake: LakePlace,
    older_than: Annotated[str, typer.Option(help="Only files older than this, such as 7d or 12h.")] = "7d",
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Remove files that belong to no table: left by a crash, replaced by a compaction, or removed by retention."""
    from peeklock_pipeline.ages import parse_age
    from peeklock_pipeline.jobs.compact import vacuum as run

    with progress("vacuuming") as report_progress:
        done = run(open_lake(lake, storage_option), parse_age(older_than), report_progress)
    print_result(done, as_json, f"Removed {files(done.files)} with {size(done.bytes)} from {lake}.")


@app.command()
def retention(
    job: Job,
    older_than: Annotated[
        str, typer.Option(help="Only messages that ended longer ago than this, in whole days, such as 400d.")
    ],
    queue: Queues = None,
) -> None:
    """Remove messages that ended long ago from the lake, of all queues or of the named ones."""
    from peeklock_pipeline.ages import parse_age
    from peeklock_pipeline.jobs.retention import first_kept_day
    from peeklock_pipeline.jobs.retention import retention as run

    target, before = job.open_lake(), first_kept_day(parse_age(older_than))
    target.archive_table()
    done = run(job.open_session(), target, before, queue or ())
    job.print_result(done, f"Removed {messages(done.messages)} that ended before {done.before} from {job.lake}.")


def _explain(wanted: bool) -> None:
    if wanted:
        from peeklock_pipeline.transforms import what_if

        out.print(what_if.__doc__, markup=False, soft_wrap=True, end="")
        raise typer.Exit


@app.command()
def what_if(
    job: Job,
    policy: Annotated[
        str,
        typer.Option(help="The other policy, such as lock=30s,limit=10,retry=exponential:1s:2:60s, or a part of it."),
    ],
    was: Annotated[
        str, typer.Option(help="The policy that was in force, in the same form; missing parts are as in a new queue.")
    ] = "",
    queue: Annotated[str | None, typer.Option(help="Only this queue.")] = None,
    crashed: Annotated[
        float, typer.Option(min=0, max=1, help="The share of lost locks whose receiver had crashed.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The seed of the random draws.")] = 1,
    _explained: Annotated[
        bool, typer.Option("--explain", is_eager=True, callback=_explain, help="Explain the model.")
    ] = False,
) -> None:
    """Estimate the effect of another lock duration, delivery limit or retry delay on the messages of the lake."""
    from peeklock_pipeline.jobs.report import begin
    from peeklock_pipeline.jobs.what_if import WhatIfRequest
    from peeklock_pipeline.jobs.what_if import what_if as run
    from peeklock_pipeline.policy import Policy, read_policy

    in_force = read_policy(was, Policy())
    question, source = (
        WhatIfRequest(in_force, read_policy(policy, in_force), crashed, seed),
        job.open_lake(),
    )
    begin(source)  # refuse before Spark starts, which takes seconds
    with progress("asking what if") as report_progress:
        done = run(job.open_session(), source, question, queue, report_progress)
    job.print_result(done, done.sentences())
