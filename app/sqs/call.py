"""One call of an action, and the declaration of actions."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from app.broker.broker import Broker
from app.domain.access import RequiredRight, Right
from app.domain.queue import Queue
from app.domain.refusals import Forbidden
from app.http.authorize import authorize
from app.http.request import Request
from app.sqs.errors import AwsError
from app.sqs.queue_names import check_new_name, name_of_arn, name_of_url, queue_url
from app.sqs.shapes.members import AnswerStruct, RequestStruct
from app.sqs.task_handles import task_of_handle

Body = TypeVar("Body", bound=RequestStruct)


class Call(msgspec.Struct, Generic[Body], frozen=True):
    """A decoded and authorized call of an action.

    `queue_name` is the queue or the topic that it is about, empty if it is about none. `region` is that of the signature, for
    ARNs. `base_url` is the URL of the server, with which URLs of queues begin.
    """

    request: Request[Any]
    body: Body
    queue_name: str
    region: str
    base_url: str

    @property
    def broker(self) -> Broker:
        """The broker that carries it out."""
        return self.request.broker

    @property
    def topic_name(self) -> str:
        """The topic that the call is about."""
        return self.queue_name

    async def queue(self) -> Queue:
        """Return the queue that the call is about. Refuses with `QueueNotFound`."""
        return await self.broker.queue_cache.by_name(self.queue_name)

    def authorize_any(self) -> None:
        """Refuse with `Forbidden` a client that has no right on the queue."""
        grant = self.request.principal.grant
        if not any(grant.allows(right, self.queue_name) for right in Right):
            raise Forbidden(f"This API key holds no right on queue {self.queue_name}.")

    def authorize(self, right: Right, name: str) -> None:
        """Refuse with `Forbidden` a client that lacks the right on another queue."""
        authorize(self.request.principal, right, name)

    async def check_access(self) -> None:
        """Refuse a client that has lost its right on the queue since the call began."""
        await self.request.authorization.check(self.queue_name, self.request.credential)

    def url_of(self, name: str) -> str:
        """Return the URL of a queue."""
        return queue_url(name, self.base_url)


Endpoint: TypeAlias = Callable[[Call[Any]], Awaitable[AnswerStruct]]
NameOf: TypeAlias = Callable[[Any, str], str]
"""Return the name of the queue that a request is about, from its struct and the path that it was sent to."""


class Action(msgspec.Struct, frozen=True):
    """The declaration of one action: its endpoint, the struct of its request, the right that it needs, and its queue."""

    endpoint: Endpoint
    request: type[RequestStruct]
    right: RequiredRight
    name_of: NameOf
    lists_own: bool = False

    @property
    def name(self) -> str:
        """The name in both protocols."""
        return self.request.__name__


class Service(msgspec.Struct, frozen=True):
    """A service: its actions by name, and what its clients are told of an error."""

    actions: Mapping[str, Action]
    error_of: Callable[[Exception], AwsError]


def of_url(body: Any, path: str) -> str:
    """Return the queue of `QueueUrl`, or without it that of the path. Refuses as `name_of_url` does."""
    return name_of_url(body.queue_url or path)


def of_name(body: Any, _path: str) -> str:
    """Return the queue of `QueueName`."""
    name: str = body.queue_name
    return name


def of_new_name(body: Any, _path: str) -> str:
    """Return the queue of `QueueName` that the action creates. Refuses as `check_new_name` does."""
    name: str = body.queue_name
    check_new_name(name)
    return name


def of_source_arn(body: Any, _path: str) -> str:
    """Return the queue of `SourceArn`. Refuses as `name_of_arn` does."""
    return name_of_arn(body.source_arn)


def of_task(body: Any, _path: str) -> str:
    """Return the queue of `TaskHandle`. Refuses as `task_of_handle` does."""
    return task_of_handle(body.task_handle).queue_name


def of_none(_body: Any, _path: str) -> str:
    """Return no queue: the action is about none, or about several."""
    return ""
