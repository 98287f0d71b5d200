"""Random histories with work units: a unit has the effects of its settlements and sends, or none."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from app.broker.settling.outcomes import Abandonment, abandon, complete
from app.broker.transactions.execute import UnitRequest, UnitSend, UnitSettlement, execute
from app.domain.message import DEFAULT_PRIORITY, Envelope
from app.domain.sending import NewMessage
from app.domain.settlement import LockToken
from tests.broker.histories import NAME, VerbHistories
from tests.broker.short_forms import TIME_UNIT

DELAY = 10 * TIME_UNIT
"""The sends of a unit are scheduled: on a server they are due a moment before the messages that it admits."""


class UnitHistories(VerbHistories):
    """The histories of every operation, and work units among them."""

    @rule(
        settled=st.lists(st.tuples(VerbHistories.tokens, st.booleans()), max_size=3, unique_by=lambda entry: entry[0]),
        sends=st.integers(0, 2),
    )
    def execute(self, settled: list[tuple[str, bool]], sends: int) -> None:
        """Complete deliveries, abandon those of the others that are held, and send messages."""
        abandoned = {token for token, completes in settled if not completes and self.model.holder(token) is not None}
        tokens = [token for token, _ in settled]
        settlements = [UnitSettlement(self.queue, self._settlement(token, token in abandoned)) for token in tokens]
        new_message = NewMessage(Envelope(""), delay=DELAY)
        request = UnitRequest(settlements, [UnitSend(NAME, new_message)] * sends)
        result: Any = self.result_or_code(execute(self.broker.transactions, request, None))
        if isinstance(result, str):
            assert result == self._expected_refusal(tokens, sends)
            return
        assert [one.outcome for one in result.result.settled] == [
            self.model.abandon(token, 0, counted=True) if token in abandoned else self.model.complete(token)
            for token in tokens
        ]
        for receipt in result.result.receipts:
            assert receipt.state is self.model.sent(receipt.sequence_number, DEFAULT_PRIORITY, DELAY, None)

    def _settlement(self, token: str, abandons: bool) -> Any:
        parsed = LockToken.parse(token)
        return abandon(self.queue, parsed, Abandonment()) if abandons else complete(self.queue, parsed)

    def _expected_refusal(self, tokens: list[str], sends: int) -> str | None:
        """Return the refusal of a unit that must be refused. Late holders free their rows, and nothing else changes."""
        if sends and not self.model.has_room(sends):
            return "queue-full"
        answers = [self.refusal_of(token) for token in tokens if not self.model.can_settle(token)]
        return answers[0] if answers else None

    def refusal_of(self, token: str) -> str:
        """Return why a delivery that cannot be settled cannot become part of a unit."""
        return self.model.complete(token).replace("completed replayed", "already completed")
