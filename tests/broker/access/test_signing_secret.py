"""The signing secret of a key follows from the server secret, the id of the key and its stored hash, and from all of them."""

from dataclasses import replace

from app.broker.access.keys import hash_secret
from app.broker.access.signing_secret import signing_secret
from app.domain.access import ALL_RIGHTS, ApiKey, Grant

SERVER_SECRET = "a secret of all servers that no client knows"
KEY = ApiKey("0123456789abcdef", "shop", hash_secret("pk_1"), Grant(ALL_RIGHTS), 0)


def test_a_signing_secret_is_the_same_at_every_server_and_after_every_update() -> None:
    # printf '%b' of the id and the hash, piped into `openssl dgst -sha256 -hmac`, and base64url of its bytes
    assert signing_secret(SERVER_SECRET, KEY) == "JHy9JQ7tmk4QHcgvHS0XWJ4Q2pV-tMTK5o8ie3w54bI"


def test_a_signing_secret_needs_the_server_secret_the_id_and_the_hash() -> None:
    secrets = {
        signing_secret(SERVER_SECRET, KEY),
        signing_secret(SERVER_SECRET + "2", KEY),
        signing_secret(SERVER_SECRET, replace(KEY, id="fedcba9876543210")),
        signing_secret(SERVER_SECRET, replace(KEY, secret_hash=hash_secret("pk_2"))),
    }
    assert len(secrets) == 4


def test_a_signing_secret_does_not_depend_on_what_changes_in_a_key() -> None:
    used = replace(KEY, principal="store", last_used_at=1, expires_at=2)
    assert signing_secret(SERVER_SECRET, used) == signing_secret(SERVER_SECRET, KEY)
