"""The key that signs requests of SQS to a Peeklock server under load."""

from dataclasses import replace

from app.broker.access.keys import hash_secret
from app.broker.access.signing_secret import signing_secret
from app.domain.access import ApiKey, Grant
from benchmarks.load import Target
from benchmarks.sqs_load import SigningKey, SqsTarget
from benchmarks.systems import System, call

SERVER_SECRET = "a text of more than thirty-two characters"
SQS_SETTINGS = {"PEEKLOCK_SQS_SECRET": SERVER_SECRET}
"""A server needs them before `through_sqs`."""


def through_sqs(ours: System) -> System:
    """Return the same server and queue, loaded with requests of SQS, which its API key signs."""
    target = ours.target
    assert isinstance(target, Target)
    return replace(ours, target=SqsTarget(target.host, target.port, target.queue, target.headers, _signing_key(ours)))


def _signing_key(ours: System) -> SigningKey:
    (listed,) = call(ours, "GET", "/v1/keys")["items"]
    hashed = hash_secret(ours.settings["PEEKLOCK_BOOTSTRAP_KEY"])
    key = ApiKey(listed["id"], listed["principal"], hashed, Grant(frozenset(), ()), 0)
    return SigningKey(key.id, signing_secret(SERVER_SECRET, key))
