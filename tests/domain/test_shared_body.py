"""Which drafts of a publish share a body."""

from itertools import count

import pytest

from app.domain.message import BodyKind, Draft, Envelope
from app.domain.queue import SHARED_BODIES_LEVEL, Queue, QueueSettings
from app.domain.sending import fit_draft
from app.domain.shared_body import MIN_SHARED_BYTES, with_shared_bodies

LARGE = bytes(MIN_SHARED_BYTES)


def ids_of(*drafts: Draft, sharing: tuple[int, ...] = (1, 2, 3)) -> list[str | None]:
    """The ids of the shared bodies that the drafts get."""
    ids = count(1)
    shared = with_shared_bodies(drafts, sharing, lambda: f"id-{next(ids)}")
    assert [draft.body for draft in shared] == [draft.body for draft in drafts]
    return [draft.shared_body_id for draft in shared]


def copy(queue_id: int, message_id: str = "m", body: bytes = LARGE) -> Draft:
    """A draft of a message for a queue."""
    return Draft(queue_id, Envelope(message_id), body, BodyKind.BYTES)


def test_copies_of_one_message_share_its_body() -> None:
    assert ids_of(copy(1), copy(2), copy(3)) == ["id-1", "id-1", "id-1"]


def test_messages_do_not_share_bodies_with_each_other() -> None:
    assert ids_of(copy(1, "m"), copy(1, "n"), copy(2, "m"), copy(2, "n")) == ["id-1", "id-2", "id-1", "id-2"]


@pytest.mark.parametrize("body", [b"", LARGE[1:]])
def test_a_small_body_is_not_shared(body: bytes) -> None:
    assert ids_of(copy(1, body=body), copy(2, body=body)) == [None, None]


def test_a_single_copy_has_a_body_of_its_own() -> None:
    assert ids_of(copy(1, "m"), copy(2, "n")) == [None, None]


def test_only_queues_that_share_bodies_get_references() -> None:
    assert ids_of(copy(1), copy(2), copy(3), sharing=(1, 3)) == ["id-1", None, "id-1"]
    assert ids_of(copy(1), copy(2), sharing=(1,)) == [None, None]


@pytest.mark.parametrize(("level", "body_id"), [(SHARED_BODIES_LEVEL, "id"), (SHARED_BODIES_LEVEL - 1, None)])
def test_a_draft_for_a_queue_that_was_made_again_shares_only_what_that_queue_shares(
    level: int, body_id: str | None
) -> None:
    queue = Queue(2, "orders", QueueSettings(), 1, 0, 0, feature_level=level)
    draft = Draft(1, Envelope("m"), LARGE, BodyKind.BYTES, shared_body_id="id")
    assert fit_draft(draft, queue).shared_body_id == body_id
