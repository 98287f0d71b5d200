"""Processes one message: calls its handler, and settles the message by the result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from peeklock_client.errors import InDoubt, MessageNotFound, PeeklockError, Refusal, SettlementRefused
from peeklock_client.generated import requests
from peeklock_client.messages import NewMessage, entry
from peeklock_client.receive_context import ReceiveContext, reason_of
from peeklock_client.settling import Settlement
from peeklock_client.tracing import processing
from peeklock_client.worker.handlers import CallsHandler, InvalidBody, ServiceFailed
from peeklock_client.worker.options import AckPolicy, SubscriberOptions
from peeklock_client.worker.report import WorkerReport
from peeklock_client.worker.retry import strategy_for

log = logging.getLogger("peeklock.worker")

MAX_DESCRIPTION = 4096
TOO_MANY_DELIVERIES = "max_deliveries_exceeded"
INVALID_BODY = "invalid_body"
ABANDONED = "abandoned"


class Abandoned(PeeklockError):
    """A handler abandoned its message without an exception. Retry strategies by type of exception get this type."""


class TooManyDeliveries(PeeklockError):
    """A message was delivered more often than `max_deliveries`."""


class ResultsNotStored(PeeklockError):
    """A handler returned messages, but the worker makes no commit that could send them."""


class Processing:
    """Processes messages of one queue, one at a time for each call.

    `has_left_messages` says that a handler with the policy MANUAL has left a message to its program, unsettled.
    """

    def __init__(
        self, queue: str, handler: CallsHandler, options: SubscriberOptions, threads: Executor, report: WorkerReport
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._options = options
        self._threads = threads
        self._report = report
        self.has_left_messages = False

    @property
    def handler_name(self) -> str:
        """The name of the handler, for lines of the log."""
        return self._handler.name

    async def handle(self, context: ReceiveContext[Any]) -> BaseException | list[NewMessage]:
        """Call the handler. Return the messages that it returned, or the exception that it raised.

        A message that was delivered too often is not processed, because it may have killed the workers before (S2.3, S2.27).
        """
        deliveries, limit = context.message.delivery_count, self._options.max_deliveries
        if limit is not None and deliveries > limit:
            return TooManyDeliveries(f"Delivered {deliveries} times. {self._handler.name} allows {limit} deliveries.")
        try:
            with processing(self._queue, context.message):
                if self._options.ack_policy is AckPolicy.ACK_FIRST:
                    await context.complete()
                context.decide_retries_by(partial(self._retry_of_handler, context))
                results = await self._handler.call(context, self._threads)
                if results and (not context.is_active or self._options.ack_policy is AckPolicy.MANUAL):
                    raise ResultsNotStored(
                        f"The worker does not complete this message, so it sends none of the {len(results)} returned messages."
                    )
                return results
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # a stop, or a lost lock
            return error
        except BaseException as error:  # noqa: BLE001 - every exception of a handler, even SystemExit, decides about its message
            return error
        finally:
            context.decide_retries_by(None)

    async def settle(self, context: ReceiveContext[Any], result: BaseException | list[NewMessage]) -> None:
        """Settle a message after its handler, unless the handler has. Failures are counted and logged, never raised."""
        try:
            if isinstance(result, BaseException):
                self._note_failure(context, result)
                if context.is_active:
                    await self._settle_failed(context, result)
            elif context.is_active and self._options.ack_policy is not AckPolicy.MANUAL:
                await self._settle_done(context, result)
            elif context.is_active:
                self._leave(context, InDoubt("The handler left the message unsettled."))
        except PeeklockError as error:
            log.warning("message %d of %s: %s", context.message.sequence_number, self._handler.name, error)
            if context.is_active and not isinstance(result, BaseException):
                # The results cannot be stored, and the message is still locked.
                await self.settle(context, error)
                return
            context.fault(error)
        except Exception as error:  # raised by a retry strategy or a callback
            log.exception("message %d of %s was not settled", context.message.sequence_number, self._handler.name)
            context.fault(error)
        if context.callback_failed and not isinstance(result, BaseException):
            self._report.failed += 1
        self.count(context)

    def count(self, context: ReceiveContext[Any]) -> None:
        """Count how a receive has ended."""
        match context.outcome:
            case "completed":
                self._report.completed += 1
            case "dead_lettered":
                self._report.dead_lettered += 1
            case "deferred":
                self._report.deferred += 1
            case "abandoned":
                self._report.abandoned += 1
            case "released":
                self._report.handed_back += 1
            case _ if context.callback_failed:
                pass  # It is a failure of the handler, and no settlement was sent.
            case _ if isinstance(context.error, SettlementRefused | MessageNotFound):
                self._report.lock_lost += 1
            case _ if isinstance(context.error, Refusal):
                self._report.refused += 1
            case _:
                self._report.in_doubt += 1

    # ---- settlements -------------------------------------------------------------------------------------------------

    async def _settle_done(self, context: ReceiveContext[Any], messages: Sequence[NewMessage]) -> None:
        if messages:
            await context.commit(results_of(messages))
        else:
            await context.complete()

    async def _settle_failed(self, context: ReceiveContext[Any], error: BaseException) -> None:
        policy = self._options.ack_policy
        if isinstance(error, InvalidBody):
            await context.dead_letter(INVALID_BODY, description_of(error))
        elif isinstance(error, TooManyDeliveries):
            await context.dead_letter(TOO_MANY_DELIVERIES, description_of(error))
        elif policy is AckPolicy.ACK:
            await context.complete()
        elif policy is AckPolicy.REJECT_ON_ERROR:
            await context.dead_letter(reason_of(error), description_of(error))
        elif policy is AckPolicy.MANUAL:
            self._leave(context, error)
        else:
            await self._retry(context, error)

    def _leave(self, context: ReceiveContext[Any], error: BaseException) -> None:
        """Leave a message to the program, which may settle it until its lock ends."""
        self.has_left_messages = True
        context.fault(error)

    async def _retry(self, context: ReceiveContext[Any], error: BaseException) -> None:
        strategy = strategy_for(self._options.retry, error)
        if strategy is None:
            await context.abandon(reason=reason_of(error))
            return
        delay = strategy.delay_seconds(context.message.failure_count + 1)
        if delay is None:
            await context.dead_letter(reason_of(error), description_of(error))
        else:
            await context.abandon(delay_seconds=delay, reason=reason_of(error))

    def _retry_of_handler(
        self, context: ReceiveContext[Any], abandon: requests.AbandonSettlement, error: BaseException | None
    ) -> Settlement:
        """Return the settlement that the retry strategy sends instead of an abandon by the handler."""
        strategy = strategy_for(self._options.retry, Abandoned() if error is None else error)
        if strategy is None:
            return abandon
        delay = strategy.delay_seconds(context.message.failure_count + 1)
        if delay is not None:
            return msgspec.structs.replace(abandon, delay_seconds=delay)
        reason = ABANDONED if abandon.reason is UNSET else abandon.reason
        return requests.DeadLetterSettlement(abandon.lock_token, reason, properties=abandon.properties)

    def _note_failure(self, context: ReceiveContext[Any], error: BaseException) -> None:
        if isinstance(error, TooManyDeliveries):
            return
        self._report.failed += 1
        if isinstance(error, InvalidBody):
            return  # The dispatcher logs it with the pause that it begins.
        number, name = context.message.sequence_number, self._handler.name
        if isinstance(error, ServiceFailed):
            log.error("message %d: %s failed: %s", number, name, error)
        else:
            log.error("message %d: %s failed", number, name, exc_info=error)


def results_of(messages: Sequence[NewMessage], state: requests.CommitState | None = None) -> requests.CommitLock:
    """Return the request of a commit with these messages and this state."""
    sends = [entry(requests.SendEntry, one, queue=one.queue) for one in messages if one.queue is not None]
    publishes = [entry(requests.PublishEntry, one, topic=one.topic) for one in messages if one.topic is not None]
    return requests.CommitLock(sends or UNSET, publishes or UNSET, UNSET if state is None else state)


def description_of(error: BaseException) -> str:
    """Return the text of an error, as a description to store with a dead-lettered message.

    Characters that no message can contain are escaped, for example those of a file name that is not Unicode.
    """
    text = str(error).replace("\0", "").encode(errors="backslashreplace").decode()
    return text[:MAX_DESCRIPTION] or type(error).__name__
