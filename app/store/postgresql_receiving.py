"""Claims on PostgreSQL: what many receivers wish goes in one statement, and whoever came first is served first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from secrets import token_bytes

from app.domain.delivery import Claim, place_in_order
from app.domain.message import Message, MessageState
from app.domain.refusals import StoreUnavailable
from app.domain.settlement import SECRET_BYTES, LockToken
from app.domain.weight import weight_of
from app.runtime.clock import Clock
from app.runtime.coalescer import LeftOverError
from app.store import rows
from app.store.database import Session
from app.store.floors import Floors, Look, Place, Seen
from app.store.rows import Row

MESSAGE_WIDTH = len(rows.MESSAGE_COLUMNS)
QUEUE_ID, PRIORITY, AVAILABLE_AT, READ_AT = map(
    rows.MESSAGE_COLUMNS.index, ("queue_id", "priority", "available_at", "read_at")
)
PLACE, PASSED, CUT_AT = MESSAGE_WIDTH, MESSAGE_WIDTH + 1, MESSAGE_WIDTH + 2
"""What the statement tells beside the message: its place in the order of the wishes, how many entries were passed, and
the first place whose message the budget had no room for, or None."""


async def claim(
    session: Session, floors: Floors, clock: Clock, claims: Sequence[Claim]
) -> list[list[Message] | Exception]:
    """The next messages for all these claims, each in order, together within one budget.

    A claim is answered with `LeftOverError` where the budget was spent before its queue was looked at to the end. The
    first one never is.

    A claim that got nothing although something is ready is tried once more: rows that another statement held for a
    moment were skipped, and not all of them need be gone.
    """
    table = Table(claims, clock)
    try:
        await _serve_all(session, floors, table)
    except StoreUnavailable:
        # What was served is locked for its receivers, who had better hear of it.
        if not table.has_served:
            raise
    return table.answers()


async def claim_alone(session: Session, floors: Floors, clock: Clock, wish: Claim) -> list[Message]:
    """The next messages for one claim. Serves nothing if the transaction failed."""
    table = Table([wish], clock)
    await _serve_all(session, floors, table)
    (answer,) = table.answers()
    if isinstance(answer, Exception):
        raise answer
    return answer


class Table:
    """Claims and what each has been served so far."""

    def __init__(self, claims: Sequence[Claim], clock: Clock) -> None:
        self.claims = claims
        self.clock = clock
        self._left_over: set[int] = set()
        self._served: list[list[Message]] = [[] for _ in claims]
        self._by_queue: defaultdict[int, list[int]] = defaultdict(list)
        for guest, claim in enumerate(claims):
            self._by_queue[claim.queue_id].append(guest)

    def budget(self) -> int:
        """What is left of the budget that the claims share."""
        return max(claim.budget for claim in self.claims) - sum(map(weight_of, chain.from_iterable(self._served)))

    def queue_ids(self) -> list[int]:
        """Every queue that is claimed from."""
        return list(self._by_queue)

    def short(self) -> list[int]:
        """The queues with a claim that is not wholly served."""
        return [queue_id for queue_id, guests in self._by_queue.items() if any(map(self.missing, guests))]

    def hungry(self) -> list[int]:
        """The queues that were looked at to the end, with a claim that got nothing."""
        answered = [bool(served) or guest in self._left_over for guest, served in enumerate(self._served)]
        return [queue_id for queue_id, guests in self._by_queue.items() if not all(answered[guest] for guest in guests)]

    @property
    def has_served(self) -> bool:
        """Whether anybody got anything."""
        return any(self._served)

    def guests(self, queue_id: int) -> list[int]:
        """The claims on a queue, by their place among all, in order of arrival."""
        return self._by_queue[queue_id]

    def missing(self, guest: int) -> int:
        """How many messages a claim still lacks."""
        return self.claims[guest].most - len(self._served[guest])

    def serve(self, guest: int, message: Message) -> None:
        """Give a message to a claim."""
        self._served[guest].append(message)

    def leave(self, guests: Iterable[int]) -> None:
        """Note that the budget was spent before it was the turn of these claims."""
        self._left_over.update(guests)

    @property
    def is_cut(self) -> bool:
        """Whether the budget left something out."""
        return bool(self._left_over)

    def answers(self) -> list[list[Message] | Exception]:
        """What each claim was served, in the order of delivery; one that the budget left nothing for is left over."""
        for served in self._served:
            if len(served) > 1:
                served.sort(key=_place)
        if not self.is_cut:
            return [*self._served]
        return [
            LeftOverError() if not served and guest in self._left_over else served
            for guest, served in enumerate(self._served)
        ]


def _place(message: Message) -> tuple[int, ...]:
    if message.home_state is MessageState.DEAD_LETTERED:
        return (message.sequence_number,)
    return place_in_order(message)


async def _serve_all(session: Session, floors: Floors, table: Table) -> None:
    if table.claims[0].source is MessageState.DEAD_LETTERED:
        await _serve_dead_letters(session, table)
        return
    look = floors.look(table.queue_ids())
    await _serve(session, floors, look, table)
    await _serve_again(session, floors, look, table)


async def _serve(session: Session, floors: Floors, look: Look, table: Table) -> None:
    """Ask for what is missing in the queues of the look, and serve it."""
    seats: list[int] = []
    before: list[int] = []
    most: list[int] = []
    for queue_id in look.queue_ids:
        before.append(len(seats))
        for guest in table.guests(queue_id):
            seats.extend(repeat(guest, table.missing(guest)))
        most.append(len(seats) - before[-1])
    places = look.places()
    asked = table.clock.monotonic()
    try:
        found = await session.fetch(
            "claim",
            queue_id=look.queue_ids,
            most=most,
            before=before,
            floor_time=[time for time, _ in places],
            floor_number=[number for _, number in places],
            secrets=token_bytes(SECRET_BYTES * len(seats)),
            duration=[table.claims[guest].lock_duration for guest in seats],
            receiver_id=[table.claims[guest].receiver_id for guest in seats],
            budget=table.budget(),
        )
        for row in found:
            place: int = row[PLACE]
            table.serve(seats[place - 1], rows.message(row[:MESSAGE_WIDTH], asked))
        cut_at: int | None = found[-1][CUT_AT] if found else None
        if cut_at is not None:
            table.leave(seats[cut_at - 1 :])
        if found and floors.can_learn(passed := found[-1][PASSED] - len(found)):
            floors.learn(look, _seen(look, most, found, is_cut=cut_at is not None), passed, found[-1][READ_AT])
    except BaseException:
        for queue_id in look.queue_ids:
            floors.forget(queue_id)
        raise
    finally:
        floors.finish(look)


async def _serve_again(session: Session, floors: Floors, look: Look, table: Table) -> None:
    """Serve claims that came short: from below the floors where that is cheap, and where something is ready after all.

    Once the budget is spent, only claims that got nothing from a queue that was looked at to the end are served again.
    """
    short = table.hungry() if table.is_cut else table.short()
    if below := floors.cheap_to_pass([queue_id for queue_id in short if queue_id not in look.from_bottom]):
        await _serve(session, floors, floors.look_below(below), table)
    if hungry := [queue_id for queue_id in table.hungry() if queue_id in look.from_bottom]:
        await _serve_what_is_ready(session, floors, hungry, table)


async def _serve_what_is_ready(session: Session, floors: Floors, queue_ids: Sequence[int], table: Table) -> None:
    """Look whether something can be claimed after all, and if so claim once more."""
    look = floors.look_below(queue_ids)
    try:
        ((ready, now, passed),) = await session.fetch("ready", queue_id=queue_ids)
        if floors.can_learn(passed):
            seen = {queue_id: Seen(None, is_exhausted=queue_id not in ready) for queue_id in queue_ids}
            floors.learn(look, seen, passed, now)
    finally:
        floors.finish(look)
    if ready:
        await _serve(session, floors, floors.look_below(ready), table)


def _seen(look: Look, most: Sequence[int], found: Sequence[Row], *, is_cut: bool) -> dict[int, Seen]:
    """What a look has brought, queue by queue. One that the budget has cut exhausts nothing."""
    last: dict[int, tuple[int, Place]] = {}
    for row in sorted(found, key=lambda row: row[PLACE]):
        last[row[QUEUE_ID]] = (row[PRIORITY], (row[AVAILABLE_AT], row[0]))
    counts = Counter(row[QUEUE_ID] for row in found)
    return {
        queue_id: Seen(last.get(queue_id), is_exhausted=not is_cut and counts[queue_id] < wanted)
        for queue_id, wanted in zip(look.queue_ids, most, strict=True)
    }


async def _serve_dead_letters(session: Session, table: Table) -> None:
    """Serve the next messages of dead-letter queues, by number."""
    for guest, claim in enumerate(table.claims):
        asked = table.clock.monotonic()
        found = await session.fetch(
            "claim_dead_letters",
            queue_id=claim.queue_id,
            most=claim.most,
            secrets=token_bytes(SECRET_BYTES * claim.most),
            duration=claim.lock_duration,
            receiver_id=claim.receiver_id,
            budget=claim.budget,
        )
        for message in _in_place(found, asked):
            table.serve(guest, message)


async def claim_these(session: Session, clock: Clock, claim: Claim, numbers: Sequence[int]) -> list[Message]:
    """These messages, as far as they are in the state that is claimed from, in this order."""
    wanted = list(dict.fromkeys(numbers))
    asked = clock.monotonic()
    found = await session.fetch(
        "claim_these",
        number=wanted,
        queue_id=claim.queue_id,
        source=claim.source.value,
        most=claim.most,
        secrets=token_bytes(SECRET_BYTES * len(wanted)),
        duration=claim.lock_duration,
        receiver_id=claim.receiver_id,
        budget=claim.budget,
    )
    return _in_place(found, asked)


async def still_locked(session: Session, clock: Clock, tokens: Sequence[LockToken]) -> list[Message]:
    """The messages of these deliveries whose locks still live, in order."""
    asked = clock.monotonic()
    found = await session.fetch("still_locked", numbers=[token.sequence_number for token in tokens])
    return rows.held_by(tokens, found, asked)


def _in_place(found: Iterable[Row], asked: float) -> list[Message]:
    return [rows.message(row[:MESSAGE_WIDTH], asked) for row in sorted(found, key=lambda row: row[PLACE])]
