"""Serves until standard input ends, and carries out its commands: one JSON array per line, each answered by a line.

A command begins with a number, which its answer repeats.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from app.logs import configure
from app.testing.server import EmbeddedServer, serve

LOG_LEVEL = "error"
"""Without warnings: one says that a database in memory ends with the process, which is intended here."""

STOP = ["stop"]
"""The last command. Without it, a process that was forked from the tests could keep the input open."""


async def main() -> None:
    """Serve, and answer the first line with the URL."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer)
    embedded = EmbeddedServer()
    async with serve(embedded) as url:
        _answer(0, {"result": url})
        # The input ends when the writing process ends, at the latest.
        while (line := await commands.readline()) and (command := json.loads(line)) != STOP:
            number, *call = command
            _answer(number, await _carry_out(embedded, *call))


async def _carry_out(embedded: EmbeddedServer, name: str, seconds: float = 0) -> Mapping[str, Any]:
    try:
        match name:
            case "reset":
                await embedded.reset()
            case "advance":
                await embedded.advance(seconds)
            case "now":
                pass
            case _:
                return {"error": f"unknown command {name}"}
    except Exception as error:  # noqa: BLE001  # the caller raises it
        return {"error": repr(error)}
    return {"result": embedded.now()}


def _answer(number: int, answer: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps({'call': number, **answer})}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    configure("text", LOG_LEVEL)
    asyncio.run(main())
