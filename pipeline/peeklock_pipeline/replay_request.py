"""The parameters of a replay."""

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from peeklock_pipeline.refusals import BadOption
from peeklock_pipeline.sending import Destination

PORTION_MESSAGES = 5_000
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class InDoubtAction(StrEnum):
    """The action for a portion that may have been sent longer ago than the queue remembers."""

    REFUSE = "refuse"
    SEND = "send"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Send what matches `where` to a queue, at most `rate` messages per second, under a name.

    A request with the same name continues the same replay. So does one without a name but with the same filter and
    queue. Messages are sent in portions of at most `portion_messages`. A crash puts at most one portion in doubt.
    """

    where: str
    destination: Destination
    rate: float
    name: str
    portion_messages: int = PORTION_MESSAGES

    @classmethod
    def create(cls, where: str, destination: Destination, rate: float, name: str | None = None) -> "ReplayRequest":
        """Return a checked request. Refuses with `BadOption`."""
        if rate <= 0:
            raise BadOption("The rate is a number of messages per second above 0.")
        default_name = blake2b(f"{destination.queue}\n{where}".encode(), digest_size=6).hexdigest()
        if name is not None and not NAME.fullmatch(name):
            raise BadOption("The name of a replay has 1 to 64 letters, digits, dots, underscores and hyphens.")
        return cls(where, destination, rate, name or default_name)
