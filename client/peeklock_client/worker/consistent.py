"""Handlers that keep a state. Each message takes effect once, even if it is delivered twice (S4).

    load the state as it was before the message ──▶ call the handler ──▶ commit: state, messages and completion together

A handler reads its state, its message and its `HandlerContext`, and nothing else. A duplicate then makes the same result.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from peeklock_client.connection import Connection
from peeklock_client.encoding import encoded
from peeklock_client.errors import PeeklockError, ResultDiffers, VersionConflict
from peeklock_client.generated import answers, requests
from peeklock_client.messages import NewMessage
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.worker.flow_control import Unlimited
from peeklock_client.worker.handlers import (
    InvalidBody,
    Returned,
    converter,
    in_thread,
    is_async,
    name_of,
    parameter_types,
    returned,
)
from peeklock_client.worker.processing import results_of
from peeklock_client.worker.replay import Captured, HandlerContext

State = TypeVar("State")
Body = TypeVar("Body")
Result = TypeVar("Result", bound=Returned | Awaitable[Returned])
StateFunction = Callable[[State, Body, HandlerContext], Result]
"""A handler that keeps a state. It changes the state, and returns messages."""

MAX_TRIES = 20
"""How often a message is processed because another delivery changes its state."""


class InvalidState(PeeklockError):
    """A stored state does not have the type that its handler declares."""


class ConsistentHandler:
    """A function of a state, a body and a `HandlerContext`, which changes the state and returns messages.

    `key` returns the key of the state for a body. `state` is the type of the state; called without arguments, it makes the
    first version. `logic` is the version of the code. With `verify`, a duplicate with a different result is refused (S4.2).
    Raises `TypeError` for a function that cannot be called with these three.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        api: Connection,
        queue: str,
        *,
        key: Callable[[Any], str],
        state: type[Any],
        logic: str,
        verify: bool,
    ) -> None:
        self.name = name_of(function)
        self.flow_control = Unlimited()
        self._function = function
        self._is_async = is_async(function)
        self._api = api
        self._queue = queue
        self._key = key
        self._state = state
        self._logic = logic
        self._verify = verify
        self._convert_body = converter(_type_of_body(function))
        self._convert_state = converter(state)

    async def call(self, context: ReceiveContext[Any], threads: Executor) -> list[NewMessage]:
        """Process the message and commit. If another delivery has changed the state meanwhile, process it again.

        Raises `InvalidBody`, `InvalidState`, `VersionConflict` if that happens too often, `ReplayDiffers`, `ResultDiffers`, and
        what the function raises.
        """
        body = self._convert_body(context.message.body)
        key = self._key(body)
        for tries_left in reversed(range(MAX_TRIES)):
            loaded = await self._api.get_state(key, before_message=context.message.message_id)
            results = await self._process(loaded, body, context.message.message_id, threads)
            try:
                await context.commit(results)
            except VersionConflict:
                if not tries_left:
                    raise
            except ResultDiffers:
                # A message that was not yet a duplicate drew its own time, ids and random numbers. Only a replay tells.
                if loaded.duplicate or not tries_left:
                    raise
            else:
                return []
        raise AssertionError("the last try returns or raises")

    async def _process(
        self, loaded: answers.StateView, body: Any, message_id: str, threads: Executor
    ) -> requests.CommitLock:
        captured = msgspec.convert(loaded.captured, Captured) if loaded.duplicate else None
        context = HandlerContext(self._queue, message_id, self._logic, captured)
        state = self._state_of(loaded)
        messages = returned(await self._call(threads, state, body, context))
        value = msgspec.Raw(encoded(state, order="deterministic"))
        return results_of(
            messages, requests.CommitState(loaded.key, loaded.version, value, context.captured, self._verify)
        )

    def _state_of(self, loaded: answers.StateView) -> Any:
        if not loaded.version:
            return self._state()
        try:
            return self._convert_state(loaded.value)
        except InvalidBody as error:  # the body is not at fault, so its message is retried
            raise InvalidState(f"The state {loaded.key} is not that of {self.name}: {error.__cause__}") from error

    async def _call(self, threads: Executor, *arguments: Any) -> Any:
        if self._is_async:
            return await self._function(*arguments)
        return await in_thread(threads, self._function, *arguments)


def _type_of_body(function: Callable[..., Any]) -> Any:
    """Return the annotation of the second parameter. Refuse a function that every message would fail to call."""
    types = parameter_types(function)
    try:
        inspect.signature(function).bind("state", "body", "context")
    except TypeError as error:
        problem = f"{name_of(function)} must take a state, a body and a HandlerContext: {error}."
        raise TypeError(problem) from error
    return types[1]
