"""Attributes of subscriptions: a filter, a property for copies that are not raw, and labels with what a client has sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from app.domain.message import check_properties
from app.domain.refusals import InvalidRequest
from app.domain.suggestions import did_you_mean
from app.domain.topic import Subscription, SubscriptionSettings, check_set_properties
from app.sqs.filter_policy.policy_text import read_policy, stored_policy
from app.sqs.filter_policy.translation import ATTRIBUTES, SCOPES, filter_of
from app.sqs.labels import RESERVED, check_labels_size
from app.sqs.notification import TOPIC_PROPERTY
from app.sqs.queue_names import ACCOUNT, arn_of
from app.sqs.setting_texts import boolean_of_any_case, one_of
from app.sqs.topic_names import subscription_arn, topic_arn
from app.sqs.xml_text import quoted

RAW = "RawMessageDelivery"
POLICY = "FilterPolicy"
SCOPE = "FilterPolicyScope"
_SETTABLE = (RAW, POLICY, SCOPE)
_REASONS: Mapping[str, str] = {
    "RedrivePolicy": "A copy is in its queue once Publish has answered. Set the RedrivePolicy of the queue.",
    "DeliveryPolicy": "A copy is in its queue once Publish has answered, so no delivery is tried again.",
    "SubscriptionRoleArn": "This server does not deliver to Firehose.",
    "ReplayPolicy": "This server does not replay messages of topics.",
}
"""Attributes that promise what this server does not do, and the sentence that says so. Only an empty value is accepted."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def new_subscription_settings(topic: str, queue: str, attributes: Mapping[str, str]) -> SubscriptionSettings:
    """Return the settings of a subscription that Subscribe makes. Refuses as `with_subscription_attributes` does."""
    settings = with_raw_delivery(SubscriptionSettings(queue), topic, is_raw=False)
    return with_subscription_attributes(settings, topic, attributes)


def with_subscription_attributes(
    settings: SubscriptionSettings, topic: str, attributes: Mapping[str, str]
) -> SubscriptionSettings:
    """Return the settings with other values of attributes. What no attribute names stays.

    Refuses with `InvalidRequest` an attribute that cannot be set, a value that this server does not accept, and another
    scope for a filter that is no policy. Refuses with `FilterPolicyLimitExceeded` a policy that is too large.
    """
    for attribute, value in attributes.items():
        _check_known(attribute, value)
    if RAW in attributes:
        settings = with_raw_delivery(settings, topic, is_raw=boolean_of_any_case(RAW, attributes[RAW]))
    if POLICY not in attributes and SCOPE not in attributes:
        return settings
    scope = one_of(SCOPE, attributes.get(SCOPE, _scope_of(settings)) or ATTRIBUTES, SCOPES)
    policy = attributes.get(POLICY)
    return _with_scope(settings, scope) if policy is None else _with_policy(settings, policy, scope)


def subscription_attributes(topic: str, subscription: Subscription, region: str) -> dict[str, str]:
    """Return what GetSubscriptionAttributes answers.

    A policy is left out if the filter is another one, which then was set through the API of this server.
    """
    settings = subscription.settings
    texts = {
        "SubscriptionArn": subscription_arn(topic, subscription.name, region),
        "TopicArn": topic_arn(topic, region),
        "Owner": ACCOUNT,
        "Protocol": "sqs",
        "Endpoint": arn_of(settings.target_queue, region),
        "ConfirmationWasAuthenticated": "true",
        "PendingConfirmation": "false",
        RAW: "false" if _is_enveloped(settings, topic) else "true",
    }
    if policy := _policy_of(settings):
        texts |= {POLICY: policy, SCOPE: _scope_of(settings)}
    return texts


def same_subscription_attributes(existing: SubscriptionSettings, wanted: SubscriptionSettings, topic: str) -> bool:
    """Return whether two subscriptions of a topic have the same attributes, queue and filter.

    Labels and properties that were set through the API are no attributes.
    """
    return _compared(existing, topic) == _compared(wanted, topic)


def with_raw_delivery(settings: SubscriptionSettings, topic: str, *, is_raw: bool) -> SubscriptionSettings:
    """Return the settings with or without the property by which a receive makes envelopes.

    Refuses with `InvalidRequest` a subscription that sets too many other properties.
    """
    properties = _decode(settings.set_properties) if settings.set_properties else {}
    properties.pop(TOPIC_PROPERTY, None)
    if not is_raw:
        properties[TOPIC_PROPERTY] = topic
    encoded = msgspec.json.encode(properties) if properties else b""
    check_properties(len(properties), len(encoded), "/set_properties")
    check_set_properties(encoded)
    return replace(settings, set_properties=encoded)


def _compared(settings: SubscriptionSettings, topic: str) -> tuple[object, ...]:
    queue, is_enveloped = settings.target_queue, _is_enveloped(settings, topic)
    return queue, is_enveloped, settings.filter, _policy_of(settings), _scope_of(settings)


def _with_scope(settings: SubscriptionSettings, scope: str) -> SubscriptionSettings:
    """Return the settings with the same policy in another scope, whose filter then replaces that of the old scope."""
    if scope == _scope_of(settings):
        return settings
    policy = _policy_of(settings)
    if policy is None:
        raise InvalidRequest(f"The filter of this subscription was set through the API. Set {POLICY} to replace it.")
    return _with_policy(settings, policy, scope)


def _with_policy(settings: SubscriptionSettings, policy: str, scope: str) -> SubscriptionSettings:
    labels = {name: text for name, text in settings.labels.items() if name not in (RESERVED + POLICY, RESERVED + SCOPE)}
    members = read_policy(policy) if policy else {}
    if members:
        labels[RESERVED + POLICY] = stored_policy(members)
    if scope != ATTRIBUTES:
        labels[RESERVED + SCOPE] = scope
    check_labels_size(labels)
    return replace(settings, filter=filter_of(members, scope), labels=labels)


def _policy_of(settings: SubscriptionSettings) -> str | None:
    """Return the policy of a subscription, empty without a filter; None if its filter was set in another way."""
    policy = settings.labels.get(RESERVED + POLICY, "")
    if settings.filter is None:
        return ""
    try:
        members = read_policy(policy)
        return policy if filter_of(members, _scope_of(settings)) == settings.filter else None
    except InvalidRequest:
        return None


def _scope_of(settings: SubscriptionSettings) -> str:
    stored = settings.labels.get(RESERVED + SCOPE)
    return stored if stored in SCOPES else ATTRIBUTES


def _is_enveloped(settings: SubscriptionSettings, topic: str) -> bool:
    return bool(settings.set_properties) and _decode(settings.set_properties).get(TOPIC_PROPERTY) == topic


def _check_known(attribute: str, value: str) -> None:
    if attribute in _REASONS:
        if value:
            raise InvalidRequest(f"{attribute} cannot have this value. {_REASONS[attribute]}")
    elif attribute not in _SETTABLE:
        raise InvalidRequest(
            f"A subscription has no attribute {quoted(attribute)} that can be set.{did_you_mean(attribute, _SETTABLE)}"
        )
