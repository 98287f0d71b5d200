"""Calls handlers: converts what they get, and checks what they return."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from importlib import import_module
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from peeklock_client.encoding import encoded
from peeklock_client.errors import PeeklockError
from peeklock_client.events import CloudEvent, InvalidCloudEvent
from peeklock_client.messages import Message, NewMessage
from peeklock_client.receive_context import ReceiveContext
from peeklock_client.worker.flow_control import FlowControl, Unlimited

Returned = NewMessage | list[NewMessage] | tuple[NewMessage, ...] | None
"""What a handler returns: messages to send in the commit that completes its message, each with a queue or a topic.

A handler fails if it returns messages after its message is settled, or if its policy leaves the settlement to it.
"""

Function = TypeVar("Function", bound=Callable[..., Returned | Awaitable[Returned]])
Read = Callable[[ReceiveContext[Any]], Any]


class InvalidBody(PeeklockError):
    """The body of a message does not have the type that its handler declares."""


class ServiceFailed(PeeklockError):
    """What a handler calls has failed, not the handler. It is logged without a traceback."""


class CallsHandler(Protocol):
    """A handler that can be called with a receive. Its `flow_control` limits what the worker receives for it."""

    @property
    def name(self) -> str:
        """Its name for logs."""
        ...

    @property
    def flow_control(self) -> FlowControl:
        """What limits the receives."""
        ...

    async def call(self, context: ReceiveContext[Any], threads: Executor) -> list[NewMessage]:
        """Call the handler, and return the messages to send with the completion."""
        ...


class Handler:
    """A function with the values that its parameters get, by their annotations.

    A parameter of type `ReceiveContext` gets the receive, `Message` the message, and `CloudEvent` the event. Any other parameter
    gets the body, converted to its type. A coroutine function runs in the event loop, any other function in a thread.
    Raises `TypeError` for a parameter that the worker cannot pass, for a type that no body can be converted to, for a function
    that would not see its message, for one that gets the body twice, and for a generator, which would never run.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        check_signature(function)
        self.name = name_of(function)
        self.flow_control = Unlimited()
        self._function = function
        self._is_async = is_async(function)
        self._readers = [reader(kind) for kind in parameter_types(function)]

    async def call(self, context: ReceiveContext[Any], threads: Executor) -> list[NewMessage]:
        """Call the function, and return the messages that it returns. Raises `InvalidBody`, and what the function raises."""
        arguments = [read(context) for read in self._readers]
        if self._is_async:
            return returned(await self._function(*arguments))
        return returned(await in_thread(threads, self._function, *arguments))


async def in_thread(threads: Executor, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain function in a thread, with the context variables of this task.

    A decorator may hide a coroutine function behind a plain one, so what the function returns is awaited if it can be.
    """

    def call() -> Any:
        try:
            return function(*arguments)
        except StopIteration as error:  # a future refuses this exception, and would never be done
            raise RuntimeError("The handler raised StopIteration.") from error

    result = await asyncio.get_running_loop().run_in_executor(threads, copy_context().run, call)
    return await result if inspect.isawaitable(result) else result


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a handler for logs."""
    whole = _without_partials(function)
    return getattr(whole, "__name__", type(whole).__name__)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a handler is a coroutine function, or an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(_definition(function))


def _definition(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs: that of a `partial`, or the `__call__` of an object."""
    whole = _without_partials(function)
    return whole if inspect.isroutine(whole) else type(whole).__call__


def _without_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def parameter_types(function: Callable[..., Any]) -> list[Any]:
    """Return the annotation of each positional parameter of a function, `Any` without one.

    Keyword-only parameters keep their defaults. Raises `TypeError` if one has none, and for `*args` and `**kwargs`.
    """
    hints = get_type_hints(_definition(function), include_extras=True)
    types: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            types.append(hints.get(parameter.name, Any))
        elif parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise TypeError(f"{name_of(function)} has the parameter {parameter}, which a worker cannot pass.")
    return types


def check_signature(function: Callable[..., Any]) -> None:
    """Raise `TypeError` for a function that would complete messages unread, or get the body in two parameters."""
    types, name = parameter_types(function), name_of(function)
    if not types:
        raise TypeError(
            f"{name} takes no parameter, so its messages would be completed unread. Let it take the body, or a Message."
        )
    bodies = sum(of_delivery(kind) is None for kind in types)
    if bodies > 1:
        raise TypeError(
            f"{name} has {bodies} parameters for the body. Annotate others with ReceiveContext, Message or CloudEvent."
        )
    definition = _definition(function)
    if inspect.isgeneratorfunction(definition) or inspect.isasyncgenfunction(definition):
        raise TypeError(
            f"{name} is a generator, which a worker does not run. Return messages instead of yielding them."
        )


def of_delivery(annotation: Any) -> Any:
    """Return the `ReceiveContext`, `Message` or `CloudEvent` that an annotation names, None if it is the type of a body.

    It may be in `Annotated`, or optional so that tests can call the function without it.
    """
    kind, parts = get_origin(annotation) or annotation, get_args(annotation)
    if kind in (ReceiveContext, Message, CloudEvent):
        return annotation
    if kind is Annotated:
        return of_delivery(parts[0])
    given = [part for part in parts if part is not NoneType]
    return of_delivery(given[0]) if kind in (Union, UnionType) and len(given) == 1 else None


def reader(annotation: Any) -> Read:
    """Return the function that reads the value of a parameter with this annotation from a receive."""
    delivery = of_delivery(annotation)
    kind, inner = get_origin(delivery) or delivery, next(iter(get_args(delivery)), Any)
    if kind is ReceiveContext:
        return lambda context: context
    if kind is Message:
        to_inner = converter(inner)
        return lambda context: replace(context.message, body=to_inner(context.message.body))
    if kind is CloudEvent:
        to_data = converter(inner)
        return lambda context: _event(context, to_data)
    convert = converter(annotation)
    return lambda context: convert(context.message.body)


def _event(context: ReceiveContext[Any], to_data: Callable[[Any], Any]) -> CloudEvent[Any]:
    try:
        event = CloudEvent.from_message(context.message)
    except InvalidCloudEvent as error:
        raise InvalidBody(str(error)) from error
    return replace(event, data=to_data(event.data))


def converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts a body to a type: with pydantic if it is a pydantic type, otherwise with msgspec.

    Raises `TypeError` for a type that no body can be converted to.
    """
    if kind in (Any, object, inspect.Parameter.empty):
        return lambda body: body
    if kind is bytes:
        return _to_bytes
    validate = _pydantic_converter(kind) if _is_of_pydantic(kind) else _msgspec_converter(kind)

    def convert(body: Any) -> Any:
        try:
            return validate(body)
        except ValueError as error:  # of both libraries
            raise InvalidBody(f"The body cannot be converted to {getattr(kind, '__name__', kind)}: {error}") from error

    return convert


def _is_of_pydantic(kind: Any) -> bool:
    """Return whether a type is a model or a dataclass of pydantic, or has one in its arguments."""
    made_by_pydantic = hasattr(kind, "__pydantic_validator__") or type(kind).__module__.startswith("pydantic.")
    return made_by_pydantic or any(map(_is_of_pydantic, (*get_args(kind), *getattr(kind, "__metadata__", ()))))


def _msgspec_converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts a body, whose keys are strings. Refuse a type that every body would fail to convert to."""
    if isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType):
        raise TypeError(f"A body cannot be converted to {kind}. Use a dataclass, or a type of msgspec or pydantic.")
    return partial(msgspec.convert, type=kind, str_keys=True, dec_hook=_convert_model)


def _pydantic_converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function that validates a body as JSON. In JSON mode, strict models accept a time as a string."""
    adapter = import_module("pydantic").TypeAdapter(kind)
    return lambda body: (
        adapter.validate_python(body) if isinstance(body, bytes) else adapter.validate_json(encoded(body))
    )


def _convert_model(kind: type[Any], value: Any) -> Any:
    """Convert a part of a body to a pydantic model that a dataclass or a msgspec type contains."""
    if _is_of_pydantic(kind):
        return _pydantic_converter(kind)(value)
    raise TypeError(f"{kind.__name__} cannot be made from a body")


def _to_bytes(body: Any) -> bytes:
    """Return a body of bytes, or a text in UTF-8: bytes that are sent as text are received as text."""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes):
        return body
    raise InvalidBody(f"The body must be bytes or text, not {type(body).__name__}.")


def returned(value: object) -> list[NewMessage]:
    """Return the messages that a handler returned: one, several, or none."""
    if value is None:
        return []
    several = cast("Iterable[object]", value) if isinstance(value, list | tuple) else (value,)
    return [_checked(message) for message in several]


def _checked(message: object) -> NewMessage:
    if not isinstance(message, NewMessage) or (message.queue is None) == (message.topic is None):
        raise TypeError("A handler must return None or NewMessage objects, each with a queue or a topic.")
    return message
