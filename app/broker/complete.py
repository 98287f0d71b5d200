"""Complete: the message is done and leaves its queue for the archive, once."""

from app.domain.queue import Queue
from app.domain.settlement import LockToken, Outcome, Removal


def complete(queue: Queue, token: LockToken) -> Removal:
    """The ending that takes a message out of the queue (S0.7, S3.20).

    In the same transaction its row moves to the archive with the token that settled it, or leaves a
    tombstone where the queue keeps no archive (S2.11).
    """
    return Removal(token, queue.id, queue.name, Outcome.COMPLETED, queue.settings.archive_retention)
