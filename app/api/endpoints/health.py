"""Liveness, readiness and metrics of a server."""

from hmac import compare_digest

from app.domain.access import Right
from app.domain.refusals import Forbidden, ShuttingDown, StoreUnavailable, Unauthenticated
from app.http.authorize import IS_AUTHENTICATED, Authorization, bearer_token
from app.http.local_access import LocalAccessPolicy
from app.http.operation import operation
from app.http.request import Request
from app.http.response import PROMETHEUS, Response
from app.runtime.clock import wait_for
from app.wire.health import Liveness, Readiness

STORE_TIMEOUT_SECONDS = 1.0
"""A store that takes longer to answer is too slow to deliver messages."""


# A query that a probe adds must not make a healthy server fail its probe, and it cannot change these answers.
@operation("GET", "/livez", right=None, tag="health", responses={200: Liveness}, is_tolerant=True)
async def check_live(_: Request[None]) -> Response:
    """Report that the process answers, even if the store does not."""
    return Response(Liveness())


@operation(
    "GET", "/readyz", right=None, tag="health", responses={200: Readiness}, refusals=(ShuttingDown,), is_tolerant=True
)
async def check_ready(request: Request[None]) -> Response:
    """Report whether this server takes work: it is not stopping, and its store accepts writes and answers within a second."""
    if request.context.is_draining():
        raise ShuttingDown
    try:
        await wait_for(request.broker.store.check_writable(), request.broker.clock, STORE_TIMEOUT_SECONDS)
    except TimeoutError:
        raise StoreUnavailable from None
    return Response(Readiness(request.broker.lock_store.state))


@operation("GET", "/metrics", right=None, tag="health", responses={200: bytes}, response_media_type=PROMETHEUS)
async def read_metrics(request: Request[None]) -> Response:
    """Get the metrics of this server in the text format of Prometheus.

    Queues are named for the metrics key, for an API key with the right to browse every queue, and on a server that needs
    no API key. Other clients get totals. While the store is unavailable, its metrics are missing and `peeklock_store_up`
    is 0. While it is slow, `peeklock_store_slow` is 1 and its metrics are the last known ones.
    """
    per_queue = await _may_see_queue_names(request) and request.context.metrics_per_queue
    return Response(content=await request.context.metrics_page.read(per_queue=per_queue), content_type=PROMETHEUS)


async def _may_see_queue_names(request: Request[None]) -> bool:
    """Return whether the client may see the names of queues. Refuses with `Unauthenticated` an unknown key."""
    token, expected = bearer_token(request.headers), request.context.metrics_key
    if token is not None and expected is not None and compare_digest(token.encode(), expected.encode()):
        request.state[IS_AUTHENTICATED] = True
        return True
    authorization = _queue_names_authorization(request)
    try:
        await authorization.accept(token, None, request.headers, request.state)
    except Unauthenticated:
        if token is not None:
            raise
        return False
    except (Forbidden, StoreUnavailable):
        return False
    return True


def _queue_names_authorization(request: Request[None]) -> Authorization:
    access = LocalAccessPolicy(
        requires_local_host=request.context.is_loopback, requires_json=False, requires_admin_header=False
    )
    authenticator = request.context.authenticator
    return Authorization(authenticator and authenticator.authenticate, Right.BROWSE, access)
