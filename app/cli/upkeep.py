"""`peeklock migrate | openapi | bench`: what an operator or a developer runs beside a server."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.client import err
from app.cli.serving import read_settings
from app.domain.refusals import StoreUnavailable
from app.store.open import BadStoreUrl

CHECKOUT = Path(__file__).resolve().parents[2]


def migrate() -> None:
    """Create or update the tables of PEEKLOCK_DATABASE_URL."""
    from app.store.migrate import DatabaseIsNewer  # noqa: PLC0415  # a second that no other command needs
    from app.store.migrate import migrate as migrate_tables  # noqa: PLC0415

    settings = read_settings()
    if settings.is_embedded:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    try:
        migrate_tables(settings.store_url)
    except DatabaseIsNewer as refusal:
        err.print(str(refusal), markup=False)
        raise typer.Exit(2) from None
    except (BadStoreUrl, StoreUnavailable) as refusal:
        err.print(str(refusal), markup=False)
        raise typer.Exit(1) from None
    err.print("The tables are up to date.")


def openapi() -> None:
    """Print the OpenAPI document."""
    from app.api.document import openapi_document  # noqa: PLC0415  # it costs half a second that no other command needs

    typer.echo(json.dumps(openapi_document(), indent=2, ensure_ascii=False))


def bench(
    rest: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]...", help="What the benchmark takes.")] = None,
) -> None:
    """Measure what a message costs beside references; this needs the source tree, which brings the benchmark."""
    if not (CHECKOUT / "benchmarks").is_dir():
        err.print(
            "The benchmark is not installed with the server: it lies in benchmarks/ of the source tree "
            "and runs there, with `python3 dev.py bench`."
        )
        raise typer.Exit(1)
    os.environ["BENCH_TYPED_AS"] = "peeklock bench"
    os.execv(sys.executable, [sys.executable, str(CHECKOUT / "dev.py"), "bench", *(rest or ())])
