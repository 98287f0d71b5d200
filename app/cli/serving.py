"""`peeklock serve | migrate | openapi`: what runs a server, on the machine that it runs on."""

import asyncio
import json
import os
import shutil
import tempfile
from typing import Annotated

import typer
import uvicorn
from pydantic import ValidationError
from rich.console import Console

from app.cli.preflight import RefusedToStart, prepare
from app.settings import Settings
from app.store.migrate import migrate as migrate_tables

err = Console(stderr=True, soft_wrap=True, highlight=False)

METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
PREFIX = "PEEKLOCK_"

FIRST_STEPS = """
Peeklock listens on [bold]{url}[/bold] and keeps its messages in {where}. In another terminal, try:

  [bold]curl -s {url}/v1/queues/hello/messages -d '{{"body": {{"text": "my first message"}}}}'[/bold]
  [bold]curl -s {url}/v1/queues/hello/messages/receive -d '{{"wait_seconds": 5}}'[/bold]

The second one answers with a lock_token. Put it here, and the message is done:

  [bold]curl -s -X POST {url}/v1/queues/hello/locks/LOCK_TOKEN/complete[/bold]

Stop with Ctrl-C. Everything it can do: {url}/openapi.json
"""


def settings_help() -> str:
    """Every setting with its default and what it does, for `serve --help`."""
    lines = ["Serve until told to stop. Settings come from the environment:", ""]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" [{field.default}]"
        lines += [f"{PREFIX}{name.upper()}{default}  {field.description}", ""]
    return "\n".join(lines)


def serve(
    host: Annotated[str | None, typer.Option(help="Instead of PEEKLOCK_HOST.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of PEEKLOCK_PORT.")] = None,
    workers: Annotated[int | None, typer.Option(help="Instead of PEEKLOCK_WORKERS.")] = None,
    insecure_no_auth: Annotated[
        bool, typer.Option("--insecure-no-auth", help="Serve beyond loopback without API keys.")
    ] = False,
) -> None:
    """Serve until told to stop."""
    given = {"HOST": host, "PORT": port, "WORKERS": workers, "INSECURE_NO_AUTH": insecure_no_auth or None}
    # Server processes read the environment, so what was typed goes there.
    os.environ.update({PREFIX + name: str(value) for name, value in given.items() if value is not None})
    settings = read_settings()
    try:
        asyncio.run(prepare(settings))
    except RefusedToStart as refusal:
        err.print(str(refusal), markup=False)
        raise typer.Exit(2) from None
    _welcome(settings)
    _run(settings)


def migrate() -> None:
    """Create or update the tables of PEEKLOCK_DATABASE_URL."""
    settings = read_settings()
    if settings.is_embedded:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
    migrate_tables(settings.store_url)
    err.print("The tables are up to date.")


def openapi() -> None:
    """Print the OpenAPI document."""
    from app.api.document import openapi_document  # noqa: PLC0415  # it costs half a second that no other command needs

    typer.echo(json.dumps(openapi_document(), indent=2, ensure_ascii=False))


def read_settings() -> Settings:
    """The settings of the environment; what is wrong with them is said in one line each."""
    try:
        return Settings()
    except ValidationError as error:
        for fault in error.errors():
            name = PREFIX + str(fault["loc"][0]).upper()
            err.print(f"{name}: {fault['msg']} (given: {fault['input']})", markup=False)
        raise typer.Exit(2) from None


def _run(settings: Settings) -> None:
    metrics_dir = None
    if settings.workers > 1:
        metrics_dir = tempfile.mkdtemp(prefix="peeklock-metrics-")
        os.environ[METRICS_DIR] = metrics_dir
    try:
        uvicorn.run(
            "app.main:create",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            # Nothing here asks where a request came from; a proxy's word for it need not be read.
            proxy_headers=False,
            timeout_graceful_shutdown=int(settings.shutdown_grace_seconds),
        )
    finally:
        if metrics_dir is not None:
            shutil.rmtree(metrics_dir, ignore_errors=True)


def _welcome(settings: Settings) -> None:
    url = f"http://{settings.host if settings.host != '0.0.0.0' else 'localhost'}:{settings.port}"
    where = str(settings.data_dir / "peeklock.db") if settings.is_embedded else "the database of PEEKLOCK_DATABASE_URL"
    err.print(FIRST_STEPS.format(url=url, where=where))
