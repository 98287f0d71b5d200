"""Every operation of the server, the most frequent ones first."""

from app.api.endpoints import archive, health, index, keys, messages, queues, receiving, sending, settling
from app.api.http.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    sending.send_message,
    receiving.receive_messages,
    settling.complete_lock,
    settling.abandon_lock,
    settling.renew_lock,
    settling.dead_letter_lock,
    settling.defer_lock,
    settling.settle_messages,
    sending.send_batch,
    sending.send_raw,
    messages.browse_messages,
    messages.get_message,
    messages.get_message_body,
    messages.edit_message,
    messages.cancel_message,
    messages.redrive_dead_letters,
    queues.put_queue,
    queues.get_queue,
    queues.patch_queue,
    queues.delete_queue,
    queues.list_queues,
    queues.purge_queue,
    archive.list_batches,
    archive.trim_archive,
    keys.create_key,
    keys.list_keys,
    keys.revoke_key,
    index.read_index,
    health.check_live,
    health.check_ready,
    health.read_metrics,
)
