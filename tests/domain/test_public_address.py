"""A root path and the proxies to trust are read strictly, and a path is found with its root path and without."""

import pytest

from app.domain.public_address import OWN_SEGMENTS, PublicAddress, below_root, parse_networks, parse_root_path


@pytest.mark.parametrize(
    ("text", "path"), [("", ""), ("/", ""), ("/peeklock", "/peeklock"), ("/apps/peeklock-1.2/", "/apps/peeklock-1.2")]
)
def test_a_root_path_has_no_slash_at_its_end(text: str, path: str) -> None:
    assert parse_root_path(text) == path


@pytest.mark.parametrize(
    "text",
    ["peeklock", "//evil.test", "/a//b", "/a/../b", "/.", "/a b", "/a%2fb", "/a?b", "/a,/b", "/ä", "/" + "a" * 200],
)
def test_an_invalid_root_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="begins with a slash"):
        parse_root_path(text)


@pytest.mark.parametrize("segment", sorted(OWN_SEGMENTS))
def test_a_root_path_begins_with_no_path_of_the_server(segment: str) -> None:
    with pytest.raises(ValueError, match="a path of the server itself"):
        parse_root_path(f"/{segment}/peeklock")


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/peeklock/v1/queues", "/v1/queues"),
        ("/v1/queues", "/v1/queues"),
        ("/peeklock", "/"),
        ("/peeklock/", "/"),
        ("/peeklocks/v1", "/peeklocks/v1"),
    ],
)
def test_a_path_is_found_with_its_root_path_and_without(path: str, below: str) -> None:
    assert below_root("/peeklock", path) == below
    assert below_root("", path) == path


def test_proxies_are_trusted_by_their_addresses() -> None:
    address = PublicAddress("", parse_networks("10.1.0.0/16, 192.0.2.7,2001:db8::/32"))
    trusted = ("10.1.2.3", "192.0.2.7", "::ffff:10.1.2.3", "2001:db8::1", "2001:db8::1%eth0")
    assert [client for client in trusted if not address.trusts(client)] == []
    assert [client for client in ("10.2.0.1", "192.0.2.8", "::1", "127.0.0.1") if address.trusts(client)] == []
    assert not PublicAddress().trusts("127.0.0.1")


@pytest.mark.parametrize("text", ["proxy.example", "10.0.0.0/33", "10.0.0.1/8", "*"])
def test_a_host_name_is_refused_as_a_proxy(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_networks(text)
