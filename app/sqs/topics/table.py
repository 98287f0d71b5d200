"""The table of actions of SNS: for each its endpoint, the struct of its request, the right that it needs, and its topic."""

from collections.abc import Mapping

from app.domain.access import Right
from app.sqs.call import Action, of_none
from app.sqs.shapes import topics as shapes
from app.sqs.topics import listing, publishing, subscriptions, topics
from app.sqs.topics.names import of_published, of_resource_arn, of_subscription_arn, of_topic_arn, of_topic_name

_DECLARED = (
    Action(topics.create_topic, shapes.CreateTopic, Right.MANAGE, of_topic_name),
    Action(topics.delete_topic, shapes.DeleteTopic, Right.MANAGE, of_topic_arn),
    Action(topics.list_topics, shapes.ListTopics, Right.BROWSE, of_none, lists_own=True),
    Action(topics.get_topic_attributes, shapes.GetTopicAttributes, Right.BROWSE, of_topic_arn),
    Action(topics.set_topic_attributes, shapes.SetTopicAttributes, Right.MANAGE, of_topic_arn),
    Action(topics.tag_resource, shapes.TagResource, Right.MANAGE, of_resource_arn),
    Action(topics.untag_resource, shapes.UntagResource, Right.MANAGE, of_resource_arn),
    Action(topics.list_tags_for_resource, shapes.ListTagsForResource, Right.BROWSE, of_resource_arn),
    Action(subscriptions.subscribe, shapes.Subscribe, Right.MANAGE, of_topic_arn),
    Action(subscriptions.unsubscribe, shapes.Unsubscribe, Right.MANAGE, of_subscription_arn),
    Action(listing.list_subscriptions, shapes.ListSubscriptions, Right.BROWSE, of_none, lists_own=True),
    Action(listing.list_subscriptions_by_topic, shapes.ListSubscriptionsByTopic, Right.BROWSE, of_topic_arn),
    Action(
        subscriptions.get_subscription_attributes,
        shapes.GetSubscriptionAttributes,
        Right.BROWSE,
        of_subscription_arn,
    ),
    Action(
        subscriptions.set_subscription_attributes,
        shapes.SetSubscriptionAttributes,
        Right.MANAGE,
        of_subscription_arn,
    ),
    Action(publishing.publish_message, shapes.Publish, Right.SEND, of_published),
    Action(publishing.publish_batch, shapes.PublishBatch, Right.SEND, of_topic_arn),
)

TOPIC_ACTIONS: Mapping[str, Action] = {action.name: action for action in _DECLARED}
