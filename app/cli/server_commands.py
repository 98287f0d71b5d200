"""`peeklock serve | migrate | openapi | bench`: the commands of operators and developers.

Each imports its modules when it runs, because the other commands only need an HTTP client.
"""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.models import CommandInfo

from app.cli.output import say

CHECKOUT = Path(__file__).resolve().parents[2]


class ServeCommand(TyperCommand):
    """A command whose help lists every setting."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """See `click.Command`."""
        from app.cli.serving import settings_help

        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(settings_help())


def serve(
    host: Annotated[str | None, typer.Option(help="Overrides PEEKLOCK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Overrides PEEKLOCK_PORT.")] = None,
    workers: Annotated[int | None, typer.Option(help="Overrides PEEKLOCK_WORKERS.")] = None,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="Serve beyond loopback without API keys.")
    ] = False,
) -> None:
    """Run the server until it is stopped."""
    from app.cli import serving

    options = {"host": host, "port": port, "workers": workers, "insecure_no_auth": insecure_no_auth or None}
    serving.serve({name: value for name, value in options.items() if value is not None})


SERVE = CommandInfo(callback=serve, cls=ServeCommand)


def migrate() -> None:
    """Create or update the tables of PEEKLOCK_DATABASE_URL."""
    from app.cli.serving import read_settings
    from app.domain.refusals import StoreUnavailable
    from app.server.preflight import RefusedToStart, make_data_directory, with_cause
    from app.store.in_use import FileInUse
    from app.store.migrate import DatabaseIsNewer
    from app.store.migrate import migrate as migrate_tables
    from app.store.url import BadStoreUrl

    settings = read_settings()
    try:
        make_data_directory(settings)
        migrate_tables(settings.store_url, say)
    except DatabaseIsNewer as refusal:
        say(str(refusal))
        raise typer.Exit(2) from None
    except StoreUnavailable as error:
        say(with_cause(error))
        raise typer.Exit(1) from None
    except (RefusedToStart, BadStoreUrl, FileInUse) as refusal:
        say(str(refusal))
        raise typer.Exit(1) from None
    say("The tables are up to date.")


def openapi() -> None:
    """Print the OpenAPI document."""
    from app.api.openapi.document import openapi_document

    typer.echo(json.dumps(openapi_document(), indent=2, ensure_ascii=False))


def bench(
    rest: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]...", help="Options of the benchmark.")] = None,
) -> None:
    """Measure the cost of a message. This needs the source tree."""
    if not (CHECKOUT / "benchmarks").is_dir():
        say(
            "The benchmark is not installed with the server. It is in benchmarks/ of the source tree. "
            "Run it there with `python3 dev.py bench`."
        )
        raise typer.Exit(1)
    os.environ["BENCH_TYPED_AS"] = "peeklock bench"
    os.execv(sys.executable, [sys.executable, str(CHECKOUT / "dev.py"), "bench", *(rest or ())])


BENCH = CommandInfo(callback=bench, add_help_option=False, context_settings={"ignore_unknown_options": True})
