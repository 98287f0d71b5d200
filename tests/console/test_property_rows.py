"""Properties are rows of a name, a type and a value, which keep every property as it is."""

import msgspec
import pytest

from app.console.property_rows import PropertyRow, json_of, property_rows, sent_rows
from app.domain.refusals import InvalidRequest
from tests.console.console_server import ConsoleServer

SUBSCRIPTION = "/topics/shop/subscriptions/eu"
PROPERTIES = (
    '{"region":"eu","count":17,"share":0.10,"is_new":true,"is_old":false,"none":null,"digits":"17","word":"true",'
    '"empty":"","lines":"a\\nb\\r\\"c\\\\","tab\\t":"x","quote":"\\"","large":1e300}'
)


def row_fields(*rows: tuple[str, str, str]) -> dict[str, list[str]]:
    """The fields that a form sends for rows."""
    names, types, values = zip(*rows, strict=True)
    return {"property_name": list(names), "property_type": list(types), "property_value": list(values)}


def test_rows_keep_every_property_as_it_is() -> None:
    rows = property_rows(PROPERTIES.encode())
    assert not [row for row in rows if any(character < " " for character in row.name + row.value)]
    assert json_of(rows) == msgspec.Raw(PROPERTIES.encode())


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (("", "text", "x"), "Give this property a name."),
        (("n", "number", "many"), "Write a number"),
        (("n", "number", ""), "Write a number"),
        (("n", "number", "NaN"), "Write a number"),
        (("n", "number", "1,5"), "Write a number"),
        (("n", "true or false", "yes"), "Write true or false."),
        (("n", "null", "0"), "Null has no value."),
        (("n", "list", "[]"), "one of these types"),
        (("n", "text with escapes", "\\x"), "This is not a text with escapes"),
        (("n", "text with escapes", '"'), "This is not a text with escapes"),
        (("first", "text", "x"), "Another row has this name."),
    ],
)
def test_a_row_that_makes_no_property_is_refused_at_its_place(row: tuple[str, str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        json_of([PropertyRow("first", "text", ""), PropertyRow(*row)])
    (fault,) = refused.value.field_errors
    assert fault.pointer.removeprefix("#") == "/property_1"
    assert sentence in fault.detail


def test_fields_that_make_no_rows_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        sent_rows([("property_name", "a"), ("property_type", "text")])


async def test_a_subscription_sets_the_properties_of_its_rows(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    rows = row_fields(
        ("from", "text", "shop"), ("", "text", ""), ("n", "number", "17"), ("old", "true or false", "false")
    )
    created = await console.post("/topics/shop/new-subscription", "/topics/shop/new-subscription", name="eu", **rows)
    assert "Subscription eu was created." in await console.following(created)
    found = await console.api.request_json("GET", SUBSCRIPTION)
    assert found["set_properties"] == {"from": "shop", "n": 17, "old": False}
    page = await console.page(SUBSCRIPTION)
    assert '<input name="property_value" value="shop" aria-label="Value of property 1"' in page
    assert "<option selected>number</option>" in page


async def test_a_row_that_is_refused_stays_and_says_why(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    rows = row_fields(("from", "text", "shop"), ("n", "number", "many"))
    refused = await console.post("/topics/shop/new-subscription", "", name="eu", **rows)
    assert refused.status_code == 422
    assert '<input name="property_value" value="many"' in refused.text
    assert 'id="fault-property_1" role="alert">Write a number' in refused.text
    assert (await console.api.request_json("GET", "/topics/shop/subscriptions"))["items"] == []


async def test_more_rows_are_added_and_nothing_is_created(console: ConsoleServer) -> None:
    await console.api.request_json("PUT", "/topics/shop", {})
    more = await console.post(
        "/topics/shop/new-subscription", "", name="eu", more_rows="true", **row_fields(("from", "text", "shop"))
    )
    assert more.status_code == 200
    assert more.text.count('name="property_name"') == 6
    assert 'value="shop"' in more.text
    assert (await console.api.request_json("GET", "/topics/shop/subscriptions"))["items"] == []
