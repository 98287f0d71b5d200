"""The options for the fields of requests.

Written by `python3 dev.py openapi` from the shapes of requests. Do not edit it.
"""

from app.cli.field_options import FieldOption

SEND_MESSAGE = (
    FieldOption(
        ("body",),
        "json",
        "The body, any JSON value. A string with a content type of text is stored as its characters. Give this or body_base64, or none for a message without a body.",
    ),
    FieldOption(("body_base64",), "text", "The body as bytes in base64. Give this or body."),
    FieldOption(("content_type",), "text", "The media type of the body."),
    FieldOption(
        ("message_id",),
        "text",
        "The id of the message. The server creates a missing one. A queue that detects duplicates stores an id once.",
    ),
    FieldOption(
        ("correlation_id",), "text", "The id of what this message answers or belongs to. The broker does not read it."
    ),
    FieldOption(("subject",), "text", "What the message is about, for receivers and filters."),
    FieldOption(("reply_to",), "text", "Where to send an answer. The broker does not read it."),
    FieldOption(("to",), "text", "Whom the message is for. The broker does not read it."),
    FieldOption(("group_id",), "text", "The group of the message."),
    FieldOption(("priority",), "int", "Higher is received first."),
    FieldOption(("properties",), "json", "Names and values of the application, for receivers and filters."),
    FieldOption(("ttl_seconds",), "float", "How long the message lives, from its due time."),
    FieldOption(("available_at",), "text", "When the message can be received. Give this or delay_seconds."),
    FieldOption(
        ("delay_seconds",), "float", "When the message can be received, in seconds from now. Give this or available_at."
    ),
    FieldOption(
        ("durability",),
        "text",
        "volatile: answered before the message is stored, so that a crash may lose it.",
        choices=("durable", "volatile"),
    ),
    FieldOption(
        ("delivery",),
        "text",
        "synchronous: wait until a receiver has settled the message.",
        choices=("asynchronous", "synchronous"),
    ),
    FieldOption(
        ("wait_seconds",),
        "float",
        "How long a synchronous send waits for a receiver to settle the message, in seconds.",
    ),
    FieldOption(
        ("traceparent",),
        "text",
        "The W3C trace context of the message. Without it, the message gets that of the request.",
    ),
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
PUBLISH_MESSAGE = (
    FieldOption(
        ("body",),
        "json",
        "The body, any JSON value. A string with a content type of text is stored as its characters. Give this or body_base64, or none for a message without a body.",
    ),
    FieldOption(("body_base64",), "text", "The body as bytes in base64. Give this or body."),
    FieldOption(("content_type",), "text", "The media type of the body."),
    FieldOption(
        ("message_id",),
        "text",
        "The id of the message. The server creates a missing one. A queue that detects duplicates stores an id once.",
    ),
    FieldOption(
        ("correlation_id",), "text", "The id of what this message answers or belongs to. The broker does not read it."
    ),
    FieldOption(("subject",), "text", "What the message is about, for receivers and filters."),
    FieldOption(("reply_to",), "text", "Where to send an answer. The broker does not read it."),
    FieldOption(("to",), "text", "Whom the message is for. The broker does not read it."),
    FieldOption(("group_id",), "text", "The group of the message."),
    FieldOption(("priority",), "int", "Higher is received first."),
    FieldOption(("properties",), "json", "Names and values of the application, for receivers and filters."),
    FieldOption(("ttl_seconds",), "float", "How long the message lives, from its due time."),
    FieldOption(("available_at",), "text", "When the message can be received. Give this or delay_seconds."),
    FieldOption(
        ("delay_seconds",), "float", "When the message can be received, in seconds from now. Give this or available_at."
    ),
    FieldOption(
        ("durability",),
        "text",
        "volatile: answered before the message is stored, so that a crash may lose it.",
        choices=("durable", "volatile"),
    ),
    FieldOption(
        ("delivery",),
        "text",
        "synchronous: wait until a receiver has settled the message.",
        choices=("asynchronous", "synchronous"),
    ),
    FieldOption(
        ("wait_seconds",),
        "float",
        "How long a synchronous send waits for a receiver to settle the message, in seconds.",
    ),
    FieldOption(
        ("traceparent",),
        "text",
        "The W3C trace context of the message. Without it, the message gets that of the request.",
    ),
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
COMPLETE_LOCK = (
    FieldOption(
        ("reply",),
        "json",
        "The reply to a sender that waits for the settlement: any JSON value. If no sender waits, it is discarded.",
    ),
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
ABANDON_LOCK = (
    FieldOption(
        ("delay_seconds",),
        "float",
        "When the message can be received again, in seconds from now. Default: the queue's retry delay.",
    ),
    FieldOption(("count",), "bool", "Whether this counts as a failed delivery."),
    FieldOption(("reason",), "text", "A short machine-readable word, kept with the message."),
    FieldOption(("properties",), "json", "Changes to the properties: they are merged, and null removes one."),
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
DEFER_LOCK = (
    FieldOption(("properties",), "json", "Changes to the properties: they are merged, and null removes one."),
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
RELEASE_LOCK = (
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
DEAD_LETTER_LOCK = (
    FieldOption(("reason",), "text", "A short machine-readable word, kept with the message."),
    FieldOption(("description",), "text", "A human-readable sentence, kept with the message."),
    FieldOption(("properties",), "json", "Changes to the properties: they are merged, and null removes one."),
    FieldOption(("transaction_id",), "text", "An open transaction: this takes effect with its commit, or not at all."),
)
RENEW_LOCK = (
    FieldOption(("lock_seconds",), "float", "How long a lock lasts."),
    FieldOption(
        ("exact",),
        "bool",
        "Whether the lock ends exactly at the end of lock_seconds, even if that is earlier than before.",
    ),
)
QUEUE_SETTINGS_BODY = (
    FieldOption(
        ("lock_duration_seconds",),
        "float",
        "How long a receiver has a message to itself. When its lock ends, the message is delivered again, unless it was settled or the lock was renewed.",
    ),
    FieldOption(("max_delivery_count",), "int", "A message is dead-lettered after this number of failures."),
    FieldOption(
        ("default_ttl_seconds",),
        "float",
        "How long a message without ttl_seconds lives, from its due time. Null: messages do not expire.",
    ),
    FieldOption(("dead_letter_on_expiry",), "bool", "Whether an expired message is dead-lettered. Otherwise it ends."),
    FieldOption(
        ("duplicate_detection_window_seconds",),
        "float",
        "How long a message id is kept, so that a repeated send stores no message; null: not at all.",
    ),
    FieldOption(
        ("retry", "kind"), "text", "The kind of retry.", choices=("none", "fixed", "linear", "exponential", "list")
    ),
    FieldOption(("retry", "delay_seconds"), "float", "The delay after each failure, in seconds."),
    FieldOption(("retry", "first_seconds"), "float", "The delay after the first failure, in seconds."),
    FieldOption(
        ("retry", "step_seconds"), "float", "How much longer the delay is after each further failure, in seconds."
    ),
    FieldOption(("retry", "max_seconds"), "float", "The longest delay, in seconds."),
    FieldOption(("retry", "factor"), "float", "Each delay is this many times the previous one."),
    FieldOption(
        ("retry", "jitter"), "float", "The largest share of a delay that is subtracted at random, from 0 to 1."
    ),
    FieldOption(
        ("retry", "delays_seconds"),
        "numbers",
        "The delay after each failure, in order, in seconds. The last one applies to all further failures.",
    ),
    FieldOption(("archive_retention_seconds",), "float", "How long ended messages are archived; 0: not at all."),
    FieldOption(("max_message_bytes",), "int", "The largest size of body and properties together."),
    FieldOption(
        ("max_messages",),
        "int",
        "The largest number of messages in the queue. Further sends are refused. Null: any number.",
    ),
    FieldOption(
        ("status",),
        "text",
        "active, or which of sends and receives are refused. A change ends the locks that receivers hold.",
        choices=("active", "send_disabled", "receive_disabled", "disabled"),
    ),
    FieldOption(
        ("redelivery",),
        "text",
        "on_request: a message whose lock ends stays with its receiver until the receiver recovers it.",
        choices=("automatic", "on_request"),
    ),
    FieldOption(("description",), "text", "Text for operators."),
    FieldOption(
        ("group_in_flight",),
        "int",
        "How many messages of a group_id are available or locked at the same time. The others are blocked. 1: first in, first out in each group, one receiver at a time; null: groups have no effect.",
    ),
    FieldOption(("history",), "bool", "Whether each transition of a message is recorded, from then on."),
    FieldOption(
        ("forward_to",),
        "text",
        "The queue that stores the messages that are sent to this one; null: this one. Messages that are already here stay.",
    ),
    FieldOption(
        ("forward_dead_letters_to",),
        "text",
        "The queue to which dead-lettered messages are moved, with their reason and the property dead_letter_queue; null: they stay. What that queue does not accept stays too.",
    ),
    FieldOption(
        ("default_delay_seconds",),
        "float",
        "How long a message without delay_seconds or available_at waits before it can be received; null: not at all. With the delivery synchronous it does not wait.",
    ),
    FieldOption(
        ("default_wait_seconds",),
        "float",
        "How long a receive without wait_seconds waits for the first message; null: not at all. The server caps it.",
    ),
    FieldOption(
        ("labels",),
        "json",
        "Texts by name, for operators and programs. They have no effect on messages. Together they have at most 16384 bytes of JSON.",
    ),
)
TOPIC_SETTINGS_BODY = (
    FieldOption(("description",), "text", "Text for operators."),
    FieldOption(
        ("labels",),
        "json",
        "Texts by name, for operators and programs. They have no effect on messages. Together they have at most 16384 bytes of JSON.",
    ),
)
SUBSCRIPTION_SETTINGS_BODY = (
    FieldOption(
        ("target_queue",),
        "text",
        "The queue that takes the copies. Default: {topic}.{subscription}, created if it does not exist.",
    ),
    FieldOption(
        ("filter",),
        "text",
        "A CEL expression over message, of at most 1024 bytes. A filter can read these fields: message_id, content_type, correlation_id, subject, reply_to, to, group_id, traceparent, sequence_number, state, priority, enqueued_at, available_at, expires_at, first_delivered_at, delivery_count, failure_count, redelivered, last_failure, dead_letter_reason, dead_letter_description, dead_lettered_at, body_bytes and properties. Times are timestamps: message.enqueued_at < timestamp('2030-01-01T00:00:00Z'). A missing value or a type mismatch does not match. A filter compares single values. It reads fields (message.subject) and properties (message.properties.region, message.properties['region']). It tests for a name ('region' in message.properties) or for a value in a list of texts and numbers (message.priority in [1, 2]). It can call contains, double, duration, endsWith, getDate, getDayOfMonth, getDayOfWeek, getDayOfYear, getFullYear, getHours, getMilliseconds, getMinutes, getMonth, getSeconds, has, int, size, startsWith, string, timestamp, uint. It has at most 4 additions and 128 operators, brackets and commas. Only the filter of a subscription reads members of a body that is a JSON object (message.body.order.total, message.body['order']). Their names count like operators.",
    ),
    FieldOption(("set_properties",), "json", "The properties to set on each copy."),
    FieldOption(("remove_properties",), "texts", "Names of properties that the copies do not have."),
    FieldOption(
        ("labels",),
        "json",
        "Texts by name, for operators and programs. They have no effect on messages. Together they have at most 16384 bytes of JSON.",
    ),
)
