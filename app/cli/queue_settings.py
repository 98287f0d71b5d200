"""`peeklock queue create | update`: queues with their settings."""

from typing import Annotated, Any

import typer

from app.cli.client import CONNECTION, ApiClient, QueueName, queue_path
from app.cli.creating import IfNotExists, create
from app.cli.field_options import SettingsGroup
from app.cli.option_groups import with_options
from app.cli.request_options import QUEUE_SETTINGS_BODY


@with_options(settings=SettingsGroup(QUEUE_SETTINGS_BODY), client=CONNECTION)
def create_queue(
    name: QueueName, client: ApiClient, settings: dict[str, Any], if_not_exists: IfNotExists = False
) -> None:
    """Create a queue that does not exist yet. `queue update` changes an existing one."""
    create(client, queue_path(name), settings, if_not_exists)


@with_options(settings=SettingsGroup(QUEUE_SETTINGS_BODY, resets=True), client=CONNECTION)
def update_queue(
    name: QueueName,
    client: ApiClient,
    settings: dict[str, Any],
    keep_locks: Annotated[
        bool,
        typer.Option(
            "--keep-locks",
            help="Receivers keep the locks that they hold, even if a setting that they rely on changes. Renewals follow the "
            "new settings.",
        ),
    ] = False,
) -> None:
    """Change these settings of a queue and keep the others."""
    # An older server would revoke the locks. It refuses the parameter.
    query = {"keep_locks": "true"} if keep_locks else {}
    client.printer.fields(client.call("PATCH", queue_path(name), settings, query))
