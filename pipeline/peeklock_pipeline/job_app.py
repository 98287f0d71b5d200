"""Commands that are jobs: each has the options of a job and for the metrics of its run, and publishes them when it ends."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from peeklock_pipeline.causes import cause_of
from peeklock_pipeline.job_options import Job, err
from peeklock_pipeline.refusals import Refusal
from peeklock_pipeline.run_metrics import RunMetrics, current_run, measure, push, write_file

PANEL = "Metrics of the run"

REFUSED = 2
"""The exit status of a job that refuses, and of a command with wrong options."""

CRASHED = os.EX_SOFTWARE
"""The exit status of a job that an exception ended which is no refusal. Findings end with 1, as Python's crashes would."""

TERMINATED = 128 + signal.SIGTERM
"""The exit status of a job that SIGTERM ended, as shells have it."""

MetricsDirectory = Annotated[
    Path | None,
    typer.Option(
        envvar="PEEKLOCK_PIPELINE_METRICS_DIRECTORY",
        help="Write the metrics of this run into this directory, for the textfile collector of the node exporter.",
        rich_help_panel=PANEL,
    ),
]
PushGateway = Annotated[
    str | None,
    typer.Option(
        envvar="PEEKLOCK_PIPELINE_PUSH_GATEWAY",
        help="Push the metrics of this run to the Pushgateway at this URL.",
        rich_help_panel=PANEL,
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Print the traceback of an error on standard error.")]
OPTIONS = {"metrics_directory": MetricsDirectory, "push_gateway": PushGateway}


class Crash(Exception):
    """A job ended with an exception that Typer takes for the end of a terminal's input or output."""


class JobApp(typer.Typer):
    """An application of which each command is a job."""

    def run(self, words: Sequence[str] | None = None) -> None:
        """Run a job from these words or the command line, and end the process.

        A refusal prints one sentence and ends with 2, any other exception one with its cause and ends with 70.
        """
        try:
            self(words)
        except Refusal as refusal:
            err.print(str(refusal), markup=False, soft_wrap=True)
            raise SystemExit(REFUSED) from None
        except Exception as error:
            err.print(f"{_crash(error)} Run it again with --debug for the traceback.", markup=False, soft_wrap=True)
            raise SystemExit(CRASHED) from error

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return a decorator that makes a function a command, with the options for metrics.

        A parameter of type `Job` stands for the options of a job: for `--lake` in its place, and for the others at the
        end.
        """
        register = super().command(name, **settings)

        def decorate(function: Callable[..., None]) -> Callable[..., None]:
            register(_measured(name or function.__name__.replace("_", "-"), _with_job(function)))
            return function

        return decorate


def _crash(error: Exception) -> str:
    """Return a sentence about a crash: its kind and text in one line, without credentials."""
    found = error.__cause__ if isinstance(error, Crash) and error.__cause__ else error
    return f"This job crashed: {cause_of(f'{type(found).__name__}: {found}')}."


def _with_job(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function with the options of a job, which makes them the parameter of type `Job`, if there is one."""
    written = signature(function)
    name = next((name for name, found in written.parameters.items() if found.annotation is Job), None)
    if name is None:
        return function
    lake, *others = Job.parameters()

    @wraps(function)
    def with_options(**values: Any) -> None:
        function(**{name: Job(**{option.name: values.pop(option.name) for option in (lake, *others)})}, **values)

    own = [lake if found.name == name else found for found in written.parameters.values()]
    return _signed(with_options, [*own, *others])


def _measured(command: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return a function with the options for metrics, which publishes them however the run ends, and `--debug`."""

    @wraps(function)
    def job(**values: Any) -> None:
        directory, gateway, debug = (values.pop(name) for name in (*OPTIONS, "debug"))
        started, succeeded = time.monotonic(), False
        with current_run(command, values.get("lake")) as run:

            def end() -> None:
                _measure_end(time.monotonic() - started, succeeded)
                _publish(run, directory, gateway)

            try:
                with _ended_by_sigterm(end), _traced(debug):
                    function(**values)
                succeeded = True
            except typer.Exit:  # with findings
                succeeded = True
                raise
            except (EOFError, BrokenPipeError) as error:
                # Such as one of Spark's sockets. Typer would end with 1, and print nothing.
                raise Crash from error
            finally:
                end()

    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in OPTIONS.items()]
    added.append(Parameter("debug", Parameter.KEYWORD_ONLY, default=False, annotation=Debug))
    return _signed(job, [*signature(function).parameters.values(), *added])


@contextmanager
def _traced(wanted: bool) -> Iterator[None]:
    """Print the traceback of an error if it is wanted, before the sentence about it."""
    try:
        yield
    except Exception as error:
        if wanted and not isinstance(error, typer.Exit):
            traceback.print_exc()
        raise


def _signed(function: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """Let a function have these parameters, of which typer makes the options of a command."""
    named = [found.replace(kind=Parameter.KEYWORD_ONLY) for found in parameters]
    function.__signature__ = Signature(named)  # pyright: ignore[reportFunctionMemberAccess]
    return function


@contextmanager
def _ended_by_sigterm(end: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM end this process at once, after `end`. An exception would have to wait for Spark, for minutes.

    A job may end anywhere. In a container, the first process would ignore a signal that it does not handle.
    """

    def terminate(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        try:
            end()
            os.write(sys.stderr.fileno(), b"This job was ended by SIGTERM. Run it again.\n")
        finally:
            os._exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measure_end(seconds: float, succeeded: bool) -> None:
    now = time.time()
    measure(success=int(succeeded), duration_seconds=seconds, end_timestamp_seconds=now)
    if succeeded:
        measure(last_success_timestamp_seconds=now)


def _publish(run: RunMetrics, directory: Path | None, gateway: str | None) -> None:
    """Write and push the metrics. A failure is reported on standard error, and does not change the exit status."""
    problems = [write_file(run, directory) if directory else None, push(run, gateway) if gateway else None]
    for problem in problems:
        if problem:
            typer.echo(problem, err=True)
