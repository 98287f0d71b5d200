"""Open transactions are listed with what waits in them, and can be rolled back."""

import re

from app.domain.access import Right
from tests.console.console_server import ConsoleServer, token_of


async def opened(console: ConsoleServer, **request: object) -> str:
    """Open a transaction with a send and a settlement, and return its id."""
    api = console.api
    transaction = await api.request_json("POST", "/transactions", {"timeout_seconds": 60}, **request)
    await api.request_json("POST", "/queues/orders/messages", {"body": 1}, **request)
    joins = {"body": 2, "message_id": "<b>joined</b>", "transaction_id": transaction["id"]}
    await api.request_json("POST", "/queues/orders/messages", joins, **request)
    received = await api.request_json("POST", "/queues/orders/messages/receive", {}, **request)
    token = received["messages"][0]["lock_token"]
    path = f"/queues/orders/locks/{token}/complete"
    await api.request_json("POST", path, {"transaction_id": transaction["id"]}, **request)
    return transaction["id"]


async def test_an_open_transaction_is_listed_until_it_ends(console: ConsoleServer) -> None:
    assert "No transaction is open." in await console.page("/transactions")
    transaction = await opened(console)
    page = await console.page("/transactions")
    assert f'href="/console/transactions/{transaction}"' in page
    assert re.findall(r'<td class="number">([^<]*)</td>', page) == ["2", "55 s"]
    await console.api.request_json("POST", f"/transactions/{transaction}/commit", {})
    assert transaction not in await console.page("/transactions")
    assert (await console.get(f"/transactions/{transaction}")).status_code == 404


async def test_the_page_of_one_has_what_waits_for_the_commit(console: ConsoleServer) -> None:
    page = await console.page(f"/transactions/{await opened(console)}")
    assert re.findall(r"<td>(\w+)</td>", page) == ["send", "complete"]
    assert "&lt;b&gt;joined&lt;/b&gt;" in page
    assert 'href="/console/queues/orders/messages/1"' in page


async def test_a_rollback_ends_it(console: ConsoleServer) -> None:
    transaction = await opened(console)
    response = await console.post(f"/transactions/{transaction}/rollback", "/transactions")
    assert "The transaction was rolled back." in await console.following(response)
    ended = await console.api.request_json("GET", f"/transactions/{transaction}")
    assert (ended["state"], ended["cause"]) == ("rolled_back", "requested")
    assert await console.api.counts() == {"locked": 1}


async def test_only_who_may_manage_everything_sees_transactions_of_others(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    worker = {"authorization": f"Bearer {await api.new_key(*Right, principal='worker', patterns=('orders',))}"}
    transaction = await opened(console_with_keys, headers=worker)
    path = f"/transactions/{transaction}"
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, Right.MANAGE, patterns=("orders",)))
    page = await console_with_keys.page("/transactions")
    assert transaction not in page
    assert "that you have opened" in page
    assert (await console_with_keys.get(path)).status_code == 404
    refused = await console_with_keys.http.post(f"/console{path}/rollback", data={"csrf_token": token_of(page)})
    assert refused.status_code == 404
    await console_with_keys.sign_in(await api.new_key(Right.SEND, principal="worker"))
    assert transaction in await console_with_keys.page("/transactions")
    assert (await console_with_keys.get(path)).status_code == 200
    await console_with_keys.sign_in(await api.new_key(Right.MANAGE, principal="operator"))
    assert "worker" in await console_with_keys.page("/transactions")
    assert "worker opened it" in await console_with_keys.page(path)
