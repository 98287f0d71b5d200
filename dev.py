"""The developer's commands: creates the environment automatically, then runs, tests, checks and measures Peeklock."""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):
    print(f"dev.py: Peeklock needs Python 3.11 or newer; this is {sys.version.split()[0]}", file=sys.stderr)
    sys.exit(2)

import argparse
from pathlib import Path

from developing.commands import COMMANDS, bench, docs, pipeline_demo, sdk, test
from developing.machine import SERVERS
from developing.processes import Refusal, say
from developing.sdk import GENERATORS

TIERS = {
    "full": "run all that must pass before a change lands: every engine, faults, browser, pages, pipeline",
    "nightly": "run everything, also what takes too long for every change",
}
"""The options for more than the quick tests. tests/tiers.py says which tests each has."""


def read_command_line() -> argparse.Namespace:
    """Return the command and its options; `rest` has the arguments for the tool behind it."""
    parser = argparse.ArgumentParser(prog="dev.py", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in COMMANDS:
        # The benchmark and the demo print their own help.
        name, has_help = command.__name__.replace("_", "-"), command not in (bench, pipeline_demo)
        sub = commands.add_parser(name, help=command.__doc__, description=command.__doc__, add_help=has_help)
        sub.set_defaults(command=command)
        if command is test:
            sub.set_defaults(tier="quick")
            tiers = sub.add_mutually_exclusive_group()
            for name, text in TIERS.items():
                tiers.add_argument(f"--{name}", dest="tier", action="store_const", const=name, help=text)
            sub.add_argument("--without", choices=SERVERS, action="append", default=[], help="run without this server")
            sub.add_argument(
                "--sdks",
                action="store_true",
                help="run only the tests of the SDKs and of the pages of docs/, with those that need a JDK or Go",
            )
            sub.add_argument("--mutants", action="store_true", help="list the mutations that no fast test detects")
        if command is sdk:
            sub.add_argument("language", choices=GENERATORS, help=f"one of {', '.join(GENERATORS)}", metavar="LANGUAGE")
            text = "directory of the SDK, by default build/sdk/LANGUAGE"
            sub.add_argument("directory", nargs="?", type=Path, help=text, metavar="DIRECTORY")
        if command is docs:
            sub.add_argument("--serve", action="store_true", help="show the site on 127.0.0.1:8000 while pages change")
            sub.add_argument("--generate", action="store_true", help="write the pages of docs/reference from the code")
        if command is bench:
            sub.add_argument("--pipeline", action="store_true", help="measure the data pipeline instead of the service")
    arguments, arguments.rest = parser.parse_known_args()
    return arguments


def main() -> int:
    """Run the command of the command line."""
    arguments = read_command_line()
    return arguments.command(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refusal as refusal:
        say(str(refusal))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
