"""Complete: a processed message moves from its queue to the archive, exactly once."""

from app.domain.queue import Queue
from app.domain.settlement import LockToken, Outcome, Removal
from app.domain.synchronous_send import check_reply


def complete(queue: Queue, token: LockToken, reply: bytes | None = None) -> Removal:
    """The settlement that removes a message from the queue (S0.7, S3.20). Refuses with `ReplyTooLarge`.

    The same transaction moves its row to the archive, with the token that settled it. If the queue keeps no archive,
    the row leaves a tombstone instead (S2.11). The reply is for a sender that waits for the settlement; without one it
    is discarded.
    """
    check_reply(reply)
    return Removal(token, queue.id, queue.name, Outcome.COMPLETED, queue.settings.archive_retention, reply=reply)
