"""Renewals that a server refuses: which refusal ends a lock, and which one is tried again while the lock holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import pytest

from tests.client.virtual_broker import LOCK_SECONDS, Broker, refused, run_worker

Refuse = Callable[[str], httpx.Response]


def in_result(status: int, code: str) -> Refuse:
    """Return how a server refuses one renewal of a request."""
    return lambda token: httpx.Response(200, json={"results": [refused(token, status, code)]})


def in_answer(status: int, code: str) -> Refuse:
    """Return how a server refuses a whole request, with the time of its next try."""

    def refuse(token: str) -> httpx.Response:
        problem = {**refused(token, status, code)["problem"], "retryable": True}
        return httpx.Response(status, json=problem, headers={"Retry-After": "1"})

    return refuse


def renewals_of(request: httpx.Request) -> list[str]:
    """Return the lock tokens that a request renews."""
    settlements = msgspec.json.decode(request.content).get("settlements", [])
    return [one["lock_token"] for one in settlements if one["action"] == "renew"]


class RefusingBroker:
    """Refuses every renewal until a time, and notes when it was asked."""

    def __init__(self, refuse: Refuse, until: float) -> None:
        self.broker = Broker(stored=1)
        self.asked: list[float] = []
        self._refuse = refuse
        self._until = until

    async def answer(self, request: httpx.Request) -> httpx.Response:
        now = asyncio.get_running_loop().time()
        if tokens := renewals_of(request):
            self.asked.append(now)
            if now < self._until:
                return self._refuse(tokens[0])
        return await self.broker.answer(request)


async def work_for_forty_seconds(body: Any) -> None:
    await asyncio.sleep(40)


BUSY = [
    in_result(503, "store-unavailable"),
    in_result(503, "overloaded"),
    in_result(429, "rate-limited"),
    in_answer(503, "shutting-down"),
    in_answer(429, "rate-limited"),
]


@pytest.mark.parametrize("refuse", BUSY)
def test_a_renewal_that_is_refused_for_now_is_tried_again_while_the_lock_holds(refuse: Refuse) -> None:
    server = RefusingBroker(refuse, until=LOCK_SECONDS - 5)
    report = run_worker(server.answer, work_for_forty_seconds)
    assert (report.completed, report.lock_lost, server.broker.too_late) == (1, 0, [])
    assert len(server.asked) < LOCK_SECONDS, "it is not tried without a pause"


@pytest.mark.parametrize("refuse", BUSY)
def test_a_lock_whose_renewals_are_all_refused_for_now_is_lost_at_its_end(refuse: Refuse) -> None:
    server, ended = RefusingBroker(refuse, until=3600), list[float]()

    async def handle(body: int) -> None:
        try:
            await asyncio.sleep(50)
        finally:
            ended.append(asyncio.get_running_loop().time())

    report = run_worker(server.answer, handle)
    assert (report.completed, report.lock_lost) == (0, 1)
    assert LOCK_SECONDS <= ended[0] < LOCK_SECONDS + 1


@pytest.mark.parametrize(("status", "code"), [(410, "lock-lost"), (409, "already-settled"), (404, "message-not-found")])
def test_a_renewal_with_a_token_that_has_ended_ends_the_handler_at_once(status: int, code: str) -> None:
    server = RefusingBroker(in_result(status, code), until=3600)
    report = run_worker(server.answer, work_for_forty_seconds)
    assert (report.completed, report.lock_lost, len(server.asked)) == (0, 1, 1)


def test_a_refusal_of_one_renewal_delays_no_other() -> None:
    """While the lock of message 1 cannot be renewed, that of message 2, which comes later, is."""
    broker, refusals = Broker(stored=1), list[float]()

    async def answer(request: httpx.Request) -> httpx.Response:
        now = asyncio.get_running_loop().time()
        tokens = renewals_of(request)
        if "1.t" not in tokens or now > LOCK_SECONDS - 2:
            return await broker.answer(request)
        refusals.append(now)
        others = [broker._settle({"lock_token": token, "action": "renew"}) for token in tokens if token != "1.t"]
        return httpx.Response(200, json={"results": [refused("1.t", 503, "store-unavailable"), *others]})

    async def handle(body: int) -> None:
        if body == 1:
            broker.stored = 1
        await asyncio.sleep(50)

    report = run_worker(answer, handle, wait_seconds=1)
    assert (report.completed, report.lock_lost, broker.too_late) == (2, 0, [])
    assert refusals
