"""The digest of what a handler has produced stays the same in every version: stored ones are compared with it."""

from app.domain.message import BodyKind, Envelope, MessageHeaders
from app.domain.sending import NewMessage
from app.domain.state import result_digest

TEXTS = MessageHeaders("type", "correlation", "subject", "reply", "to", "trace")
FULL = NewMessage(Envelope("id", TEXTS, "group", b'{"a":1}'), b"1", BodyKind.JSON)


def test_a_result_has_the_digest_that_servers_have_stored() -> None:
    digest = result_digest(b"1", [("orders", FULL), ("orders", NewMessage(Envelope("")))])
    assert digest.hex() == "972217bb249783654afaae034d700fbb8f3448116ff4f916a8f6e4ada3c0b2ac"
