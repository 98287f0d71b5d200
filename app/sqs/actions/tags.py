"""Tags of queues, which are labels."""

from functools import partial

from app.sqs.actions.settings import change_settings
from app.sqs.call import Call
from app.sqs.queue_labels import tags_of, with_tags, without_tags
from app.sqs.shapes import queues as shapes
from app.sqs.shapes.members import Nothing


async def tag_queue(call: Call[shapes.TagQueue]) -> Nothing:
    """Set tags of a queue. Other tags stay."""
    await change_settings(call, partial(with_tags, tags=call.body.tags))
    return Nothing()


async def untag_queue(call: Call[shapes.UntagQueue]) -> Nothing:
    """Remove tags of a queue."""
    await change_settings(call, partial(without_tags, keys=call.body.tag_keys))
    return Nothing()


async def list_queue_tags(call: Call[shapes.ListQueueTags]) -> shapes.QueueTags:
    """Return the tags of a queue."""
    return shapes.QueueTags(tags=tags_of((await call.queue()).settings))
