"""A push reaches no address of its own network, however its URL names it."""

from __future__ import annotations

import asyncio

import pytest
from peeklock_client.push.addresses import CheckedConnections, is_public
from peeklock_client.push.errors import InvalidPush, TargetFailed
from peeklock_client.push.target import Target, TimeLimits, target_url

from tests.client.push_network import TLS, ScriptedNetwork, always
from tests.client.virtual_loop import run_virtually

PUBLIC, OTHER = "93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"


@pytest.mark.parametrize("address", [PUBLIC, OTHER, "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "192.0.0.8", "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1",
        "2002:7f00:1::1", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ],
)  # fmt: skip
def test_private_loopback_and_link_local_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "shop.example", "ftp://shop.example", "https://", "https:///hook", "https://user:secret@shop.example/",
        "https://user@shop.example/", "https://shop.example/#top", "https://[", "http://127.0.0.1/", "http://[::1]:80/",
        "http://169.254.169.254/latest/meta-data", "https://10.0.0.1", "https://[::ffff:10.0.0.1]/", "https://shop\r\n/",
        "https://shop.example:0/", "https://shop.example:65536/", "https://user:secret/x@shop.example/",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_a_target_is_refused(url: str) -> None:
    with pytest.raises(InvalidPush) as refused:
        target_url(url, allow_private=False)
    assert "secret" not in str(refused.value)


def test_a_private_address_is_a_target_if_it_is_allowed() -> None:
    assert target_url("http://127.0.0.1:8081/hook", allow_private=True).host_header == b"127.0.0.1:8081"


class Names:
    """Resolves every name to the next list of addresses, and counts."""

    def __init__(self, *answers: list[str]) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers = answers

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        if len(self.asked) > len(self._answers):
            raise OSError("Name or service not known")
        return self._answers[len(self.asked) - 1]


def post(
    network: ScriptedNetwork, names: Names, *, allow_private: bool = False, url: str = "https://shop.example/"
) -> int:
    """Send one request, and return the status of its answer."""

    async def scenario() -> int:
        backend = CheckedConnections(allow_private=allow_private, connections=network, resolve=names)
        target = Target(target_url(url, allow_private=allow_private), TimeLimits(), 1, backend=backend, tls=TLS)
        try:
            return (await target.post([], b"")).status
        finally:
            await target.close()

    return run_virtually(scenario())


def test_the_connection_goes_to_the_checked_address_and_keeps_the_name() -> None:
    network, names = ScriptedNetwork(always(200)), Names([PUBLIC], ["127.0.0.1"])
    assert post(network, names) == 200
    [request] = network.requests
    assert (request.address, request.headers["host"]) == (f"{PUBLIC}:443", "shop.example")
    assert network.tls_names == ["shop.example"]
    assert names.asked == [("shop.example", 443)]  # once, so a second answer of the resolver changes nothing


@pytest.mark.parametrize("addresses", [["10.0.0.1"], [PUBLIC, "127.0.0.1"], ["::1", OTHER]])
def test_a_name_with_an_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    network = ScriptedNetwork(always(200))
    with pytest.raises(TargetFailed, match="--allow-private") as refused:
        post(network, Names(addresses))
    assert (refused.value.reason, network.requests) == ("address_refused", [])


def test_a_name_with_a_private_address_is_reached_if_that_is_allowed() -> None:
    network = ScriptedNetwork(always(200))
    assert post(network, Names(["10.0.0.1"]), allow_private=True, url="http://shop.internal:8080/") == 200
    assert network.requests[0].address == "10.0.0.1:8080"
    assert network.requests[0].headers["host"] == "shop.internal:8080"


def test_the_next_address_is_tried_if_one_does_not_answer() -> None:
    for network in (ScriptedNetwork(always(200), refusing={OTHER}), ScriptedNetwork(always(200), silent={OTHER})):
        assert post(network, Names([OTHER, PUBLIC])) == 200
        assert network.requests[0].address == f"{PUBLIC}:443"


@pytest.mark.parametrize("addresses", [[PUBLIC], []])
def test_a_name_without_an_address_that_answers_is_unreachable(addresses: list[str]) -> None:
    with pytest.raises(TargetFailed) as failed:
        post(ScriptedNetwork(always(200), refusing={PUBLIC}), Names(addresses))
    assert failed.value.reason == "unreachable"


def test_a_name_that_does_not_exist_is_unreachable() -> None:
    with pytest.raises(TargetFailed, match="cannot be resolved") as failed:
        post(ScriptedNetwork(always(200)), Names())
    assert failed.value.reason == "unreachable"


@pytest.mark.parametrize("name", ["shop..example", f"{'a' * 64}.example", "."])
def test_a_text_that_cannot_be_a_name_is_unreachable(name: str) -> None:
    backend = CheckedConnections(allow_private=True, connections=ScriptedNetwork(always(200)))
    with pytest.raises(TargetFailed, match="cannot be resolved"):
        asyncio.run(backend.connect_tcp(name, 443))


def test_a_resolver_that_does_not_answer_is_a_time_out() -> None:
    async def stuck(host: str, port: int) -> list[str]:
        await asyncio.sleep(3600)
        return []

    async def connect() -> None:
        backend = CheckedConnections(allow_private=False, connections=ScriptedNetwork(always(200)), resolve=stuck)
        await backend.connect_tcp("shop.example", 443, timeout=5)

    with pytest.raises(TargetFailed) as failed:
        run_virtually(connect())
    assert failed.value.reason == "timeout"


def test_a_connection_that_was_checked_is_used_again_without_another_look_up() -> None:
    network, names = ScriptedNetwork(always(200)), Names([PUBLIC])

    async def scenario() -> None:
        backend = CheckedConnections(allow_private=False, connections=network, resolve=names)
        target = Target(
            target_url("https://shop.example/", allow_private=False), TimeLimits(), 1, backend=backend, tls=TLS
        )
        assert [(await target.post([], b"")).status for _ in range(3)] == [200, 200, 200]
        await target.close()

    run_virtually(scenario())
    assert len(names.asked) == 1
