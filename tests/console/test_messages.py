"""Messages in any state are listed and found by a filter. The page of one shows its body, its fields and its history."""

import base64
import html
import re
from typing import Any

import pytest

from app.broker.access.keys import create_key, revoke_key
from app.console.messages import PAGE_SIZE
from app.domain.access import Grant, Right
from tests.console.console_server import ConsoleServer

HOSTILE = "</script><script>alert(1)</script>"
MESSAGES = "/queues/orders/messages"


def numbers(page: str) -> list[int]:
    """The sequence numbers of the rows."""
    return [int(number) for number in re.findall(r'<th scope="row" class="number"><a [^>]*>(\d+)</a>', page)]


async def message_page(console: ConsoleServer, query: str = "", **message: Any) -> str:
    """The page of a message that is sent."""
    sent = await console.api.send(**message)
    return await console.page(f"{MESSAGES}/{sent['sequence_number']}{query}")


async def test_messages_of_every_state_are_listed(console: ConsoleServer) -> None:
    for delay in (0, 0, 60):
        await console.api.send(body=delay, delay_seconds=delay)
    await console.api.receive()
    page = await console.page(MESSAGES)
    assert numbers(page) == [1, 2, 3]
    assert re.findall(r'<span class="tag" data-state="\w+">(\w+)</span></td>', page) == [
        "locked",
        "available",
        "scheduled",
    ]
    assert numbers(await console.page(f"{MESSAGES}?state=scheduled&state=locked")) == [1, 3]


async def test_a_filter_finds_messages(console: ConsoleServer) -> None:
    for region in ("eu", "us", "eu"):
        await console.api.send(body=1, properties={"region": region})
    assert numbers(await console.page(f"{MESSAGES}?filter=message.properties.region == 'eu'")) == [1, 3]
    assert "No message is in these states" in await console.page(f"{MESSAGES}?filter=message.priority == 9")


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("filter=message.subjekt == 'a'", "Did you mean `subject`?"),
        ("filter=message.body == 'a'", "A filter cannot read the body of a message."),
        (f"filter={HOSTILE}", "fault-filter"),
        ("state=lost", "not &#39;lost&#39;"),
        ("cursor=x", "This page does not exist."),
    ],
)
async def test_a_fault_of_the_query_is_shown_where_it_is(console: ConsoleServer, query: str, fault: str) -> None:
    await console.api.send(body=1)
    response = await console.get(f"{MESSAGES}?{query}")
    assert response.status_code == 422
    assert fault in response.text
    assert HOSTILE not in response.text
    if query.startswith("filter=message"):
        assert 'aria-describedby="fault-filter"' in response.text
        assert "value=&#34;" not in response.text


async def test_pages_follow_each_other(console: ConsoleServer) -> None:
    for _ in range(PAGE_SIZE + 1):
        await console.api.send(body=1)
    page = await console.page(f"{MESSAGES}?state=available")
    assert numbers(page) == list(range(1, PAGE_SIZE + 1))
    (following,) = re.findall(r'rel="next" href="([^"]*)"', page)
    last = await console.page(f"{MESSAGES}{following.replace('&amp;', '&')}")
    assert numbers(last) == [PAGE_SIZE + 1]
    assert ("First page" in last, "Next page" in last) == (True, False)


async def test_a_list_is_copied_as_a_command_of_curl(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    page = await console.page(f"{MESSAGES}?state=available&filter=message.subject == 'a'")
    assert "curl -sG http://peeklock.test/v1/queues/orders/messages" in page
    assert "--data-urlencode state=available" in page


async def test_a_body_of_json_is_a_tree(console: ConsoleServer) -> None:
    body = '{"order": 17, "price": 1e400, "items": [{"sku": "A"}], "paid": true, "order": 18, "note": null}'
    await console.api.http.post(f"/v1{MESSAGES}", content=b'{"body": %s}' % body.encode())
    page = await console.page(f"{MESSAGES}/1")
    found = re.findall(r'<span class="key">(\w+)</span> <span class="value (\w+)">([^<]*)<', page)
    assert found == [
        ("order", "number", "17"),
        ("price", "number", "1e400"),
        ("sku", "text", "A"),
        ("paid", "word", "true"),
        ("order", "number", "18"),
        ("note", "word", "null"),
    ]
    assert "1 entry" in page


async def test_a_body_of_text_is_text_and_other_bytes_are_hexadecimal(console: ConsoleServer) -> None:
    text = base64.b64encode("Grüße\nof <b>today</b>".encode()).decode()
    assert "Grüße\nof &lt;b&gt;today&lt;/b&gt;" in await message_page(console, body_base64=text)
    binary = base64.b64encode(b"\x00\x01PNG" + bytes(20)).decode()
    assert "00000000  00 01 50 4e 47" in await message_page(console, body_base64=binary)
    assert "It has no body." in await message_page(console)


async def test_properties_are_shown_with_their_types(console: ConsoleServer) -> None:
    values = {"paid": True, "text": "1", "count": 1, "price": 1.5, "none": None, "word": "true"}
    page = html.unescape(await message_page(console, properties=values))
    found = re.findall(r'class="wrap">(\w+)</th><td class="wrap code">([^<]*)</td><td class="muted">([^<]*)<', page)
    assert found == [
        ("paid", "true", "true or false"),
        ("text", '"1"', "text"),
        ("count", "1", "number"),
        ("price", "1.5", "number"),
        ("none", "null", "null"),
        ("word", '"true"', "text"),
    ]


async def test_the_reader_chooses_another_form_of_a_body(console: ConsoleServer) -> None:
    page = await message_page(console, "?body=hex", body={"a": 1})
    assert "7b 22 61 22 3a 31 7d" in page.replace(" 20", "")
    assert 'href="/console/queues/orders/messages/1?body=text#body-title"' in page


@pytest.mark.parametrize(
    "body", ["[" * 400 + "]" * 400, "[" + "1," * 5000 + "1]", '{"a": "\\ud800"}', '["' + "x" * 70_000 + '"]']
)
async def test_no_body_breaks_the_page(console: ConsoleServer, body: str) -> None:
    await console.api.http.post(f"/v1{MESSAGES}/raw", content=body.encode())
    for query in ("", "?body=text", "?body=hex", "?body=tree"):
        assert len(await console.page(f"{MESSAGES}/1{query}")) < 400_000
    assert len(await console.page(MESSAGES)) < 20_000


async def test_a_large_body_is_shown_in_part_and_downloaded_whole(console: ConsoleServer) -> None:
    page = await message_page(console, body="ü" * 40_000)
    assert "The first 64 KiB of 78 KiB" in page
    response = await console.get(f"{MESSAGES}/1/body")
    assert response.content == f'"{"ü" * 40_000}"'.encode()
    assert response.headers["content-disposition"] == 'attachment; filename="orders-1.json"'
    assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert response.headers["content-type"] == "application/octet-stream"


async def test_what_a_sender_chose_stays_text(console: ConsoleServer) -> None:
    fields = {"subject": HOSTILE, "group_id": HOSTILE, "properties": {HOSTILE: HOSTILE}, "content_type": HOSTILE}
    await console.api.request("PUT", "/queues/orders", {"history": True})
    await console.api.send(body={HOSTILE: HOSTILE}, **fields)
    (message,) = await console.api.receive(receiver_id=HOSTILE)
    await console.api.settle(message, "dead-letter", reason=HOSTILE, description=HOSTILE)
    for path in (MESSAGES, f"{MESSAGES}/1", f"{MESSAGES}/1?body=text"):
        page = await console.page(path)
        assert HOSTILE not in page
        assert "alert(1)" in page


async def test_the_page_explains_the_message_and_tells_its_history(console: ConsoleServer) -> None:
    await console.api.request("PUT", "/queues/orders", {"history": True})
    await console.api.send(body=1)
    (message,) = await console.api.receive(receiver_id="worker-7")
    await console.api.clock.advance(2)
    await console.api.settle(message, "dead-letter", reason="no-such-article")
    page = await console.page(f"{MESSAGES}/1")
    assert {"First delivered", "Last delivered"} <= set(re.findall(r"<dt>([^<]*)</dt>", page))
    told = re.findall(r"<p>(It was [^<]*|worker-7 [^<]*)<", page)
    assert [text.strip() for text in told] == [
        "It was sent.",
        "It was delivered to worker-7, delivery 1.",
        "worker-7 dead-lettered it.",
    ]
    assert "2 s later" in page
    assert "Reason: no-such-article" in page


async def test_times_in_an_explanation_are_marked_for_the_zone_of_the_reader(console: ConsoleServer) -> None:
    await console.api.send(body=1, available_at="2031-01-02T03:04:05Z")
    page = await console.page(f"{MESSAGES}/1")
    explanation = page.partition('<p class="explanation">')[2].partition("</p>")[0]
    assert '<time datetime="2031-01-02T03:04:05.000000Z">2031-01-02 03:04:05 UTC</time>' in explanation


async def test_a_message_that_has_ended_is_still_explained(console: ConsoleServer) -> None:
    await console.api.send(body=1)
    (message,) = await console.api.receive()
    await console.api.settle(message, "complete")
    page = await console.page(f"{MESSAGES}/1")
    assert '<span class="tag" data-state="ended">ended</span>' in page
    assert "completed" in page


async def test_a_message_of_the_archive_still_shows_its_fields(console: ConsoleServer) -> None:
    await console.api.send(body=1, message_id="order-1", correlation_id=HOSTILE)
    (message,) = await console.api.receive()
    await console.api.settle(message, "complete")
    page = await console.page(f"{MESSAGES}/1")
    facts = re.findall(r"<dt>([^<]*)</dt>", page)
    assert facts == ["Message id", "Correlation id", "Sent", "First delivered", "Deliveries", "Ended"]
    assert '<a href="/console/trail?id=order-1">Trail</a>' in page
    assert HOSTILE not in page


async def test_a_message_of_a_queue_without_an_archive_is_explained_alone(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/queues/orders", {"archive_retention_seconds": 0})
    await console.api.send(body=1)
    (message,) = await console.api.receive()
    await console.api.settle(message, "complete")
    page = await console.page(f"{MESSAGES}/1")
    assert ("<dt>Message id" in page, "completed" in page) == (False, True)


@pytest.mark.parametrize("number", ["2", "0", "x", "9" * 19, "1²"])
async def test_an_unknown_message_is_not_found(console: ConsoleServer, number: str) -> None:
    await console.api.send(body=1)
    for path in (f"{MESSAGES}/{number}", f"{MESSAGES}/{number}/body"):
        assert (await console.get(path)).status_code == 404


async def test_a_message_is_copied_as_a_command_and_as_a_program(console: ConsoleServer) -> None:
    page = await message_page(console, body={"it's": [1, True]}, subject="a", properties={"n": 1}, priority=7)
    text = html.unescape(page)
    assert "curl -s http://peeklock.test/v1/queues/orders/messages" in text
    program = text[text.index("import asyncio") : text.index("asyncio.run(main())")]
    compile(program, "program", "exec")
    assert """.send({"it's": [1, True]}, subject='a', priority=7, properties={'n': 1})""" in program


async def test_a_key_that_may_not_browse_sees_no_message(console_with_keys: ConsoleServer) -> None:
    api = console_with_keys.api
    everything = {"authorization": f"Bearer {await api.new_key(*Right, principal='admin')}"}
    for queue in ("orders", "payments"):
        await api.request("POST", f"/queues/{queue}/messages", {"body": 1}, headers=everything)
    await console_with_keys.sign_in(await api.new_key(Right.BROWSE, patterns=("orders",)))
    for path, status in ((MESSAGES, 200), ("/queues/payments/messages", 403)):
        for suffix in ("", "/1", "/1/body"):
            assert (await console_with_keys.get(path + suffix)).status_code == status


async def test_each_cell_of_a_row_that_is_stacked_on_a_narrow_screen_names_its_column(console: ConsoleServer) -> None:
    api = console.api
    for _ in range(2):
        await api.send(body=1, group_id="g")
    await api.settle(*await api.receive(), "dead-letter", reason="broken")
    await api.receive()
    for principal in ("admin", "shop"):
        made = await create_key(api.broker.store.keys, principal, Grant(frozenset(Right)), api.clock.now())
    await revoke_key(api.broker.store.keys, made.key.id)
    await api.request_json("PUT", "/queues/orders/consumers/web-1", {"state": "receiving"})
    tables = 0
    for path in ("/queues/orders", "/queues/orders/messages", "/queues/orders/dead-letters", "/keys"):
        for table in re.findall(r'<table class="(?:cards|stacked)">(.*?)</table>', await console.page(path), re.DOTALL):
            head, _, body = table.partition("</thead>")
            headings = set(re.findall(r">([^<>]+)</th>", head))
            cells = re.findall(r"<td([^>]*)>", body)
            labels = [
                re.findall(r'data-label="([^"]*)"', cell) for cell in cells if not re.search("check|action", cell)
            ]
            assert labels, path
            assert [label for label in labels if len(label) != 1 or label[0] not in headings] == [], path
            tables += 1
    assert tables == 7
