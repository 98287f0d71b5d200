"""Compares the answers that clients received with each other and with the database: no loss, no duplicate, nothing
early.

The clients' own logs decide, because the service must keep what it promised, not what it meant. A finding is
made only where the times prove it: a call takes effect somewhere between its sending and its answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from tests.faults.history import FINAL, Finding, History, RemainingMessage, RemainingVersion
from tests.faults.journal import RecordedCall

UNAVAILABLE = 503
"""The only failure that a client may receive."""

EARLY = frozenset({"early redelivery", "early loss"})
"""Findings that are excused if a test or a fault has made a clock jump."""


def check(
    calls: Sequence[RecordedCall],
    remaining_messages: Sequence[RemainingMessage],
    versions: Sequence[RemainingVersion] = (),
) -> list[Finding]:
    """Return every broken promise; empty if all were kept."""
    history = History(calls, remaining_messages, versions)
    return [finding for rule in RULES for finding in rule(history)]


def _lost(history: History) -> Iterator[Finding]:
    """Every acknowledged send is completed, dead-lettered, expired or still in its queue."""
    for send in history.sends:
        if send.is_acknowledged and send.answer["sequence_number"] not in history.remaining_by_id:
            yield Finding("lost", send.asked["message_id"], f"acknowledged as {send.answer['sequence_number']}, gone")


def _undone_settlements(history: History) -> Iterator[Finding]:
    """What was acknowledged as ended has ended so, by that token."""
    for token, message_id in history.message_of.items():
        for call in history.effects(token):
            remaining_message = history.remaining_by_id.get(int(token.partition(".")[0]))
            if call.verb not in FINAL or remaining_message is None:  # a missing message is `lost`
                continue
            if remaining_message.state != FINAL[call.verb] or remaining_message.token not in (None, token):
                details = f"{call.verb} of {token} was acknowledged; it is {remaining_message.state} by {remaining_message.token}"
                yield Finding("undone", message_id, details)


def _phantoms(history: History) -> Iterator[Finding]:
    """No message exists that was not sent; a send in doubt may exist or not."""
    known = set(history.digests)
    for seen in (*history.deliveries, *history.remaining):
        if seen.message_id not in known:
            known.add(seen.message_id)
            yield Finding("phantom", seen.message_id, f"{seen.sequence_number} was never sent")


def _duplicates(history: History) -> Iterator[Finding]:
    """One send, however often repeated under its key, is one message."""
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for seen in (*history.deliveries, *history.remaining):
        numbers[seen.message_id].add(seen.sequence_number)
    for send in history.sends:
        if send.is_acknowledged:
            numbers[send.asked["message_id"]].add(send.answer["sequence_number"])
    for message_id, found in numbers.items():
        if len(found) > 1:
            yield Finding("duplicated", message_id, f"it is {sorted(found)}")


def _in_two_places(history: History) -> Iterator[Finding]:
    """A message is in its queue or in the archive, and there once."""
    seen: set[int] = set()
    for remaining_message in history.remaining:
        if remaining_message.sequence_number in seen:
            yield Finding(
                "in two places",
                remaining_message.message_id,
                f"{remaining_message.sequence_number} is also {remaining_message.state}",
            )
        seen.add(remaining_message.sequence_number)


def _two_effects(history: History) -> Iterator[Finding]:
    """A delivery ends in one way, and one delivery of a message ends it for good."""
    effective_verbs: defaultdict[str, set[str]] = defaultdict(set)
    for token, message_id in history.message_of.items():
        verbs = {call.verb for call in history.effects(token)}
        if len(verbs) > 1:
            yield Finding("two effects", message_id, f"{token} was acknowledged as {sorted(verbs)}")
        if verbs & FINAL.keys():
            effective_verbs[message_id].add(token)
    for message_id, tokens in effective_verbs.items():
        if len(tokens) > 1:
            yield Finding("two effects", message_id, f"it was ended by {sorted(tokens)}")


def _halves(history: History) -> Iterator[Finding]:
    """A completion and the message that was sent together with it are both there, or neither is."""
    there = {remaining_message.message_id for remaining_message in history.remaining}
    tokens: defaultdict[str, set[str]] = defaultdict(set)
    for call in history.calls:
        if call.verb == "execute":
            tokens[call.asked["message_id"]].add(call.asked["token"])
    for message_id, asked in tokens.items():
        if (message_id in there) != bool(asked & history.completed):
            half = "it was sent, and no completion took effect" if message_id in there else "only the completion did"
            yield Finding("half of a transaction", message_id, half)


def _versions(history: History) -> Iterator[Finding]:
    """The versions of a state are numbered from 1, and each belongs to another message, which it completed."""
    by_key: defaultdict[str, list[RemainingVersion]] = defaultdict(list)
    for version in history.versions:
        by_key[version.key].append(version)
    for key, versions in by_key.items():
        seen: set[str] = set()
        for expected, version in enumerate(sorted(versions, key=lambda version: version.number), 1):
            if version.number != expected or version.message_id in seen:
                yield Finding("repeated version", version.message_id, f"{key} has version {version.number} of it")
            seen.add(version.message_id)


def _version_halves(history: History) -> Iterator[Finding]:
    """A message was completed by a commit and added a version, or neither; an acknowledged version exists."""
    added = {(version.key, version.message_id): version.number for version in history.versions}
    tokens: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for call in history.calls:
        if (key := call.asked.get("state")) is not None:
            of_message = (key, history.message_of[call.asked["token"]])
            tokens[of_message].add(call.asked["token"])
            if call.is_acknowledged and added.get(of_message) != call.answer["version"]:
                yield Finding(
                    "lost version", of_message[1], f"it was acknowledged as {call.answer['version']} of {key}"
                )
    for of_message, asked in tokens.items():
        if (of_message in added) != bool(asked & history.completed):
            yield Finding(
                "half of a commit", of_message[1], f"its version of {of_message[0]} is {added.get(of_message)}"
            )


def _two_of_a_group(history: History) -> Iterator[Finding]:
    """While a promise lasts that its holder has not given up, no other message of its group is delivered."""
    for deliveries in history.by_group.values():
        for first in deliveries:
            end = history.promised_until(first)
            for later in deliveries:
                if later.message_id == first.message_id or later.asked_at < first.heard_at or later.heard_at >= end:
                    continue
                if not history.may_have_ended(first.token, before=later.heard_at):
                    details = f"{first.token} was promised {end - later.heard_at:.3f} s more when {later.token} came"
                    yield Finding("two of a group", first.message_id, details)


def _out_of_order(history: History) -> Iterator[Finding]:
    """A message of a group is not delivered after one whose send began when its own had been acknowledged."""
    sent = {call.asked["message_id"]: call for call in history.sends if call.is_acknowledged}
    for deliveries in history.by_group.values():
        for first in deliveries:
            for later in deliveries:
                if (
                    later.asked_at > first.heard_at
                    and later.message_id in sent
                    and first.message_id in sent
                    and sent[later.message_id].done < history.first_asked_at[first.message_id]
                ):
                    yield Finding("out of order", later.message_id, f"{first.message_id} of its group came first")


def _after_completion(history: History) -> Iterator[Finding]:
    """No delivery starts after a completion was acknowledged."""
    ended: dict[str, float] = {}
    for token, message_id in history.message_of.items():
        for call in history.effects(token):
            if FINAL.get(call.verb) == "completed":
                ended[message_id] = min(call.done, ended.get(message_id, call.done))
    for delivery in history.deliveries:
        if delivery.asked_at > ended.get(delivery.message_id, float("inf")):
            details = f"{delivery.token} was asked for {delivery.asked_at - ended[delivery.message_id]:.3f} s after"
            yield Finding("delivered after completion", delivery.message_id, details)


def _after_ending(history: History) -> Iterator[Finding]:
    """No renewal that was asked for after an ending was acknowledged takes effect."""
    for token, message_id in history.message_of.items():
        ended = min((call.done for call in history.effects(token)), default=float("inf"))
        for call in history.by_token.get(token, ()):
            if call.verb == "renew" and call.is_acknowledged and call.at > ended:
                yield Finding("renewed after its end", message_id, f"{token} was, {call.at - ended:.3f} s after")


def _early(history: History) -> Iterator[Finding]:
    """While a promise lasts that its holder has not given up, no other client gets the message."""
    for message_id, deliveries in history.by_message.items():
        for first in deliveries:
            end = history.promised_until(first)
            for later in deliveries:
                # Both counts may be equal: a release takes the count of its delivery back.
                is_later = later.claimed > first.claimed or later.asked_at > first.heard_at
                if not is_later or later.heard_at >= end:
                    continue
                if not history.may_have_ended(first.token, before=later.heard_at):
                    details = f"{first.token} was promised {end - later.heard_at:.3f} s more when {later.token} came"
                    yield Finding("early redelivery", message_id, details)


def _locks_lost_early(history: History) -> Iterator[Finding]:
    """While a promise lasts, its holder gets no answer that the lock is lost."""
    for delivery in history.deliveries:
        end = history.promised_until(delivery)
        for call in history.by_token.get(delivery.token, ()):
            if call.status in (404, 410) and call.done < end and not history.may_have_ended(delivery.token, call.done):
                details = f"{call.verb} of {delivery.token} heard {call.status}, {end - call.done:.3f} s too early"
                yield Finding("early loss", delivery.message_id, details)


def _unclear_failures(history: History) -> Iterator[Finding]:
    """A request that cannot be carried out is answered with 503, after which a repeat is correct, or not at all."""
    for call in history.calls:
        if call.status >= 500 and call.status != UNAVAILABLE:
            token = call.asked.get("token", "")
            message_id = call.asked.get("message_id") or history.message_of.get(token, "")
            yield Finding("unclear failure", message_id, f"{call.verb} heard {call.status}: {call.answer}")


def _changed_bodies(history: History) -> Iterator[Finding]:
    """A delivered body equals one that was sent under its id, by a request that was not refused."""
    for seen in (*history.deliveries, *history.remaining):
        if seen.digest not in history.digests.get(seen.message_id, {seen.digest}):
            yield Finding("changed body", seen.message_id, f"{seen.sequence_number} has the digest {seen.digest}")


RULES: Sequence[Callable[[History], Iterable[Finding]]] = (
    _lost,
    _undone_settlements,
    _phantoms,
    _duplicates,
    _in_two_places,
    _two_effects,
    _halves,
    _versions,
    _version_halves,
    _two_of_a_group,
    _out_of_order,
    _after_completion,
    _after_ending,
    _early,
    _locks_lost_early,
    _unclear_failures,
    _changed_bodies,
)
