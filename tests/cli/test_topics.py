"""`peeklock topic ...`, `peeklock subscription ...` and `peeklock publish` at a real server."""

from __future__ import annotations

from tests.cli.conftest import CommandLine


def test_a_topic_is_created_changed_listed_and_deleted(command_line: CommandLine) -> None:
    (made,) = command_line.read_json("topic", "create", "news", "--set", "description=first")
    assert (made["name"], made["description"]) == ("news", "first")
    assert "second" in command_line.run_ok("topic", "update", "news", "--set", "description=second")
    assert "news" in [item["name"] for item in command_line.read_json("topic", "list")]
    assert command_line.run_ok("topic", "list").split()[-3:] == ["news", "second", "discarded"]
    (labelled,) = command_line.read_json("topic", "update", "news", '--labels={"team": "payments"}')
    assert (labelled["description"], labelled["labels"]) == ("second", {"team": "payments"})
    command_line.run_ok("queue", "create", "waiting")
    assert "stored" in command_line.run_ok("queue", "show", "waiting")
    assert command_line.read_json("topic", "delete", "news", "--yes") == [{"deleted": "news"}]
    assert command_line.run_refused("topic", "delete", "news", "--yes").startswith("topic-not-found: ")


def test_a_published_message_reaches_the_queues_of_subscriptions(command_line: CommandLine) -> None:
    command_line.run_ok("topic", "create", "prices")
    command_line.run_ok("subscription", "create", "prices", "all")
    settings = ("--set", "filter=message.body_bytes > 100", "--set", 'set_properties={"a": 1}')
    (made,) = command_line.read_json("subscription", "create", "prices", "large", *settings)
    assert (made["target_queue"], made["filter"], made["set_properties"]) == (
        "prices.large",
        "message.body_bytes > 100",
        {"a": 1},
    )
    assert "to 1 queue\n" in command_line.run_ok("publish", "prices", "small")
    (changed,) = command_line.read_json("subscription", "update", "prices", "large", "--set", "filter=null")
    assert changed["filter"] is None
    (labelled,) = command_line.read_json("subscription", "update", "prices", "large", '--labels={"team": "a"}')
    assert labelled["labels"] == {"team": "a"}
    (answer,) = command_line.read_json("publish", "prices", "small")
    assert answer["matched"] == 2
    assert "prices.large" in command_line.run_ok("subscription", "list", "prices")
    (tested,) = command_line.read_json("subscription", "test", "prices", "large", "--queue", "prices.all")
    assert tested["matches"] == [True, True]
    assert command_line.run_ok("subscription", "test", "prices", "large").split()[-2:] == ["3", "yes"]
    assert command_line.read_json("subscription", "delete", "prices", "large") == [{"deleted": "large"}]
    assert len(command_line.read_json("browse", "prices.large")) == 1


def test_a_published_message_has_the_properties_that_filters_read(command_line: CommandLine) -> None:
    command_line.run_ok("topic", "create", "weather")
    wanted = "filter=message.properties.region == 'eu' && message.properties.unit == 'a=b'"
    command_line.run_ok("subscription", "create", "weather", "eu", "--set", wanted)
    properties = ("--property", "region=eu", "--property", "unit=a=b")
    (answer,) = command_line.read_json("publish", "weather", "rain", *properties)
    assert answer["matched"] == 1
    assert "to 0 queues" in command_line.run_ok("publish", "weather", "rain")
    assert "NAME=VALUE" in command_line.run("publish", "weather", "rain", "--property", "region").stderr
