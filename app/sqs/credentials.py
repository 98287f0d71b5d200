"""Authenticates signed requests: finds the API key before the body is read, and verifies the signature with the body."""

import re

import msgspec

from app.broker.access.keys import Authenticator
from app.broker.access.signing_secret import signing_secret
from app.domain.access import ANONYMOUS, ApiKey, Principal
from app.domain.instant import to_seconds
from app.domain.refusals import Forbidden
from app.runtime.clock import Clock
from app.sqs.errors import InvalidClientTokenId, MissingAuthenticationToken
from app.sqs.signature import Signature, SignedRequest, read_signature
from app.sqs.verification import verify

NO_SECRET = (
    "This server cannot verify signatures, because PEEKLOCK_SQS_SECRET is not set. Set it to the same text of 32 or more "
    "characters on all servers."
)
NO_PRESIGNED = (
    "This server verifies no signatures, because it needs no API key yet. It accepts no action in a GET request: "
    "send its parameters as the form of a POST request, or create a key with `peeklock key create`."
)
DEFAULT_REGION = "us-east-1"
"""The region in ARNs of an open server, if the request does not name one."""
REGION = re.compile(rb"Credential=[^/,]{1,128}/[0-9]{8}/([a-z0-9-]{1,64})/")


class Credential(msgspec.Struct, frozen=True):
    """The signature of a request and the live key that it names; neither on a server that needs no key."""

    region: str
    signature: Signature | None = None
    key: ApiKey | None = None

    @property
    def key_id(self) -> str | None:
        """The id of the key, which is the access key id of the client."""
        return self.key and self.key.id


class SignatureAuthenticator:
    """Finds the API keys that sign requests, and verifies signatures with the secrets that are derived from `server_secret`."""

    def __init__(self, authenticator: Authenticator | None, server_secret: str | None, clock: Clock) -> None:
        self._authenticator = authenticator
        self._server_secret = server_secret
        self._clock = clock

    async def read(self, request: SignedRequest) -> Credential:
        """Return the credential of a request whose body is not read yet.

        A server that needs no key accepts any signature, or none, but in no GET request: a page of another site can make a
        browser send one, with any query string. Refuses with `Forbidden` if the server has no secret, with
        `InvalidClientTokenId` if no live key has this id, and as `read_signature` does.
        """
        if self._authenticator is None or await self._authenticator.is_open():
            if request.method == "GET":
                raise MissingAuthenticationToken(NO_PRESIGNED)
            return Credential(_region(request))
        if self._server_secret is None:
            raise Forbidden(NO_SECRET)
        signature = read_signature(request)
        key = await self._authenticator.find_key(signature.access_key_id)
        if key is None:
            raise InvalidClientTokenId
        return Credential(signature.region, signature, key)

    def verify(self, credential: Credential, request: SignedRequest, body: bytes, service: str) -> None:
        """Refuse with `SignatureDoesNotMatch` a request that its key has not signed. Without a key no signature is verified."""
        if credential.signature is None or credential.key is None or self._server_secret is None:
            return
        secret = signing_secret(self._server_secret, credential.key)
        now_seconds = to_seconds(self._clock.now())
        verify(credential.signature, request, body, secret, service=service, now_seconds=now_seconds)

    async def authenticate(self, key_id: str | None) -> Principal:
        """Return the principal of a live key with which a request was signed.

        None stands for the client of a server that needs no key. Refuses with `InvalidClientTokenId`, also if a key was created
        or revoked since the request began.
        """
        if self._authenticator is None:
            return ANONYMOUS
        if key_id is None:
            return await self._authenticator.authenticate(None)
        key = await self._authenticator.find_key(key_id)
        if key is None:
            raise InvalidClientTokenId
        return self._authenticator.principal_of(key)


def _region(request: SignedRequest) -> str:
    found = REGION.search(request.headers.values.get(b"authorization", b""))
    return found[1].decode() if found else DEFAULT_REGION
