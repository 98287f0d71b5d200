"""Names of queues in URLs and ARNs, and the names that CreateQueue gives."""

from __future__ import annotations

import pytest

from app.domain.refusals import InvalidRequest, QueueNotFound, Refusal
from app.sqs.errors import MissingParameter
from app.sqs.queue_names import arn_of, check_new_name, is_fifo, name_of_arn, name_of_url, queue_url
from tests.walks import for_each

REFUSED_NEW_NAMES = [
    "", ".fifo", "a" * 81, "a" * 76 + ".fifo", "a.b", "a.fifo.fifo", "a.FIFO", "a b", "a/b", "ä", "a٣", "a\n",
    "-a", "a-", "_a", "a_", "-a.fifo",
]  # fmt: skip


@for_each("name", ["a", "A-b_9", "a" * 80, "a.fifo", "a-.fifo", "a" * 75 + ".fifo"])
def test_create_queue_accepts_names_of_sqs(name: str) -> None:
    check_new_name(name)


@for_each("name", REFUSED_NEW_NAMES, ids=repr)
def test_create_queue_refuses_other_names(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_new_name(name)


def test_the_suffix_makes_a_fifo_queue() -> None:
    assert is_fifo("a.fifo")
    assert not is_fifo("fifo")
    assert not is_fifo("a.fifo.b")


def test_an_arn_has_the_region_of_the_request() -> None:
    assert arn_of("orders", "eu-west-1") == "arn:aws:sqs:eu-west-1:000000000000:orders"
    assert name_of_arn(arn_of("orders.fifo", "eu-west-1")) == "orders.fifo"


@for_each("arn", ["arn:aws:sqs:us-east-1:123456789012:a.b", "arn:aws-cn:sqs:::a.b", "arn:aws:sqs:any:any:a.b"])
def test_only_the_name_in_an_arn_has_an_effect(arn: str) -> None:
    assert name_of_arn(arn) == "a.b"


@for_each(
    "arn",
    [
        "", "orders", "aws:sqs:r:0:orders", "arn:aws:sns:r:0:orders", "brn:aws:sqs:r:0:orders", "arn:aws:sqs:r:0:",
        "arn:aws:sqs:r:0:a:b", "arn:aws:sqs:r:orders", "arn:aws:sqs:r:0:-a", "arn:aws:sqs:r:0:a/b",
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_arn_of_a_queue_is_refused(arn: str) -> None:
    with pytest.raises(InvalidRequest):
        name_of_arn(arn)


def test_the_url_of_a_queue_leads_back_to_its_name() -> None:
    assert queue_url("orders", "http://h:8080") == "http://h:8080/000000000000/orders"
    url = queue_url("orders.fifo", "https://example.com/mq")
    assert url == "https://example.com/mq/000000000000/orders.fifo"
    assert name_of_url(url) == "orders.fifo"


@for_each(
    "url", ["/000000000000/a.b", "https://sqs.us-east-1.amazonaws.com/1/a.b", "http://h/a.b", "http://h/0/a.b?x=y#z"]
)
def test_only_the_last_segment_of_a_url_has_an_effect(url: str) -> None:
    assert name_of_url(url) == "a.b"


@for_each(
    ("url", "refusal"),
    [
        (None, MissingParameter),
        ("", MissingParameter),
        ("orders", InvalidRequest),
        ("http://orders", InvalidRequest),
        ("http://h/", InvalidRequest),
        ("http://h/0/orders/", InvalidRequest),
        ("http://[/0/orders", InvalidRequest),
        ("http://h/0/-orders", QueueNotFound),
        ("http://h/0/%6frders", QueueNotFound),
        ("http://h/0/" + "a" * 129, QueueNotFound),
    ],
)
def test_what_is_no_url_of_a_queue_is_refused(url: str | None, refusal: type[Refusal]) -> None:
    with pytest.raises(Refusal) as refused:
        name_of_url(url)
    assert type(refused.value) is refusal
