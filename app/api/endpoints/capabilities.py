"""What a server offers: how safe its messages are, its limits and its versions."""

import app
from app.domain.access import ANY_RIGHT
from app.http.operation import operation
from app.http.request import Request
from app.http.response import Response
from app.wire.capabilities import Capabilities, LockStoreCapabilities, ServerLimits, StoreCapabilities, Versions


@operation("GET", "/v1/capabilities", right=ANY_RIGHT, tag="index", responses={200: Capabilities})
async def read_capabilities(request: Request[None]) -> Response:
    """Get what this server offers.

    `store.durable` is read from the database for each request, because an operator may change its settings while it
    runs. `store.replicated` is true if answers also wait for synchronous standbys of PostgreSQL. A server on a database that
    is not durable accepts durable messages, and says here that it may lose them. With PEEKLOCK_REQUIRE_DURABLE_STORE it
    refuses them, with 503 `store-not-durable`.
    """
    broker, context = request.broker, request.context
    store, state = broker.store, broker.lock_store.state
    risks = await store.durability_risks()
    limits = ServerLimits(
        max_request_bytes=context.max_request_bytes,
        max_answer_bytes=broker.response_limits.max_bytes,
        max_queues=broker.queue_cache.max_queues,
        max_wait_seconds=context.long_poll_cap_seconds,
        max_transactions_per_principal=broker.transactions.principal_limit,
    )
    return Response(
        Capabilities(
            versions=Versions(app.__version__, await store.schema_revision()),
            store=StoreCapabilities(
                store.engine, not risks, await store.is_replicated(), broker.sending.durability.accepts(risks), risks
            ),
            lock_store=LockStoreCapabilities(state != "none", state),
            limits=limits,
        )
    )
