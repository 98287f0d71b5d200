-- The cold statements, in words that every engine understands.

-- ---- the tables ------------------------------------------------------------------------------------------------------

-- schema_revision: the migration that made the tables what they are
SELECT version_num FROM alembic_version;

-- database_id: what tells this database from every other one
SELECT id FROM broker;

-- ---- looking ---------------------------------------------------------------------------------------------------------

-- now: the store's clock
SELECT @now;

-- read: one message of a queue, in any state
SELECT @message
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id;  -- fence: queue

-- browse: messages of a queue in up to five states, by number; each state is walked in its own index range
SELECT @message
FROM message
WHERE sequence_number IN (
    SELECT sequence_number FROM (
        SELECT sequence_number FROM message
        WHERE queue_id = :queue_id AND state = :first AND sequence_number > :after
        ORDER BY sequence_number LIMIT :most
    ) AS in_first
    UNION ALL
    SELECT sequence_number FROM (
        SELECT sequence_number FROM message
        WHERE queue_id = :queue_id AND state = :second AND sequence_number > :after
        ORDER BY sequence_number LIMIT :most
    ) AS in_second
    UNION ALL
    SELECT sequence_number FROM (
        SELECT sequence_number FROM message
        WHERE queue_id = :queue_id AND state = :third AND sequence_number > :after
        ORDER BY sequence_number LIMIT :most
    ) AS in_third
    UNION ALL
    SELECT sequence_number FROM (
        SELECT sequence_number FROM message
        WHERE queue_id = :queue_id AND state = :fourth AND sequence_number > :after
        ORDER BY sequence_number LIMIT :most
    ) AS in_fourth
    UNION ALL
    SELECT sequence_number FROM (
        SELECT sequence_number FROM message
        WHERE queue_id = :queue_id AND state = :fifth AND sequence_number > :after
        ORDER BY sequence_number LIMIT :most
    ) AS in_fifth
)
ORDER BY sequence_number
LIMIT :most;

-- browse_metadata: the same messages without their bodies
@outlines(browse)

-- last_sequence_number: the highest sequence number of any message of any queue; null where there is none
SELECT MAX(sequence_number) FROM message;

-- read_many: messages of a queue by number, in whatever state
SELECT @message
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id
ORDER BY sequence_number;

-- read_metadata: the same messages without their bodies
@outlines(read_many)

-- locked_messages: the facts of locked messages
SELECT @held
FROM message
WHERE sequence_number @in(:numbers)
  AND state = 2;

-- still_locked: messages whose lock runs on
SELECT @message
FROM message
WHERE sequence_number @in(:numbers)
  AND state = 2
  AND locked_until > @now;  -- fence: time

-- tombstones: what is remembered of ended deliveries of these messages
SELECT @tombstone
FROM settlement
WHERE sequence_number @in(:numbers)
UNION ALL
SELECT sequence_number, lock_token, queue_id, outcome, NULL, settled_at
FROM archive
WHERE sequence_number @in(:numbers)
  AND lock_token IS NOT NULL;

-- delivered_since: a row for each trace of a delivery of a message after one that ended
SELECT 1
FROM message
WHERE sequence_number = :sequence_number
  AND last_delivered_at > :settled_at
UNION ALL
SELECT 1
FROM archive
WHERE sequence_number = :sequence_number
  AND last_delivered_at > :settled_at
UNION ALL
SELECT 1
FROM settlement
WHERE sequence_number = :sequence_number
  AND settled_at > :settled_at;

-- answered_attempt: the fingerprint that a key stands for, and what its attempt was answered
SELECT fingerprint, answer
FROM attempt
WHERE attempt_key = :key
  AND answer IS NOT NULL
  AND remove_at > @now;

-- expired_locks: locks whose time has passed, oldest first
SELECT @held
FROM message
WHERE locked_until <= @now  -- fence: time
  AND state = 2
ORDER BY locked_until
LIMIT :most
@skip_locked;

-- locks_of_queue: locks of one queue that were given until some time, whether or not they have ended since
SELECT @held
FROM message
WHERE queue_id = :queue_id
  AND state = 2
  AND last_delivered_at <= :given_until
ORDER BY sequence_number
LIMIT :most;

-- expired_messages: available, scheduled and deferred messages past their time to live
SELECT sequence_number, queue_id, state
FROM message
WHERE state IN (1, 3, 4)
  AND expires_at <= @now  -- fence: time
LIMIT :most
@skip_locked;

-- ---- unlocked messages -----------------------------------------------------------------------------------------------

-- unlocked_for_update: those of these messages that are still as they were seen, and nobody else's until the transaction ends
SELECT sequence_number
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND state <> 2  -- fence: locked
@skip_locked;

-- expired_for_update: the same, of those that are still past their time to live
SELECT sequence_number
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND state <> 2  -- fence: locked
  AND expires_at <= @now  -- fence: time
@skip_locked;

-- archive_messages: copy messages into the archive, each with its lock token if it has one
INSERT INTO archive (@archived, queue, outcome, settled_at, remove_at)
SELECT @m.archived, :queue, :outcome, clock.now, clock.now + :retention
FROM message AS m
CROSS JOIN (SELECT @now AS now) AS clock
WHERE m.sequence_number @in(:numbers);

-- count_unarchived: count messages that leave their queue without a row in the archive
INSERT INTO accepted_count (first_number, queue_id, day, queue, unarchived)
SELECT MIN(sequence_number), queue_id, enqueued_at / 86400000000, :queue, COUNT(*)
FROM message
WHERE sequence_number @in(:numbers)
  AND content_digest IS NOT NULL
GROUP BY queue_id, enqueued_at / 86400000000
ON CONFLICT (first_number, queue_id, day) DO UPDATE SET unarchived = accepted_count.unarchived + excluded.unarchived;

-- count_moved: count messages that come to a queue or, where the sign is -1, leave it for another one
INSERT INTO accepted_count (first_number, queue_id, day, queue, moved)
SELECT MIN(sequence_number), :queue_id, enqueued_at / 86400000000, :queue, :sign * COUNT(*)
FROM message
WHERE sequence_number @in(:numbers)
  AND content_digest IS NOT NULL
GROUP BY enqueued_at / 86400000000
ON CONFLICT (first_number, queue_id, day) DO UPDATE SET moved = accepted_count.moved + excluded.moved;

-- delete_messages: take messages out of their queue
DELETE FROM message
WHERE sequence_number @in(:numbers);

-- dead_letter: dead-letter messages
UPDATE message
SET state = 5,
    dead_letter_reason = :reason,
    dead_letter_description = NULL,
    dead_lettered_at = @now
WHERE sequence_number @in(:numbers);

-- redrive: make messages available anew, at the end of a queue's order
UPDATE message
SET queue_id = :to_queue_id,
    state = 1,
    available_at = @now,
    expires_at = NULL,
    delivery_count = 0,
    failure_count = 0,
    first_delivered_at = NULL,
    last_delivered_at = NULL,
    last_failure = NULL,
    dead_letter_reason = NULL,
    dead_letter_description = NULL,
    dead_lettered_at = NULL
WHERE sequence_number @in(:numbers);

-- unchanged_for_update: the clock, if a message is still as it was seen; then nobody else's until the transaction ends
SELECT @now
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND priority = :priority  -- fence: state
  AND available_at = :available_at  -- fence: state
  AND delivery_count = :delivery_count  -- fence: state
  AND failure_count = :failure_count  -- fence: state
  AND lock_generation = :lock_generation  -- fence: state
  AND COALESCE(properties, '') = :properties  -- fence: state
  AND state <> 2  -- fence: locked
@for_update;

-- reschedule: another due time; what is left of the time to live moves with it
UPDATE message
SET state = :state,
    expires_at = expires_at + (:available_at - available_at),
    available_at = :available_at
WHERE sequence_number = :sequence_number;

-- change_priority: another priority
UPDATE message
SET priority = :priority
WHERE sequence_number = :sequence_number;

-- change_properties: other properties
UPDATE message
SET properties = :properties
WHERE sequence_number = :sequence_number;

-- ---- the schedule ----------------------------------------------------------------------------------------------------

-- due: scheduled messages whose time has come, earliest first
SELECT sequence_number, queue_id
FROM message
WHERE state = 3
  AND available_at <= @now  -- fence: time
ORDER BY available_at
LIMIT :most
@skip_locked;

-- promote: make messages available, in their place by due time
UPDATE message
SET state = 1
WHERE sequence_number @in(:numbers);

-- until_next_due: how long until the next scheduled message is due
SELECT available_at - @now
FROM message
WHERE state = 3
ORDER BY available_at
LIMIT 1;

-- ---- forgetting ------------------------------------------------------------------------------------------------------

-- delete_expired_settlements: tombstones past their time
DELETE FROM settlement
WHERE (sequence_number, lock_token) IN (
    SELECT sequence_number, lock_token FROM settlement WHERE remove_at <= @now ORDER BY remove_at LIMIT :most
);

-- delete_expired_attempts: answers of attempts past their time
DELETE FROM attempt
WHERE attempt_key IN (SELECT attempt_key FROM attempt WHERE remove_at <= @now ORDER BY remove_at LIMIT :most);

-- delete_expired_recent_ids: message ids whose window has passed, and with it every send that may have begun within it
DELETE FROM recent_id
WHERE (queue_id, message_id) IN (
    SELECT queue_id, message_id FROM recent_id WHERE remove_at <= @now - 60000000 ORDER BY remove_at LIMIT :most
);

-- orphaned_queues: ids that messages name and no queue has; one index look-up for each id, however many messages
WITH RECURSIVE named (id) AS (
    SELECT MIN(queue_id) FROM message
    UNION ALL
    SELECT (SELECT MIN(queue_id) FROM message WHERE queue_id > named.id) FROM named WHERE named.id IS NOT NULL
)
SELECT id
FROM named
WHERE id IS NOT NULL
  AND id NOT IN (SELECT id FROM queue);

-- orphans: messages of a queue that is gone, locked ones too, with the bytes of each
SELECT sequence_number, LENGTH(body)
FROM message
WHERE queue_id = :queue_id
ORDER BY state, sequence_number
LIMIT :most
@skip_locked;

-- deleted_queue: the name and the retention that a queue had
SELECT name, archive_retention FROM deleted_queue WHERE id = :id;

-- queue_name_from_counts: the name under which messages of a queue were counted
SELECT queue FROM accepted_count WHERE queue_id = :id LIMIT 1;

-- delete_expired_deleted_queues: queues that were deleted long ago and of which no message is left
DELETE FROM deleted_queue
WHERE deleted_at <= @now - :keep
  -- One look for each queue: an anti-join may walk all messages.
  AND (SELECT 1 FROM message WHERE message.queue_id = deleted_queue.id AND message.state > 0 LIMIT 1) IS NULL;

-- ---- the archive's batches -------------------------------------------------------------------------------------------

-- first_unsealed: of the unsealed messages not to be removed before some time, the one to be removed first
SELECT sequence_number, remove_at, @now - settled_at
FROM archive
WHERE export_batch IS NULL
  AND remove_at >= :since
ORDER BY export_batch, remove_at
LIMIT 1;

-- try_lock_sealing: lock the one row that every database has, unless somebody else holds it at this moment
SELECT version_num FROM alembic_version @skip_locked;

-- unsealed: unsealed messages to be removed within a stretch of time, and nobody else's until the transaction ends
SELECT sequence_number, remove_at, LENGTH(body)
FROM archive
WHERE export_batch IS NULL  -- fence: sealed
  AND remove_at >= :since
  AND remove_at <= :until
ORDER BY export_batch, remove_at
LIMIT :most
@skip_locked;

-- next_batch: the number that follows the last one
SELECT COALESCE(MAX(number), 0) + 1, @now FROM export_batch;

-- seal: put messages that this transaction holds into a batch
UPDATE archive
SET export_batch = :batch
WHERE sequence_number @in(:numbers);

-- add_batch: note what a batch is made of
INSERT INTO export_batch (@batch)
VALUES (:number, :row_count, :digest, :sealed_at, :remove_at, :removed_at, :removal, :digest_version);

-- batches: sealed batches by number
SELECT @batch FROM export_batch WHERE number > :after ORDER BY number LIMIT :most;

-- batch_for_update: when a batch was removed, null if it is there, and its digest; locked until the transaction ends
SELECT removed_at, digest, digest_version FROM export_batch WHERE number = :number @for_update;

-- batch_numbers: the messages of a batch, and how long ago each ended
SELECT sequence_number, @now - settled_at FROM archive WHERE export_batch = :number;

-- batch_digests: the digests of the messages of a batch by ascending number, and how long ago each ended
SELECT @row_digest, @now - settled_at
FROM archive
WHERE export_batch = :number
ORDER BY +sequence_number;

-- expired_batch: a batch past its time whose messages are there, and nobody else's until the transaction ends
SELECT number
FROM export_batch
WHERE removed_at IS NULL  -- fence: state
  AND remove_at <= @now  -- fence: time
ORDER BY removed_at, remove_at
LIMIT 1
@skip_locked;

-- delete_batch: remove the messages of a batch
DELETE FROM archive WHERE export_batch = :number;

-- mark_batch_removed: a batch is gone, and why
UPDATE export_batch
SET removed_at = @now,
    removal = :removal
WHERE number = :number;

-- delete_expired_batches: batches that were removed long ago
DELETE FROM export_batch
WHERE number IN (
    SELECT number FROM export_batch
    WHERE removed_at <= @now - :keep
      AND number < :before
    ORDER BY removed_at LIMIT :most
);

-- ---- queues ----------------------------------------------------------------------------------------------------------

-- create_queue: a new queue, unless there is one of this name
INSERT INTO queue (name, settings, version, created_at, updated_at)
SELECT :name, :settings, 1, clock.now, clock.now
FROM (SELECT @now AS now) AS clock
WHERE 1 = 1  -- or SQLite would read the next word as the condition of a join
ON CONFLICT DO NOTHING;

-- serialize_queue_creation: lock a row that every database has, so that queues are counted and made one after the other
SELECT id FROM broker @for_update;

-- count_queues: how many queues there are
SELECT COUNT(*) FROM queue;

-- find_queue: a queue by name
SELECT @queue FROM queue WHERE name = :name;

-- queue_by_id: a queue by id
SELECT @queue FROM queue WHERE id = :id;

-- page_of_queues: queues by name, after a name
SELECT @queue FROM queue WHERE name > :after ORDER BY name LIMIT :most;

-- newest_lock: when the last of a queue's locks was given, 0 where there is none
SELECT COALESCE(MAX(last_delivered_at), 0) FROM message WHERE queue_id = :id AND state = 2;

-- change_queue: other settings for a queue as it was seen, and whether that takes the locks given until now; those that
-- were given before the clock was set back lie ahead of it
UPDATE queue
SET settings = :settings,
    version = version + 1,
    updated_at = @now,
    take_locks_until = CASE
        WHEN :takes_locks = 0 THEN take_locks_until
        WHEN :newest_lock > @now THEN :newest_lock
        ELSE @now
    END
WHERE id = :id
  AND version = :version;  -- fence: version

-- count_lock_purge: locks of a queue were taken by a purge
UPDATE queue SET lock_purges = lock_purges + 1 WHERE id = :id;

-- revocations: queues whose locks, as given until some time, are to be taken
SELECT id, take_locks_until
FROM queue
WHERE take_locks_until IS NOT NULL
ORDER BY take_locks_until
LIMIT :most;

-- end_revocation: the locks of a queue that were given until some time have been taken
UPDATE queue
SET take_locks_until = NULL
WHERE id = :id
  AND take_locks_until = :given_until;

-- delete_queue: remove a queue as it was seen
DELETE FROM queue
WHERE id = :id
  AND version = :version;  -- fence: version

-- add_deleted_queue: keep what the messages of a deleted queue need
INSERT INTO deleted_queue (id, name, archive_retention, deleted_at)
VALUES (:id, :name, :archive_retention, @now);

-- count_messages: how many messages of these queues are in each state
SELECT queue_id, state, COUNT(*)
FROM message
WHERE queue_id @in(:queue_ids)
GROUP BY queue_id, state;

-- total_messages: how many messages a queue holds
SELECT COUNT(*) FROM message WHERE queue_id = :queue_id;

-- oldest_available: how long the first available message of these queues has waited; one look-up per priority
SELECT q.id, @now - MIN(
    (SELECT MIN(m.available_at) FROM message AS m WHERE m.queue_id = q.id AND m.state = 1 AND m.priority = p.priority)
)
FROM queue AS q
CROSS JOIN (
    SELECT 0 AS priority UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
) AS p
WHERE q.id @in(:queue_ids)
GROUP BY q.id;

-- ---- API keys --------------------------------------------------------------------------------------------------------

-- serialize_key_creation: lock the one row that every database has, so that additions of keys are counted one after the other
SELECT version_num FROM alembic_version @for_update;

-- live_keys: how many live keys a principal has
SELECT COUNT(*)
FROM api_key
WHERE principal = :principal
  AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > @now);

-- add_key: store a key
INSERT INTO api_key (id, principal, secret_hash, rights, created_at, expires_at, last_used_at, revoked_at)
VALUES (:id, :principal, :secret_hash, :rights, :created_at, :expires_at, :last_used_at, :revoked_at);

-- key_by_hash: the key whose secret has this digest
SELECT @api_key FROM api_key WHERE secret_hash = :secret_hash;

-- list_keys: all keys, oldest first
SELECT @api_key FROM api_key ORDER BY created_at, id;

-- revoke_key: end a live key
UPDATE api_key
SET revoked_at = @now
WHERE id = :id
  AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > @now);

-- record_key_use: a key was used now
UPDATE api_key SET last_used_at = @now WHERE id = :id;

-- any_live_key: a row if there is a live key
SELECT 1
FROM api_key
WHERE revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > @now)
LIMIT 1;
