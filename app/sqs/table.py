"""The table of actions of SQS: for each its endpoint, the struct of its request, the right that it needs, and its queue."""

from collections.abc import Mapping

from app.domain.access import ANY_RIGHT, Right
from app.sqs.actions import batches, messages, move_tasks, queues, tags
from app.sqs.call import Action, Service, of_name, of_new_name, of_none, of_source_arn, of_task, of_url
from app.sqs.errors import aws_error, topic_error
from app.sqs.protocol import QUEUES, TOPICS
from app.sqs.shapes import messages as message_shapes
from app.sqs.shapes import move_tasks as task_shapes
from app.sqs.shapes import queues as queue_shapes
from app.sqs.topics.table import TOPIC_ACTIONS

_DECLARED = (
    Action(queues.create_queue, queue_shapes.CreateQueue, Right.MANAGE, of_new_name),
    Action(queues.get_queue_url, queue_shapes.GetQueueUrl, ANY_RIGHT, of_name),
    Action(queues.list_queues, queue_shapes.ListQueues, Right.BROWSE, of_none, lists_own=True),
    Action(queues.get_queue_attributes, queue_shapes.GetQueueAttributes, ANY_RIGHT, of_url),
    Action(queues.set_queue_attributes, queue_shapes.SetQueueAttributes, Right.MANAGE, of_url),
    Action(queues.delete_queue, queue_shapes.DeleteQueue, Right.MANAGE, of_url),
    Action(queues.purge_queue, queue_shapes.PurgeQueue, Right.MANAGE, of_url),
    Action(queues.list_dead_letter_source_queues, queue_shapes.ListDeadLetterSourceQueues, Right.BROWSE, of_url),
    Action(queues.add_permission, queue_shapes.AddPermission, Right.MANAGE, of_url),
    Action(queues.remove_permission, queue_shapes.RemovePermission, Right.MANAGE, of_url),
    Action(tags.tag_queue, queue_shapes.TagQueue, Right.MANAGE, of_url),
    Action(tags.untag_queue, queue_shapes.UntagQueue, Right.MANAGE, of_url),
    Action(tags.list_queue_tags, queue_shapes.ListQueueTags, Right.BROWSE, of_url),
    Action(messages.send_message, message_shapes.SendMessage, Right.SEND, of_url),
    Action(batches.send_message_batch, message_shapes.SendMessageBatch, Right.SEND, of_url),
    Action(messages.receive_message, message_shapes.ReceiveMessage, Right.LISTEN, of_url),
    Action(messages.delete_message, message_shapes.DeleteMessage, Right.LISTEN, of_url),
    Action(batches.delete_message_batch, message_shapes.DeleteMessageBatch, Right.LISTEN, of_url),
    Action(messages.change_message_visibility, message_shapes.ChangeMessageVisibility, Right.LISTEN, of_url),
    Action(batches.change_message_visibility_batch, message_shapes.ChangeMessageVisibilityBatch, Right.LISTEN, of_url),
    Action(move_tasks.start_message_move_task, task_shapes.StartMessageMoveTask, Right.MANAGE, of_source_arn),
    Action(move_tasks.list_message_move_tasks, task_shapes.ListMessageMoveTasks, Right.MANAGE, of_source_arn),
    Action(move_tasks.cancel_message_move_task, task_shapes.CancelMessageMoveTask, Right.MANAGE, of_task),
)

ACTIONS: Mapping[str, Action] = {action.name: action for action in _DECLARED}

SERVICES: Mapping[str, Service] = {
    QUEUES: Service(ACTIONS, aws_error),
    TOPICS: Service(TOPIC_ACTIONS, topic_error),
}
"""The services by the names that signatures have."""
