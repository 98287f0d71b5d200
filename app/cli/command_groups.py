"""The appearance that all commands share."""

import typer


def command_group(help_text: str = "") -> typer.Typer:
    """Return a group for commands, or for one command alone."""
    return typer.Typer(
        no_args_is_help=True,
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
