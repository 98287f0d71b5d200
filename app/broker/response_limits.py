"""How many bytes of messages one response and all responses together may have."""

from dataclasses import dataclass

from app.runtime.byte_budget import ByteBudget


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """The limits of responses in one process.

    `budget` counts the bytes of all responses that are being read or written. The messages of one response weigh at
    most `max_bytes`, unless the response is a single message.
    """

    budget: ByteBudget
    max_bytes: int
