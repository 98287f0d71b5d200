"""API keys: a list with what each may do, and a form that makes one and shows its secret once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from app.broker.access.keys import NewApiKey, create_key
from app.broker.access.signing_secret import maybe_signing_secret
from app.console.access import needs
from app.console.form_fields import form_pairs
from app.console.forms import FormFaults, decoded, faults_of, status_of_form
from app.console.pages import CurrentPage, PageRequest
from app.console.setting_fields import names_in_form, read_settings, renamed, setting_field
from app.domain.access import ApiKey, Grant, Right
from app.domain.instant import Instant
from app.domain.refusals import Refusal, invalid_at
from app.wire.keys import CreateKey

MEANINGS: Mapping[Right, str] = {
    Right.SEND: "send messages, and publish to topics",
    Right.LISTEN: "receive and settle messages, and read and change states",
    Right.BROWSE: "look at messages without receiving them",
    Right.MANAGE: "change settings, purge, redrive, edit and cancel; on all queues also manage keys",
}
"""The rights, in the order of the form."""

MAX_LIVE = 100
"""Keys on the page that work now, the oldest first. A part of a principal finds the others."""

MAX_ENDED = 50
"""Keys on the page that have ended, the newest first."""

EXPIRES_IN = setting_field(CreateKey, "expires_in", "How long is the key valid?", "duration")
PRINCIPAL = setting_field(CreateKey, "principal", "Who uses it?")
PATTERNS = setting_field(CreateKey, "patterns", "On which names, with a space between patterns?")
FIELDS = (PRINCIPAL, PATTERNS, EXPIRES_IN)

NEW: Mapping[str, Sequence[str]] = {"rights": (Right.SEND,), "patterns": ("*",)}
"""What the form has at first."""

FIRST: Mapping[str, Sequence[str]] = {"rights": tuple(MEANINGS), "patterns": ("*",)}
"""What it has while no key may manage keys."""

NO_MANAGER = "No key would hold the right manage on every name: keys could not be created or revoked any more."

Fields: TypeAlias = Annotated[
    Sequence[tuple[str, str]], Depends(form_pairs([field.name for field in FIELDS], ("rights",)))
]

router = APIRouter(prefix="/console/keys", dependencies=[Depends(needs(Right.MANAGE))])


@dataclass(frozen=True, slots=True)
class KeyList:
    """The keys that work now, oldest first, and those that have ended, newest first."""

    live: Sequence[ApiKey]
    ended: Sequence[ApiKey]


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """All keys, oldest first, as they were at an instant."""

    keys: Sequence[ApiKey]
    read_at: Instant


@router.get("")
async def list_keys(page: CurrentPage) -> HTMLResponse:
    """Show the keys. With `name` in the address, show what each may do there."""
    stored = await _stored(page)
    return _page(page, stored, NEW if has_manager(stored.keys, stored.read_at) else FIRST)


@router.post("")
async def make_key(page: CurrentPage, sent: Fields) -> HTMLResponse:
    """Make a key, and show its secret. No other page has it, so the rest of this page is read before the key is stored.

    Crash window: if the database does not answer, a key may have been stored whose secret is not known. The list has it.
    """
    fields, stored = _by_name(sent), await _stored(page)
    try:
        wanted, now = _wanted(fields), stored.read_at
        _check_manager(stored, wanted.grant())
        lifetime = wanted.lifetime()
        expires_at = None if lifetime is None else now + lifetime
        made = await create_key(page.context.broker.store.keys, wanted.principal, wanted.grant(), now, expires_at)
    except Refusal as refusal:
        return _page(page, stored, fields, refusal=refusal)
    forget_cached(page, None)
    return _page(page, StoredKeys([*stored.keys, made.key], now), NEW, made)


def forget_cached(page: PageRequest, ended_key_id: str | None) -> None:
    """Let the change of keys take effect here at once. Visitors without a key end with the first one."""
    page.context.visitors.forget_key(ended_key_id)
    if page.context.authenticator is not None:
        page.context.authenticator.clear_cache()


def has_manager(keys: Iterable[ApiKey], now: Instant) -> bool:
    """Return whether a key that works now may create and revoke keys."""
    return any(key.is_live(now) and key.grant.allows(Right.MANAGE, None) for key in keys)


def _check_manager(stored: StoredKeys, grant: Grant) -> None:
    """Refuse with `InvalidRequest` a first key that may not manage keys: it would close the server to everyone else."""
    if not grant.allows(Right.MANAGE, None) and not has_manager(stored.keys, stored.read_at):
        raise invalid_at("/patterns" if Right.MANAGE in grant.rights else "/rights", NO_MANAGER)


def _by_name(sent: Sequence[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    return {name: [text for other, text in sent if other == name] for name, _ in sent}


def _wanted(fields: Mapping[str, Sequence[str]]) -> CreateKey:
    """Return the key that a form describes. Refuses with `InvalidRequest` that names every wrong field."""
    lifetime, faults = {"expires_in": "".join(fields.get("expires_in", ()))}, FormFaults()
    given: dict[str, object] = {
        "principal": "".join(fields.get("principal", ())),
        "rights": list(fields.get("rights", ())),
        "patterns": " ".join(fields.get("patterns", ())).split(),
        **read_settings(CreateKey, (EXPIRES_IN,), lifetime, faults),
    }
    for name, missing in (
        ("principal", "Give a name."),
        ("rights", "Choose a right."),
        ("patterns", "Give a pattern."),
    ):
        with faults.collected():
            if not given[name]:
                raise invalid_at(f"/{name}", missing)
    with faults.collected():
        key = decoded(CreateKey, given)
    faults.check()
    return key


async def _stored(page: PageRequest) -> StoredKeys:
    now = await page.context.broker.store.now()
    return StoredKeys(await page.context.broker.store.keys.list_all(), now)


def _page(
    page: PageRequest,
    stored: StoredKeys,
    fields: Mapping[str, Sequence[str]],
    made: NewApiKey | None = None,
    refusal: Refusal | None = None,
) -> HTMLResponse:
    now, find = stored.read_at, page.query("find").lower()
    keys = [key for key in stored.keys if find in key.principal.lower()]
    live = [key for key in keys if key.is_live(now)]
    ended = [key for key in reversed(keys) if not key.is_live(now)][:MAX_ENDED]
    return page.render(
        "keys.html",
        status_of_form(refusal),
        keys=KeyList(live[:MAX_LIVE], ended),
        live_count=len(live),
        made=made,
        sqs_secret=maybe_signing_secret(page.context.sqs_secret, made.key) if made else None,
        fields=fields,
        texts={name: " ".join(values) for name, values in fields.items()},
        faults=faults_of(renamed(refusal, names_in_form(FIELDS))) if refusal else {},
        rights=MEANINGS,
        setting_fields={field.name: field for field in FIELDS},
        name=page.query("name"),
        find=page.query("find"),
        own_id=page.visitor.principal.key_id,
    )
