"""Pages show every text that a sender gives a message, and a resubmission keeps it."""

import html
import re

from app.console.sender_texts import LABELS
from app.domain.message import SENDER_TEXTS
from tests.api.test_sender_texts import TEXTS
from tests.console.console_server import ConsoleServer
from tests.console.test_resubmission import resubmit


async def test_the_page_of_a_message_shows_every_text(console: ConsoleServer) -> None:
    await console.api.send(**TEXTS)
    page = await console.page("/queues/orders/messages/1")
    shown = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*?) ?<", page))
    assert {name: html.unescape(shown[LABELS[name]]) for name in SENDER_TEXTS} == TEXTS
    for snippet in ("curl", "python"):
        text = html.unescape(page.partition(f'id="{snippet}"')[2].partition("</pre>")[0])
        assert not [name for name in TEXTS if name not in ("message_id", "traceparent") and TEXTS[name] not in text]


async def test_a_resubmission_keeps_every_text_but_the_id(console: ConsoleServer) -> None:
    await console.api.send(body=1, **TEXTS)
    (message,) = await console.api.receive()
    await console.api.settle(message, "dead-letter", reason="bad")
    assert (await resubmit(console)).status_code == 303
    (again,) = await console.api.receive()
    assert {name for name in TEXTS if again[name] != TEXTS[name]} == {"message_id"}
