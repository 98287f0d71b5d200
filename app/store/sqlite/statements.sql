-- The statements that SQLite runs for every message. One thread is the only writer, so what a statement has read still
-- holds when the next statement of its transaction acts on it.

-- ---- sending ---------------------------------------------------------------------------------------------------------

-- served_queue: a row if a queue exists and this version knows its settings
SELECT 1
FROM queue
WHERE id = :id
  AND feature_level <= @feature_level;  -- fence: level

-- send: store a draft
INSERT INTO message (
    queue_id, state, home_state, priority, enqueued_at, available_at, expires_at,
    delivery_count, failure_count, lock_generation, message_id, group_id, headers, properties, body_kind, body,
    content_digest, in_group, shared_body_id, shared_body_bytes
)
SELECT
    :queue_id, CASE WHEN due.at > @now THEN 3 WHEN :in_group = 2 THEN 7 ELSE 1 END, 1, :priority,
    @now, due.at, due.at + :ttl,
    0, 0, 0, :message_id, :group_id, :headers, :properties, :body_kind, :body,
    :content_digest, CASE WHEN due.at <= @now THEN :in_group END, :shared_body_id, :shared_body_bytes
FROM (SELECT MAX(@now, COALESCE(:available_at, @now + :delay, 0)) AS at) AS due
RETURNING sequence_number, enqueued_at, state;

-- add_shared_body: store a body that messages of this transaction share
INSERT INTO shared_body (id, body) VALUES (:id, :body);

-- count_accepted: count messages of a queue that this transaction has stored; on SQLite one row a day adds up
INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted)
SELECT 0, id, @now / 86400000000, name, :accepted
FROM queue
WHERE id = :queue_id
ON CONFLICT (first_number, queue_id, day) DO UPDATE SET accepted = accepted_count.accepted + excluded.accepted;

-- first_receipt: the first receipt for a message id, within the window that the queue then had, with the state of the message now
SELECT sequence_number, enqueued_at,
    (SELECT m.state FROM message AS m WHERE m.sequence_number = recent_id.sequence_number)
FROM recent_id
WHERE queue_id = :queue_id
  AND message_id = :message_id
  AND remove_at > @now;  -- fence: time

-- save_receipt: save the receipt of a message id
INSERT INTO recent_id (queue_id, message_id, sequence_number, state, enqueued_at, remove_at)
VALUES (:queue_id, :message_id, :sequence_number, :state, :enqueued_at, :enqueued_at + :duplicate_window)
ON CONFLICT (queue_id, message_id) DO UPDATE
SET sequence_number = excluded.sequence_number,
    state = excluded.state,
    enqueued_at = excluded.enqueued_at,
    remove_at = excluded.remove_at;

-- correct_receipts: note that messages with these ids, whose groups had a free place, are available
UPDATE recent_id SET state = 1
WHERE (queue_id, message_id) IN (
    SELECT json_extract(value, '$.queue_id'), json_extract(value, '$.message_id') FROM json_each(:ids)
);

-- ---- receiving -------------------------------------------------------------------------------------------------------

-- next_available: the next messages of a queue in order of delivery, their weights, and the ids of their shared bodies
SELECT sequence_number, @weight, shared_body_id
FROM message
WHERE queue_id = :queue_id
  AND state = 1
  AND (expires_at IS NULL OR expires_at > @now)  -- fence: time
ORDER BY priority DESC, available_at, sequence_number
LIMIT :limit;

-- next_dead_lettered: the next messages of a dead-letter queue, their weights, and the ids of their shared bodies
SELECT sequence_number, @weight, shared_body_id
FROM message
WHERE queue_id = :queue_id
  AND state = 5
ORDER BY sequence_number
LIMIT :limit;

-- candidates: available messages after a position in the order of delivery, without their bodies
SELECT @metadata
FROM message
WHERE queue_id = :queue_id
  AND state = 1
  AND priority = :priority
  AND (available_at, sequence_number) > (:available_at, :sequence_number)
  AND (expires_at IS NULL OR expires_at > @now)
UNION ALL
SELECT @metadata
FROM message
WHERE queue_id = :queue_id
  AND state = 1
  AND priority < :priority
  AND (expires_at IS NULL OR expires_at > @now)
ORDER BY priority DESC, available_at, sequence_number
LIMIT :limit;

-- by_number: which of these messages are in this queue and state, and deliverable, their weights, and the ids of their shared bodies
SELECT sequence_number, @weight, shared_body_id
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :source  -- fence: state
  AND (state = 5 OR expires_at IS NULL OR expires_at > @now);  -- fence: time

-- lock: give messages to a receiver, each with a token of its own
--
-- Returns no shared body: in RETURNING, SQLite 3.40 takes `shared_body_id IS NULL` for false and searches no index.
UPDATE message
SET home_state = CASE WHEN home_state = 8 THEN 8 ELSE state END,
    state = 2,
    lock_token = fresh_secret(),
    locked_until = CASE
        WHEN :lock_duration > 43200000000 AND state <> 5 AND expires_at < @now + :lock_duration THEN expires_at
        ELSE @now + :lock_duration
    END,
    lock_generation = 0,
    receiver_id = :receiver_id,
    delivery_count = delivery_count + 1,
    first_delivered_at = COALESCE(first_delivered_at, @now),
    last_delivered_at = @now
WHERE sequence_number @in(:numbers)
RETURNING @stored_message;

-- ---- release of locks ------------------------------------------------------------------------------------------------

-- fence_holds: a row if a lock still passes the fence, with the group in which its message has a place
SELECT CASE WHEN in_group = 1 THEN group_id END
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND state = 2  -- fence: locked
  AND lock_token = :lock_token  -- fence: token
  AND (locked_until > @now OR :generation_above < -1)  -- fence: time
  AND lock_generation > :generation_above  -- fence: generation
  AND lock_generation <= :max_generation  -- fence: generation
  AND home_state <> 8  -- fence: offer
  AND (in_group IS NULL OR :knows_group = 1);  -- fence: group

-- lock_ended: a row if a lock has ended, by its time or by an expired generation; columns as above
SELECT CASE WHEN in_group = 1 THEN group_id END
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND state = 2  -- fence: locked
  AND lock_token = :lock_token  -- fence: token
  AND (
      locked_until <= @now  -- fence: time
      OR lock_generation = :generation_above  -- fence: generation
  )
  AND (in_group IS NULL OR :knows_group = 1);  -- fence: group

-- add_tombstones: leave the tombstone of a delivery that ends here, dated with the lock's end, at the latest now
INSERT INTO settlement (sequence_number, lock_token, queue_id, outcome, state, settled_at, remove_at)
SELECT sequence_number, lock_token, queue_id, :outcome, :state, MIN(locked_until, @now), @now + :tombstone_retention
FROM message
WHERE sequence_number = :sequence_number;

-- end_lock: remove a lock whose settlement this transaction has checked
UPDATE message
SET state = :state,
    in_group = CASE WHEN :state = 1 THEN in_group END,
    available_at = COALESCE(@now + :delay, available_at),
    failure_count = failure_count + :failures,
    delivery_count = COALESCE(:delivery_count, delivery_count),
    first_delivered_at = CASE WHEN :delivery_count = 0 THEN NULL ELSE first_delivered_at END,
    last_delivered_at = CASE WHEN :delivery_count = 0 THEN NULL ELSE last_delivered_at END,
    last_failure = COALESCE(:last_failure, last_failure),
    dead_letter_reason = COALESCE(:dead_letter_reason, dead_letter_reason),
    dead_letter_description = COALESCE(:dead_letter_description, dead_letter_description),
    dead_lettered_at = COALESCE(dead_lettered_at, CASE WHEN :dead_lettering = 1 THEN @now END),
    properties = COALESCE(:properties, properties),
    lock_token = NULL,
    locked_until = NULL,
    lock_generation = 0,
    receiver_id = NULL
WHERE sequence_number = :sequence_number;

-- locked_until: the time until which a message is locked
SELECT locked_until FROM message WHERE sequence_number = :sequence_number;

-- extend: extend a lock that has not ended, and the generation grows by one; or set its end, and the generation stays
UPDATE message
SET locked_until = CASE WHEN :is_exact = 1 THEN @now + :duration ELSE MAX(locked_until, @now + :duration) END,
    lock_generation = lock_generation + CASE WHEN :is_exact = 1 THEN 0 ELSE 1 END
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND state = 2  -- fence: locked
  AND lock_token = :lock_token  -- fence: token
  AND locked_until > @now  -- fence: time
  AND lock_generation > :expired_generation  -- fence: generation
  AND lock_generation <= :max_generation  -- fence: generation
  AND NOT EXISTS (SELECT 1 FROM queue WHERE id = queue_id AND take_locks_until >= last_delivered_at)  -- fence: revocation
RETURNING lock_generation, locked_until, @now;

-- ---- groups ----------------------------------------------------------------------------------------------------------

-- lock_groups: nothing to lock: only one thread writes
SELECT value FROM json_each(:buckets);

-- admissible: the first blocked message of each of these groups that has a free place, and its number of free places
SELECT m.sequence_number, m.queue_id, m.group_id, m.priority, head.room, @now
FROM (
    SELECT
        (
            SELECT b.sequence_number FROM message AS b
            WHERE b.in_group = 2 AND b.queue_id = entry.queue_id AND b.group_id = entry.group_id
            ORDER BY b.sequence_number LIMIT 1
        ) AS sequence_number,
        COALESCE((SELECT group_in_flight FROM queue WHERE id = entry.queue_id), :limit) - (
            SELECT COUNT(*) FROM message AS p
            WHERE p.in_group = 1 AND p.queue_id = entry.queue_id AND p.group_id = entry.group_id
        ) AS room
    FROM (
        SELECT json_extract(value, '$.queue_id') AS queue_id, json_extract(value, '$.group_id') AS group_id
        FROM json_each(:groups)
    ) AS entry
) AS head
JOIN message AS m ON m.sequence_number = head.sequence_number
WHERE head.room > 0;

-- ---- histories -------------------------------------------------------------------------------------------------------

-- record_ends: record how deliveries or messages ended, each with the receiver of the delivery, if their queues keep a history
INSERT INTO message_event (
    sequence_number, queue_id, happened_at, event, state, outcome, receiver_id, reason, delivery_count, remove_at
)
SELECT
    entry.sequence_number, q.id, @now, entry.event, entry.state, entry.outcome,
    (
        SELECT receiver_id FROM message_event AS e
        WHERE e.sequence_number = entry.sequence_number AND hex(e.lock_token) = entry.lock_token
        ORDER BY e.id DESC LIMIT 1
    ),
    entry.reason,
    (
        SELECT delivery_count FROM message_event AS e
        WHERE e.sequence_number = entry.sequence_number AND hex(e.lock_token) = entry.lock_token
        ORDER BY e.id DESC LIMIT 1
    ),
    @now + q.history_retention
FROM (
    SELECT
        json_extract(value, '$.sequence_number') AS sequence_number,
        json_extract(value, '$.queue_id') AS queue_id,
        json_extract(value, '$.lock_token') AS lock_token,
        json_extract(value, '$.event') AS event,
        json_extract(value, '$.state') AS state,
        json_extract(value, '$.outcome') AS outcome,
        json_extract(value, '$.reason') AS reason
    FROM json_each(:entries)
) AS entry
JOIN queue AS q ON q.id = entry.queue_id
WHERE q.history_retention IS NOT NULL;

-- ---- attempts --------------------------------------------------------------------------------------------------------

-- earlier_attempt: the answer of the first attempt with this key
SELECT fingerprint, answer
FROM attempt
WHERE attempt_key = :attempt_key
  AND remove_at > @now;  -- fence: time

-- save_attempt: save the answer of an attempt, replacing one that was due for removal
INSERT OR REPLACE INTO attempt (attempt_key, fingerprint, answer, remove_at)
VALUES (:attempt_key, :fingerprint, :answer, @now + :retention);

-- ---- counts of accepted messages ---------------------------------------------------------------------------------------

-- fold_accepted: add the changes of counts to the row of their queue and day
INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted, moved, unarchived)
SELECT 0, queue_id, day, MAX(queue), SUM(accepted), SUM(moved), SUM(unarchived)
FROM accepted_count
WHERE first_number > 0
GROUP BY queue_id, day
ON CONFLICT (first_number, queue_id, day) DO UPDATE
SET accepted = accepted_count.accepted + excluded.accepted,
    moved = accepted_count.moved + excluded.moved,
    unarchived = accepted_count.unarchived + excluded.unarchived;

-- delete_folded: delete the changes that this transaction has folded
DELETE FROM accepted_count WHERE first_number > 0;

-- ---- statements in SQLite's syntax -----------------------------------------------------------------------------------

-- highest_number: the last sequence number that was given out; 0 where there is none
SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'message';

-- highest_queue_id: the last id of a queue that was given out; 0 where there is none
SELECT COALESCE(MAX(seq), 0) FROM sqlite_sequence WHERE name = 'queue';

-- continue_numbers_at: give out no lower sequence number; a table without a message has no row yet
INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq)
VALUES ((SELECT rowid FROM sqlite_sequence WHERE name = 'message'), 'message', :first - 1);

-- continue_queue_ids_at: give out no lower id of a queue; a table without a queue has no row yet
INSERT OR REPLACE INTO sqlite_sequence (rowid, name, seq)
VALUES ((SELECT rowid FROM sqlite_sequence WHERE name = 'queue'), 'queue', :first - 1);

-- start_lock_version: invalidate the lock records of all queues
UPDATE queue SET lock_purges = :version;

-- serialize_key_creation: nothing to lock: only one thread writes
SELECT 1;

-- was_migrated: a row if a migration has recorded its revision here
SELECT 1 FROM sqlite_master WHERE name = 'alembic_version';
