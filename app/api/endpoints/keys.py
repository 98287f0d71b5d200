"""API keys over HTTP: create, list, show and revoke them, and show their secrets of SQS. All need the right `manage` on all queues."""

from app.broker.access import keys as verbs
from app.broker.access.signing_secret import maybe_signing_secret
from app.domain.access import Right
from app.domain.refusals import KeyNotFound, TooManyKeys
from app.http.asgi import Headers
from app.http.local_access import LOCAL_ADMIN
from app.http.operation import operation
from app.http.request import Request, invalid_cursor
from app.http.response import Response, location
from app.wire.field_types import Page
from app.wire.keys import CreatedKey, CreateKey, KeyPage, KeyView, SqsCredentials, created_key, key_view

KEYS = "/v1/keys"
ONE_KEY = KEYS + "/{key_id}"
NO_STORE_HEADERS: Headers = ((b"cache-control", b"no-store"),)


@operation(
    "POST", KEYS, right=Right.MANAGE, tag="keys",
    body=CreateKey, responses={201: CreatedKey}, has_location=True, refusals=(TooManyKeys,), headers=(LOCAL_ADMIN,),
    example={"principal": "shop", "rights": ["send"], "patterns": ["orders", "orders.*"]},
)  # fmt: skip
async def create_key(request: Request[CreateKey]) -> Response:
    """Create an API key. Only this answer contains its secret.

    A principal has at most two live keys, so that it can rotate them.
    """
    body = request.body
    now, lifetime = await request.broker.store.now(), body.lifetime()
    expires_at = None if lifetime is None else now + lifetime
    new_key = await verbs.create_key(request.broker.store.keys, body.principal, body.grant(), now, expires_at)
    _clear_key_cache(request)
    sqs_secret = maybe_signing_secret(request.context.sqs_secret, new_key.key)
    created = created_key(new_key.key, new_key.secret, sqs_secret)
    return Response(created, 201, headers=(*NO_STORE_HEADERS, *location(f"{KEYS}/{created.id}")))


@operation("GET", KEYS, right=Right.MANAGE, tag="keys", responses={200: KeyPage}, query=Page)
async def list_keys(request: Request[None]) -> Response:
    """List the API keys, oldest first, without their secrets."""
    page: Page = request.query
    keys = await request.broker.store.keys.list_all()
    indexes = {key.id: index for index, key in enumerate(keys)}
    if page.cursor is not None and page.cursor not in indexes:
        raise invalid_cursor()
    start = 0 if page.cursor is None else indexes[page.cursor] + 1
    items = keys[start : start + page.limit]
    more = items[-1].id if start + page.limit < len(keys) else None
    return Response(KeyPage([key_view(key) for key in items], more))


@operation("GET", ONE_KEY, right=Right.MANAGE, tag="keys", responses={200: KeyView}, refusals=(KeyNotFound,))
async def get_key(request: Request[None]) -> Response:
    """Show an API key, live or not, without its secret."""
    return Response(key_view(await verbs.get_key(request.broker.store.keys, request.path["key_id"])))


@operation(
    "GET", ONE_KEY + "/sqs", right=Right.MANAGE, tag="keys", responses={200: SqsCredentials}, refusals=(KeyNotFound,)
)
async def get_sqs_credentials(request: Request[None]) -> Response:
    """Show the credentials of an API key, live or not, for clients of Amazon SQS."""
    key = await verbs.get_key(request.broker.store.keys, request.path["key_id"])
    secret = maybe_signing_secret(request.context.sqs_secret, key)
    return Response(SqsCredentials(key.id, secret), headers=NO_STORE_HEADERS)


@operation(
    "DELETE", ONE_KEY, right=Right.MANAGE, tag="keys",
    responses={204: None}, refusals=(KeyNotFound,), headers=(LOCAL_ADMIN,),
)  # fmt: skip
async def revoke_key(request: Request[None]) -> Response:
    """Revoke an API key. Every server refuses it within seconds."""
    await verbs.revoke_key(request.broker.store.keys, request.path["key_id"])
    _clear_key_cache(request)
    return Response(status=204)


def _clear_key_cache(request: Request[CreateKey] | Request[None]) -> None:
    if request.context.authenticator is not None:
        request.context.authenticator.clear_cache()
