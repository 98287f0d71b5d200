"""API keys over HTTP: made, listed and revoked by whoever may manage everything."""

from app.api.bodies import Headers
from app.api.desk import Call, wrong_cursor
from app.api.open_access import LOCAL_ADMIN
from app.api.operation import Reply, operation
from app.broker import keys as verbs
from app.domain.access import Right
from app.domain.refusals import KeyNotFound
from app.wire.keys import CreatedKey, CreateKey, KeyPage, created_key, key_view
from app.wire.shapes import Page

KEYS = "/v1/keys"
NOT_STORED: Headers = ((b"cache-control", b"no-store"),)


@operation(
    "POST", KEYS, right=Right.MANAGE, tag="keys",
    body=CreateKey, answers={201: CreatedKey}, refusals=(409, 422), headers=(LOCAL_ADMIN,),
    example={"principal": "shop", "rights": ["send"], "patterns": ["orders", "orders.*"]},
)  # fmt: skip
async def create_key(call: Call[CreateKey]) -> Reply:
    """Make an API key. Its secret is in this answer and nowhere else.

    A principal has at most two live keys, so that one can be rolled over to the other.
    """
    store, body = call.broker.store, call.body
    now, lifetime = await store.now(), body.lifetime()
    expires_at = None if lifetime is None else now + lifetime
    fresh = await verbs.create_key(store.keys, body.principal, body.grant(), now, expires_at)
    _forget(call)
    return Reply(created_key(fresh.key, fresh.secret), 201, headers=NOT_STORED)


@operation("GET", KEYS, right=Right.MANAGE, tag="keys", answers={200: KeyPage}, refusals=(422,), query=Page)
async def list_keys(call: Call[None]) -> Reply:
    """List the API keys, oldest first, without their secrets."""
    page: Page = call.query
    keys = await call.broker.store.keys.page()
    places = {key.id: place for place, key in enumerate(keys)}
    if page.cursor is not None and page.cursor not in places:
        raise wrong_cursor()
    start = 0 if page.cursor is None else places[page.cursor] + 1
    shown = keys[start : start + page.limit]
    more = shown[-1].id if start + page.limit < len(keys) else None
    return Reply(KeyPage([key_view(key) for key in shown], more))


@operation(
    "DELETE", KEYS + "/{key_id}", right=Right.MANAGE, tag="keys",
    answers={204: None}, refusals=(404,), headers=(LOCAL_ADMIN,),
)  # fmt: skip
async def revoke_key(call: Call[None]) -> Reply:
    """End an API key; every server follows within seconds."""
    key_id = call.path["key_id"]
    if not (key_id.isascii() and key_id.isalnum()):
        raise KeyNotFound
    await verbs.revoke_key(call.broker.store.keys, key_id)
    _forget(call)
    return Reply(status=204)


def _forget(call: Call[CreateKey] | Call[None]) -> None:
    if call.desk.doorkeeper is not None:
        call.desk.doorkeeper.forget()
