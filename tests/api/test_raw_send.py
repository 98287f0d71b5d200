"""Raw sends: the request body is the body of the message, and CloudEvents are accepted."""

import base64
from typing import Any

import httpx
import pytest

from tests.api.api_server import ApiServer, pointers

RAW = "/queues/orders/messages/raw"


async def raw(api: ApiServer, content: bytes, **headers: str) -> httpx.Response:
    encoded = {name: value.encode() for name, value in headers.items()}
    return await api.request("POST", RAW, content=content, headers=encoded)


async def test_any_bytes_are_a_message(api: ApiServer) -> None:
    content = bytes(range(256)) * 4
    answer = await raw(api, content, **{"Content-Type": "application/x-parquet"})
    assert answer.status_code == 201
    (message,) = await api.receive()
    assert base64.b64decode(message["body_base64"]) == content
    assert message["content_type"] == "application/x-parquet"
    body = await api.request("GET", "/queues/orders/messages/1/body")
    assert (body.content, body.headers["content-type"]) == (content, "application/x-parquet")


async def test_json_is_delivered_as_json(api: ApiServer) -> None:
    content = b'{"a": 1.0,\n "b": [] }'
    await raw(api, content, **{"Content-Type": "application/json; charset=utf-8"})
    (message,) = await api.receive()
    assert message["body"] == {"a": 1.0, "b": []}
    assert (await api.request("GET", "/queues/orders/messages/1/body")).content == content


@pytest.mark.parametrize("content", [b"", b"{", b"nonsense", b'"\xff"', b"[" * 5000, b"NaN", b'"\\ud800"'])
async def test_a_body_with_a_json_content_type_must_be_json(api: ApiServer, content: bytes) -> None:
    assert pointers(await raw(api, content, **{"Content-Type": "application/json"})) == [""]


async def test_headers_give_fields_and_properties(api: ApiServer) -> None:
    await raw(
        api,
        b"x",
        **{
            "Peeklock-Message-Id": "m-1",
            "Peeklock-Subject": "Grüße",
            "Peeklock-Priority": "9",
            "Peeklock-Group-Id": "g",
            "Peeklock-Correlation-Id": "c",
            "Peeklock-Reply-To": "r",
            "Peeklock-To": "t",
            "Peeklock-Ttl-Seconds": "60",
            "Peeklock-Property-Region": "eu",
            "Peeklock-Property-Count": "3",
        },
    )
    (message,) = await api.receive()
    expected = {
        "message_id": "m-1",
        "subject": "Grüße",
        "priority": 9,
        "group_id": "g",
        "correlation_id": "c",
        "reply_to": "r",
        "to": "t",
        "expires_at": "2027-01-15T08:01:00.000000Z",
        "properties": {"region": "eu", "count": "3"},
    }
    assert message.items() >= expected.items()


async def test_a_raw_message_may_be_delayed_or_volatile(api: ApiServer) -> None:
    assert (await raw(api, b"x", **{"Peeklock-Delay-Seconds": "1.5"})).json()["state"] == "scheduled"
    due = await raw(api, b"x", **{"Peeklock-Available-At": "2030-01-01T00:00:00Z"})
    assert due.json()["state"] == "scheduled"
    assert (await raw(api, b"x", **{"Peeklock-Durability": "volatile"})).status_code == 202


@pytest.mark.parametrize(
    ("headers", "pointer"),
    [
        ({"Peeklock-Priority": "high"}, "#/header/Peeklock-Priority"),
        ({"Peeklock-Priority": "10"}, "#/header/Peeklock-Priority"),
        ({"Peeklock-Delay-Seconds": "soon"}, "#/header/Peeklock-Delay-Seconds"),
        ({"Peeklock-Message-Id": "x" * 129}, "#/header/Peeklock-Message-Id"),
        ({"Peeklock-Nonsense": "1"}, "#/header/Peeklock-Nonsense"),
        ({"Peeklock-Body": "1"}, "#/header/Peeklock-Body"),
        ({"Content-Type": "täxt"}, "#/header/Content-Type"),
        ({"Peeklock-Property-Long": "x" * 40_000}, "#/header/Peeklock-Property"),
        ({"Peeklock-Property-": "1"}, "#/header/Peeklock-Property-"),
        ({f"Peeklock-Property-{'A' * 129}": "1"}, f"#/header/Peeklock-Property-A{'a' * 128}"),
    ],
)
async def test_an_invalid_header_is_named(api: ApiServer, headers: dict[str, str], pointer: str) -> None:
    assert pointers(await raw(api, b"x", **headers)) == [pointer]
    assert (await api.request_json("GET", "/queues"))["items"] == []


@pytest.mark.parametrize(
    ("header", "detail"),
    [
        ("Peeklock-Prority", "There is no header `Peeklock-Prority`. Did you mean `Peeklock-Priority`?"),
        ("Peeklock-Property", "There is no header `Peeklock-Property`. Did you mean `Peeklock-Properties`?"),
        ("Peeklock-Nonsense", "There is no header `Peeklock-Nonsense`."),
        (f"Peeklock-{'X' * 9000}", f"There is no header `Peeklock-X{'x' * 70}...`."),
    ],
)
async def test_an_unknown_header_is_refused_with_the_near_one(api: ApiServer, header: str, detail: str) -> None:
    assert (await raw(api, b"x", **{header: "1"})).json()["detail"] == detail


async def test_headers_that_contradict_each_other_are_named(api: ApiServer) -> None:
    both = {"Peeklock-Delay-Seconds": "1", "Peeklock-Available-At": "2030-01-01T00:00:00Z"}
    assert pointers(await raw(api, b"x", **both)) == ["#/header/Peeklock-Delay-Seconds"]


async def test_a_header_is_given_once_and_in_utf8(api: ApiServer) -> None:
    twice = [(b"Peeklock-Subject", b"a"), (b"Peeklock-Subject", b"b")]
    refused = await api.request("POST", RAW, content=b"", headers=twice)
    assert pointers(refused) == ["#/header/Peeklock-Subject"]
    assert refused.json()["detail"] == "The header `Peeklock-Subject` is given more than once."
    garbled = [(b"Peeklock-Subject", b"\xff")]
    assert pointers(await api.request("POST", RAW, content=b"", headers=garbled)) == ["#/header/Peeklock-Subject"]


EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/shops/7",
    "type": "shop.order.placed",
    "subject": "order/17",
    "time": "2026-11-20T10:00:00Z",
    "partition": "7",
}
KNOWN = {
    "message_id": "e-1",
    "subject": "shop.order.placed",
    "properties": {f"cloudEvents:{name}": value for name, value in EVENT.items()},
}
STRUCTURED = {"Content-Type": "application/cloudevents+json; charset=utf-8"}


class TestCloudEvents:
    """An event becomes a message from which a receiver can rebuild the event."""

    def binary(self, **other: str) -> dict[str, str]:
        return {**{f"ce-{name}": value for name, value in EVENT.items()}, **other}

    async def test_in_binary_mode(self, api: ApiServer) -> None:
        await raw(api, b'{"order": 17}', **self.binary(**{"Content-Type": "application/json"}))
        (message,) = await api.receive()
        assert message.items() >= {**KNOWN, "body": {"order": 17}, "content_type": "application/json"}.items()

    async def test_in_structured_mode(self, api: ApiServer) -> None:
        await api.request("POST", RAW, {**EVENT, "data": {"order": 17}}, headers=STRUCTURED)
        (message,) = await api.receive()
        assert message.items() >= {**KNOWN, "body": {"order": 17}, "content_type": "application/json"}.items()

    @pytest.mark.parametrize(
        ("data", "content_type", "content"),
        [
            ({"data": "<a/>", "datacontenttype": "text/xml"}, "text/xml", b"<a/>"),
            ({"data_base64": "AP8=", "datacontenttype": "image/png"}, "image/png", b"\x00\xff"),
            ({"data_base64": "AP8="}, None, b"\x00\xff"),
        ],
    )
    async def test_data_of_other_kinds(
        self, api: ApiServer, data: Any, content_type: str | None, content: bytes
    ) -> None:
        await api.request("POST", RAW, {**EVENT, **data}, headers=STRUCTURED)
        (message,) = await api.receive()
        assert (await api.request("GET", "/queues/orders/messages/1/body")).content == content
        assert message.get("content_type") == content_type

    @pytest.mark.parametrize("mode", ["binary", "structured"])
    async def test_an_event_may_have_no_data(self, api: ApiServer, mode: str) -> None:
        if mode == "binary":
            await raw(api, b"", **self.binary())
        else:
            await api.request("POST", RAW, EVENT, headers=STRUCTURED)
        (message,) = await api.receive()
        assert not {"body", "body_base64"} & message.keys()

    async def test_attributes_that_are_not_ascii_are_decoded(self, api: ApiServer) -> None:
        await raw(api, b"", **self.binary(**{"ce-subject": "Gr%C3%BC%C3%9Fe%20%25"}))
        (message,) = await api.receive()
        assert message["properties"]["cloudEvents:subject"] == "Grüße %"

    async def test_attributes_keep_their_types(self, api: ApiServer) -> None:
        event = {**EVENT, "sequence": 7, "sampled": True, "absent": None}
        await api.request("POST", RAW, event, headers=STRUCTURED)
        (message,) = await api.receive()
        properties = message["properties"]
        assert (properties["cloudEvents:sequence"], properties["cloudEvents:sampled"]) == (7, True)
        assert "cloudEvents:absent" not in properties

    async def test_peeklock_headers_override_the_event(self, api: ApiServer) -> None:
        ours = {"Peeklock-Priority": "8", "Peeklock-Message-Id": "mine", "Peeklock-Property-Extra": "1"}
        await raw(api, b"", **self.binary(**ours))
        (message,) = await api.receive()
        assert (message["priority"], message["message_id"]) == (8, "mine")
        assert message["properties"] == {**KNOWN["properties"], "extra": "1"}

    @pytest.mark.parametrize("missing", ["id", "source", "type"])
    async def test_an_event_without_a_required_attribute_is_refused(self, api: ApiServer, missing: str) -> None:
        event = {name: value for name, value in EVENT.items() if name != missing}
        headers = {f"ce-{name}": value for name, value in event.items()}
        assert pointers(await raw(api, b"", **headers)) == [f"#/header/ce-{missing}"]
        answer = await api.request("POST", RAW, event, headers=STRUCTURED)
        assert pointers(answer) == [f"/{missing}"]
        assert answer.json()["detail"] == f"The attribute {missing} is missing."

    @pytest.mark.parametrize(
        ("event", "pointer"),
        [
            ({"extension": {"a": 1}}, "/extension"),
            ({"extension": 1.5}, "/extension"),
            ({"id": "x" * 129}, "/id"),
            ({"data": 1, "data_base64": "AA=="}, "/data_base64"),
            ({"data_base64": "?"}, "/data_base64"),
            ({"data": {"a": 1}, "datacontenttype": "text/xml"}, "/data"),
            ({"datacontenttype": 5}, "/datacontenttype"),
            ({f"x{n}": n for n in range(58)}, "/x57"),
            ({"BadName": "x"}, "/BadName"),
            ({"bad_name": "x"}, "/bad_name"),
            ({"a/b": "x"}, "/a~1b"),
            ({"": "x"}, "/"),
            ({"x" * 117: "x"}, "/" + "x" * 117),
            ({"id": ""}, "/id"),
            ({"id": 5}, "/id"),
            ({"type": ""}, "/type"),
            ({"source": ""}, "/source"),
            ({"source": 5}, "/source"),
            ({"source": "two words"}, "/source"),
            ({"source": "/100%"}, "/source"),
            ({"source": "7:shop"}, "/source"),
            ({"dataschema": "/relative"}, "/dataschema"),
            ({"subject": ""}, "/subject"),
            ({"time": 5}, "/time"),
            ({"time": "yesterday"}, "/time"),
            ({"time": "2026-11-20T10:00:00"}, "/time"),
            ({"time": "2026-11-20T10:00:00+0100"}, "/time"),
            ({"time": "2026-02-30T10:00:00Z"}, "/time"),
            ({"extension": "line\n"}, "/extension"),
            ({"extension": "\x85"}, "/extension"),
            ({"extension": "\ufdd0"}, "/extension"),
            ({"extension": "\U0001ffff"}, "/extension"),
            ({"extension": 2**31}, "/extension"),
            ({"small": "x" * 1000, "large": "x" * 32_000}, "/large"),
        ],
    )
    async def test_an_invalid_event_is_refused(self, api: ApiServer, event: Any, pointer: str) -> None:
        answer = await api.request("POST", RAW, {**EVENT, **event}, headers=STRUCTURED)
        assert pointers(answer) == [pointer]

    @pytest.mark.parametrize(
        ("header", "value"),
        [
            ("ce-", "x"),
            ("ce-bad-name", "x"),
            ("ce-data", "x"),
            ("ce-id", ""),
            ("ce-source", "%20"),
            ("ce-time", "yesterday"),
            ("ce-extension", "%0A"),
        ],
    )
    async def test_an_invalid_event_in_binary_mode_is_refused(self, api: ApiServer, header: str, value: str) -> None:
        assert pointers(await raw(api, b"", **self.binary(**{header: value}))) == [f"#/header/{header}"]

    async def test_a_repeated_attribute_is_refused(self, api: ApiServer) -> None:
        twice = [*self.binary().items(), ("ce-id", "e-2")]
        assert pointers(await api.request("POST", RAW, content=b"", headers=twice)) == ["#/header/ce-id"]

    @pytest.mark.parametrize(
        "attributes",
        [
            {"source": "https://github.com/cloudevents?a=b#c"},
            {"source": "mailto:cncf-wg-serverless@lists.cncf.io"},
            {"source": "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"},
            {"source": "1-555-123-4567"},
            {"source": "//[::1]:80/a%20b"},
            {"dataschema": "https://shop.example/schemas/order"},
            {"time": "2026-11-20t10:00:00.123456789-00:30"},
            {"extension": ""},
            {"extension": "Grüße 😀"},
            {"extension": -(2**31)},
        ],
    )
    async def test_what_the_specification_allows_is_kept(self, api: ApiServer, attributes: dict[str, Any]) -> None:
        answer = await api.request("POST", RAW, {**EVENT, **attributes}, headers=STRUCTURED)
        assert answer.status_code == 201, answer.text
        (message,) = await api.receive()
        kept = {f"cloudEvents:{name}": value for name, value in attributes.items()}
        assert message["properties"].items() >= kept.items()

    async def test_an_event_with_too_much_is_refused_in_binary_mode_too(self, api: ApiServer) -> None:
        many = self.binary(**{f"ce-x{n}": "1" for n in range(58)})
        assert pointers(await raw(api, b"", **many)) == ["#/header/ce-x57"]
        large = self.binary(**{"ce-large": "x" * 33_000})
        assert pointers(await raw(api, b"", **large)) == ["#/header/ce-large"]

    async def test_other_versions_and_forms_are_refused(self, api: ApiServer) -> None:
        assert pointers(await raw(api, b"", **self.binary(**{"ce-specversion": "0.9"}))) == ["#/header/ce-specversion"]
        other = {**EVENT, "specversion": "0.9"}
        assert pointers(await api.request("POST", RAW, other, headers=STRUCTURED)) == ["/specversion"]
        batch = {"Content-Type": "application/cloudevents-batch+json"}
        many = await api.request("POST", RAW, [EVENT], headers=batch)
        assert pointers(many) == ["#/header/Content-Type"]
        assert many.json()["detail"] == "Only a single application/cloudevents+json event is accepted."
        avro = {"Content-Type": "application/cloudevents+avro"}
        assert pointers(await raw(api, b"", **avro)) == ["#/header/Content-Type"]
        assert pointers(await raw(api, b"[]", **STRUCTURED)) == [""]
        assert pointers(await raw(api, b"{", **STRUCTURED)) == [""]
