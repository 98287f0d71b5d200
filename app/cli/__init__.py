"""The command line: `peeklock`."""

import typer

from app.cli.archive import archive
from app.cli.capabilities import capabilities
from app.cli.commit import commit
from app.cli.complete import complete
from app.cli.execute import execute
from app.cli.explain import explain
from app.cli.history import history
from app.cli.keys import key
from app.cli.messages import browse, receive, recover, send
from app.cli.queues import dead_letter, queue, restore
from app.cli.server_commands import ServeCommand, bench, migrate, openapi, serve
from app.cli.states import state
from app.cli.topics import publish, subscription, topic
from app.cli.transactions import transaction

app = typer.Typer(
    name="peeklock",
    help="Peeklock: a message broker over plain HTTP.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(cls=ServeCommand)(serve)
app.command()(migrate)
app.command()(openapi)
app.command(add_help_option=False, context_settings={"ignore_unknown_options": True})(bench)
app.command()(capabilities)
app.add_typer(queue, name="queue")
app.add_typer(topic, name="topic")
app.add_typer(subscription, name="subscription")
app.command()(send)
app.command()(publish)
app.command()(receive)
app.command()(complete)
app.command()(commit)
app.command()(recover)
app.command()(execute)
app.add_typer(transaction, name="transaction")
app.command()(browse)
app.command()(explain)
app.command()(history)
app.command()(restore)
app.add_typer(dead_letter, name="dead-letter")
app.add_typer(archive, name="archive")
app.add_typer(state, name="state")
app.add_typer(key, name="key")


def main() -> None:
    """Run the command that was typed."""
    app()
