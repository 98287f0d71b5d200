-- The cold statements, in SQL that every engine understands.

-- ---- the tables ------------------------------------------------------------------------------------------------------

-- schema_revision: the migration that the tables are at
SELECT version_num FROM alembic_version;

-- database_id: the id that distinguishes this database from every other one
SELECT id FROM broker;

-- ---- reads ----------------------------------------------------------------------------------------------------------

-- now: the store's clock
SELECT @now;

-- read: one message of a queue, in any state
SELECT @message
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id;  -- fence: queue

-- browse: messages of a queue in up to six states, by number; each state is read in its own index range
SELECT @m.message
FROM (
    SELECT * FROM (
        SELECT sequence_number FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = :first_state AND sequence_number > :after
        ORDER BY sequence_number LIMIT :limit
    ) AS in_first
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = :second_state AND sequence_number > :after
        ORDER BY sequence_number LIMIT :limit
    ) AS in_second
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = :third_state AND sequence_number > :after
        ORDER BY sequence_number LIMIT :limit
    ) AS in_third
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = :fourth_state AND sequence_number > :after
        ORDER BY sequence_number LIMIT :limit
    ) AS in_fourth
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = :fifth_state AND sequence_number > :after
        ORDER BY sequence_number LIMIT :limit
    ) AS in_fifth
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = :sixth_state AND sequence_number > :after
        ORDER BY sequence_number LIMIT :limit
    ) AS in_sixth
    ORDER BY sequence_number
    LIMIT :limit
) AS chosen
@then_join message AS m @index(PRIMARY) ON m.sequence_number = chosen.sequence_number
ORDER BY chosen.sequence_number;

-- browse_metadata: the same messages without their bodies
@metadata_of(browse)

-- last_sequence_number: the highest sequence number of any message of any queue; null where there is none
SELECT MAX(sequence_number) FROM message;

-- newest_in_state: the highest sequence numbers of the messages of a queue in one state
SELECT sequence_number
FROM message
WHERE queue_id = :queue_id AND state = :state AND state > 0
ORDER BY sequence_number DESC
LIMIT :limit;

-- read_many: messages of a queue by number, in any state
SELECT @message
FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id
ORDER BY sequence_number;

-- read_metadata: the same messages without their bodies
@metadata_of(read_many)

-- states_of: the states of those of these messages that are in a queue
SELECT sequence_number, state FROM message @index(PRIMARY) WHERE sequence_number @in(:numbers);

-- locked_messages: the facts of locked messages
SELECT @locked_message
FROM message
WHERE sequence_number @in(:numbers)
  AND @unindexed(state) = 2;

-- locked_message_id: the message id of a message, if this token locks it
SELECT message_id
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND lock_token = :lock_token;  -- fence: token

-- still_locked: messages whose lock has not expired
SELECT @message
FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers)
  AND @unindexed(state) = 2
  AND @unindexed(locked_until) > @now;  -- fence: time

-- tombstones: the records of ended deliveries of these messages
SELECT @tombstone
FROM settlement
WHERE sequence_number @in(:numbers)
  AND @replicated
UNION ALL
SELECT sequence_number, lock_token, queue_id, outcome, NULL, settled_at
FROM archive
WHERE sequence_number @in(:numbers)
  AND lock_token IS NOT NULL
  AND @replicated;

-- delivered_since: a row for each trace of a delivery of a message later than the ended one
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

-- ---- explanations ----------------------------------------------------------------------------------------------------

-- read_facts: one message of a queue, in any state, without its body
SELECT @facts
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id;  -- fence: queue

-- locked_facts: the first locked messages of a queue, without their bodies
SELECT @facts
FROM message @index(message_by_state)
WHERE queue_id = :queue_id
  AND state = 2
ORDER BY sequence_number
LIMIT :limit;

-- read_end: how a message left its queue; a tombstone with a state belongs to a message that stayed
SELECT outcome, settled_at, receiver_id
FROM archive
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
UNION ALL
SELECT outcome, settled_at, NULL
FROM settlement
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND state IS NULL;

-- waiting_settlements: settlements of these messages that wait for a commit, with their transactions
SELECT joined.sequence_number, joined.lock_token, joined.outcome, opened.expires_at, opened.id, opened.principal
FROM transaction_member AS joined
JOIN message_transaction AS opened ON opened.id = joined.transaction_id
WHERE joined.sequence_number @in(:numbers);

-- count_ahead: the number of available messages before a position in the order of delivery, up to a limit
SELECT COUNT(*)
FROM (
    SELECT sequence_number FROM message
    WHERE queue_id = :queue_id
      AND state = 1
      AND priority > :priority
    UNION ALL
    SELECT sequence_number FROM message
    WHERE queue_id = :queue_id
      AND state = 1
      AND priority = :priority
      AND (available_at, sequence_number) < (:available_at, :sequence_number)
    LIMIT :limit
) AS ahead;

-- first_in_flight: the first message in flight in a group, without its body
SELECT @facts
FROM message @index(message_group)
WHERE in_group = 1
  AND queue_id = :queue_id
  AND group_id = :group_id
ORDER BY sequence_number
LIMIT 1;

-- count_blocked_ahead: the number of messages of a group that are blocked before a sequence number, up to a limit
SELECT COUNT(*)
FROM (
    SELECT sequence_number FROM message @index(message_group)
    WHERE in_group = 2
      AND queue_id = :queue_id
      AND group_id = :group_id
      AND sequence_number < :sequence_number
    LIMIT :limit
) AS ahead;

-- next_due_at: the earliest due time among the first due messages of all queues and the first scheduled ones of a queue
SELECT MIN(available_at)
FROM (
    SELECT available_at FROM (
        SELECT queue_id, available_at FROM message @index(message_due)
        WHERE state = 3 ORDER BY available_at LIMIT :limit
    ) AS first_due
    WHERE queue_id = :queue_id
    UNION ALL
    SELECT available_at FROM (
        SELECT available_at FROM message @index(message_by_state)
        WHERE queue_id = :queue_id AND state = 3 ORDER BY sequence_number LIMIT :limit
    ) AS first_sent
) AS due;

-- ---- attempts --------------------------------------------------------------------------------------------------------

-- await_replication: make the end of this transaction wait for synchronous standbys
SELECT @replicated AS replicated;

-- answered_attempt: the fingerprint that belongs to a key, and the saved answer of its attempt
SELECT fingerprint, answer
FROM attempt
WHERE attempt_key = :attempt_key
  AND answer IS NOT NULL
  AND remove_at > @now
  AND @replicated;

-- expired_locks: locks past their time, oldest first
@ended_locks
ORDER BY locked_until
LIMIT :limit
@skip_locked;

-- expired_locks_elsewhere: the same, for messages that are of none of these groups
@ended_locks
  AND NOT @in_groups(:groups)
ORDER BY locked_until
LIMIT :limit
@skip_locked;

-- @ended_locks: locks past their time
SELECT @locked_message
FROM message @index(message_lock_end)
WHERE locked_until <= @now  -- fence: time
  AND state = 2
  AND queue_id NOT IN @newer_queues  -- fence: level

-- locks_of_queue: locks of one queue that were granted until some time, whether or not they have ended since
SELECT @locked_message
FROM message
WHERE queue_id = :queue_id
  AND state = 2
  AND last_delivered_at <= :granted_until
ORDER BY sequence_number
LIMIT :limit;

-- expired_messages: available, scheduled, deferred and blocked messages past their time to live; 8 if a sender waits
@expired_unlocked
LIMIT :limit
@skip_locked;

-- expired_elsewhere: the same, for messages that are of none of these groups
@expired_unlocked
  AND NOT @in_groups(:groups)
LIMIT :limit
@skip_locked;

-- @expired_unlocked: the messages of `expired_messages`
SELECT sequence_number, queue_id, state, home_state
FROM message
WHERE state IN (1, 3, 4, 7)
  AND expires_at <= @now  -- fence: time
  AND queue_id NOT IN @newer_queues  -- fence: level

-- ---- recovery by a receiver ------------------------------------------------------------------------------------------

-- held_by_receiver: locks of a receiver that have not ended, in order of delivery; locked until the transaction ends
SELECT sequence_number, lock_token, lock_generation, home_state, expires_at, @now, @weight
FROM message
WHERE queue_id = :queue_id  -- fence: queue
  AND state = 2  -- fence: locked
  AND receiver_id = :receiver_id  -- fence: receiver
  AND locked_until > @now  -- fence: time
ORDER BY priority DESC, available_at, sequence_number
LIMIT :limit
@skip_locked;

-- supersede: leave the tombstones of deliveries that the same receiver gets again
INSERT INTO settlement (sequence_number, lock_token, queue_id, outcome, state, settled_at, remove_at)
SELECT sequence_number, lock_token, queue_id, :outcome, state, :settled_at, :remove_at
FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers);

-- lock_again: give a message another token, for the receiver that holds it
UPDATE message
SET lock_token = :lock_token,
    locked_until = :locked_until,
    lock_generation = 0,
    delivery_count = delivery_count + :deliveries,
    last_delivered_at = :locked_at
WHERE sequence_number = :sequence_number;

-- ---- unlocked messages -----------------------------------------------------------------------------------------------

-- unlocked_for_update: lock those of these messages that are unlocked and unchanged, until the transaction ends
SELECT sequence_number
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND state <> 2  -- fence: locked
@skip_locked;

-- movable_for_update: the same, for messages within their time to live whose senders do not wait
SELECT sequence_number
FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND home_state <> 8  -- fence: offer
  AND (expires_at IS NULL OR expires_at > @now)  -- fence: time
@skip_locked;

-- movable_messages: those of these messages that a move may take; another transaction may hold them
SELECT sequence_number
FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id
  AND (state = 5 OR state IN (1, 7) AND home_state <> 8 AND (expires_at IS NULL OR expires_at > @now));

-- expired_for_update: the same, for messages that are still past their time to live
SELECT sequence_number
FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND state <> 2  -- fence: locked
  AND expires_at <= @now  -- fence: time
@skip_locked;

-- archive_messages: copy messages into the archive, each with its lock token if it has one
INSERT INTO archive (@archived, queue, outcome, settled_at, remove_at, export_batch)
SELECT @m.archived, :queue, :outcome, clock.now, clock.now + :retention, 0
FROM message AS m
CROSS JOIN (SELECT @now AS now) AS clock
WHERE m.sequence_number @in(:numbers);

-- add_unsealed: mark messages of the archive as not sealed
INSERT INTO archive_seal (sequence_number, remove_at)
SELECT sequence_number, remove_at
FROM archive @index(PRIMARY)
WHERE sequence_number @in(:numbers);

-- add_restorable: mark messages of the archive as restorable
INSERT INTO restorable (sequence_number, queue, settled_at, remove_at)
SELECT sequence_number, queue, settled_at, remove_at
FROM archive
WHERE sequence_number @in(:numbers);

-- count_unarchived: count messages that leave their queue without a row in the archive
INSERT INTO accepted_count (first_number, queue_id, day, queue, unarchived)
SELECT MIN(sequence_number), queue_id, enqueued_at / 86400000000, :queue, COUNT(*)
FROM message
WHERE sequence_number @in(:numbers)
  AND content_digest IS NOT NULL
GROUP BY queue_id, enqueued_at / 86400000000
ON CONFLICT (first_number, queue_id, day) DO UPDATE SET unarchived = accepted_count.unarchived + excluded.unarchived;

-- count_moved: count messages that enter a queue or, if the sign is -1, leave it for another one
INSERT INTO accepted_count (first_number, queue_id, day, queue, moved)
SELECT MIN(sequence_number), :queue_id, enqueued_at / 86400000000, :queue, :sign * COUNT(*)
FROM message
WHERE sequence_number @in(:numbers)
  AND content_digest IS NOT NULL
GROUP BY enqueued_at / 86400000000
ON CONFLICT (first_number, queue_id, day) DO UPDATE SET moved = accepted_count.moved + excluded.moved;

-- delete_messages: delete messages from their queue
DELETE FROM message
WHERE sequence_number @in(:numbers);

-- dead_letter: dead-letter messages
UPDATE message
SET state = 5,
    in_group = NULL,
    dead_letter_reason = :reason,
    dead_letter_description = NULL,
    dead_lettered_at = @now
WHERE sequence_number @in(:numbers);

-- redrive: make messages available again, at the end of a queue's order
UPDATE message
SET queue_id = :to_queue_id,
    state = 1,
    in_group = NULL,
    available_at = @now,
    expires_at = NULL,
    delivery_count = 0,
    failure_count = 0,
    first_delivered_at = NULL,
    last_delivered_at = NULL,
    last_failure = NULL,
    dead_letter_reason = CASE WHEN :keeps_reason = 1 THEN dead_letter_reason END,
    dead_letter_description = CASE WHEN :keeps_reason = 1 THEN dead_letter_description END,
    dead_lettered_at = CASE WHEN :keeps_reason = 1 THEN dead_lettered_at END
WHERE sequence_number @in(:numbers);

-- hold_unchanged_queue: a row if a queue is unchanged; held until the transaction ends. None if another transaction holds it
SELECT id
FROM queue
WHERE id = :id
  AND version = :version  -- fence: version
@skip_locked;

-- properties_of: the properties of messages that this transaction has locked
SELECT sequence_number, properties FROM message WHERE sequence_number @in(:numbers);

-- unchanged_for_update: the clock, if a message is unlocked and unchanged; locks it until the transaction ends
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

-- reschedule: set another due time; the rest of the time to live moves with it
UPDATE message
SET state = :state,
    in_group = CASE WHEN :is_scheduled = 0 THEN in_group END,
    expires_at = expires_at + (:available_at - available_at),
    available_at = :available_at
WHERE sequence_number = :sequence_number;

-- change_priority: set another priority
UPDATE message
SET priority = :priority
WHERE sequence_number = :sequence_number;

-- change_properties: set other properties
UPDATE message
SET properties = :properties
WHERE sequence_number = :sequence_number;

-- ---- messages whose sender waits for the settlement -------------------------------------------------------------------

-- mark_offered: let a message that this transaction has stored return to no state
UPDATE message SET home_state = 8 WHERE sequence_number = :sequence_number;

-- add_offer: store that the sender of a message waits for its outcome
INSERT INTO offer (sequence_number, queue, remove_at)
SELECT :sequence_number, name, @now + :retention
FROM queue
WHERE id = :queue_id;

-- need_level: leave a queue to servers of a feature level
UPDATE queue
SET feature_level = :feature_level
WHERE id = :id
  AND feature_level < :feature_level;

-- offer_for_update: the lock of an offered message, held until the transaction ends
SELECT lock_generation, locked_until > @now
FROM message
WHERE sequence_number = :sequence_number
  AND queue_id = :queue_id  -- fence: queue
  AND lock_token = :lock_token  -- fence: token
  AND home_state = 8  -- fence: offer
@skip_locked;

-- message_for_update: a row if a message is in a queue, in any state; held until the transaction ends
SELECT sequence_number FROM message WHERE sequence_number = :sequence_number @for_update;

-- open_offers: those of these messages whose senders wait, and the queue of each
SELECT sequence_number, queue FROM offer WHERE sequence_number @in(:numbers) AND outcome IS NULL;

-- end_offers: record how messages end that this transaction deletes
UPDATE offer
SET outcome = :outcome,
    reply = :reply,
    delivery_count = COALESCE(
        (SELECT m.delivery_count FROM message AS m WHERE m.sequence_number = offer.sequence_number), 0
    )
WHERE sequence_number @in(:numbers);

-- end_deliveries: leave the tombstones of deliveries that end with their messages
INSERT INTO settlement (sequence_number, lock_token, queue_id, outcome, state, settled_at, remove_at)
SELECT m.sequence_number, m.lock_token, m.queue_id, :outcome, NULL, clock.now, clock.now + :tombstone_retention
FROM message AS m
CROSS JOIN (SELECT @now AS now) AS clock
WHERE m.sequence_number @in(:numbers)
  AND m.lock_token IS NOT NULL;

-- read_offer: what became of an offered message
SELECT outcome, delivery_count, reply
FROM offer
WHERE sequence_number = :sequence_number
  AND CASE WHEN outcome IS NULL THEN TRUE ELSE @replicated END;

-- ended_outcome: how a message left its queue; a tombstone with a state belongs to a message that stayed
SELECT outcome FROM archive WHERE sequence_number = :sequence_number AND @replicated
UNION ALL
SELECT outcome FROM settlement WHERE sequence_number = :sequence_number AND state IS NULL AND @replicated;

-- delete_expired_offers: forget the outcomes of synchronous sends past their time, unless a receiver holds the message
@delete_first(offer, sequence_number)
WHERE remove_at <= @now
  AND (SELECT m.state FROM message AS m WHERE m.sequence_number = offer.sequence_number) IS NULL
ORDER BY remove_at
LIMIT :limit;

-- ---- the schedule ----------------------------------------------------------------------------------------------------

-- due: scheduled messages that are due, earliest first
@due_messages
ORDER BY available_at
LIMIT :limit
@skip_locked;

-- due_elsewhere: the same, for messages that are of none of these groups
@due_messages
  AND NOT @in_groups(:groups)
ORDER BY available_at
LIMIT :limit
@skip_locked;

-- @due_messages: scheduled messages that are due
SELECT sequence_number, queue_id, group_id
FROM message @index(message_due)
WHERE state = 3
  AND available_at <= @now  -- fence: time
  AND queue_id NOT IN @newer_queues  -- fence: level

-- promote: make messages available, ordered by due time
UPDATE message
SET state = 1
WHERE sequence_number @in(:numbers);

-- until_next_due: the time until the next scheduled message is due
SELECT available_at - @now
FROM message
WHERE state = 3
  AND queue_id NOT IN @newer_queues  -- fence: level
ORDER BY available_at
LIMIT 1;

-- ---- groups ----------------------------------------------------------------------------------------------------------
--
-- A plan made early would read every blocked message by `in_group`, so most conditions on it are not indexed.

-- lock_groups: lock groups, each by its row, until the transaction ends
SELECT bucket FROM group_lock WHERE bucket @in(:buckets) ORDER BY bucket @for_update;

-- admit: give places to blocked messages, behind those that are available
UPDATE message @index(PRIMARY)
SET state = 1,
    in_group = 1,
    available_at = :available_at
WHERE sequence_number @in(:numbers)
  AND @unindexed(in_group) = 2;  -- or it was taken away since it was found

-- placed_messages: those of these messages that have a place
SELECT sequence_number FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers) AND @unindexed(in_group) = 1;

-- block: let messages that have just become available enter their groups, blocked
UPDATE message
SET state = 7,
    in_group = 2
WHERE sequence_number @in(:numbers)
  AND group_id IS NOT NULL
  AND queue_id IN (SELECT id FROM queue WHERE group_in_flight IS NOT NULL);

-- blocked_messages: those of these messages that are blocked, and their groups
SELECT sequence_number, queue_id, group_id FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers) AND @unindexed(in_group) = 2;

-- available_in_group: available messages with a place in a group, in order of delivery
SELECT sequence_number
FROM message @index(message_group)
WHERE in_group = 1
  AND queue_id = :queue_id
  AND group_id = :group_id
  AND @unindexed(state) = 1
  AND (expires_at IS NULL OR expires_at > @now)
ORDER BY priority DESC, available_at, sequence_number
LIMIT :limit;

-- group_ids: the groups of these messages, in any state
SELECT sequence_number, group_id FROM message WHERE sequence_number @in(:numbers);

-- groups_of: the groups in which these messages have places
SELECT DISTINCT queue_id, group_id FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers) AND @unindexed(in_group) = 1;

-- queues_to_admit: queues whose setting of groups has changed, and the group after which to go on
SELECT id, admit_after, version, group_in_flight IS NULL
FROM queue
WHERE admit_after IS NOT NULL
  AND feature_level <= @feature_level;  -- fence: level

-- blocked_groups: groups of a queue that have a blocked message, after a group; one index look-up per group
WITH RECURSIVE blocked (group_id, number) AS (
    SELECT MIN(group_id), 1
    FROM message
    WHERE in_group = 2
      AND queue_id = :queue_id
      AND group_id > :after
    UNION ALL
    SELECT (
        SELECT MIN(group_id)
        FROM message
        WHERE in_group = 2
          AND queue_id = :queue_id
          AND group_id > blocked.group_id
    ), number + 1
    FROM blocked
    WHERE blocked.group_id IS NOT NULL
      AND number < :limit
)
SELECT group_id FROM blocked WHERE group_id IS NOT NULL;

-- continue_after: record after which group to go on, or that all are done
UPDATE queue
SET admit_after = :admit_after
WHERE id = :id
  AND admit_after = :after
  AND version = :version;  -- or the setting has changed again

-- blocked_in_queue: the first blocked messages of a queue, if it has no limit now
SELECT sequence_number
FROM message @index(message_group)
WHERE in_group = 2
  AND queue_id = :queue_id
  AND (SELECT group_in_flight FROM queue WHERE id = :queue_id) IS NULL
ORDER BY group_id, sequence_number
LIMIT :limit;

-- blocked_for_update: lock those of these messages that are blocked and that no other transaction has locked
SELECT sequence_number FROM message @index(PRIMARY)
WHERE sequence_number @in(:numbers) AND @unindexed(in_group) = 2 @skip_locked;

-- release_blocked: make messages available that no group limits any more
UPDATE message @index(PRIMARY)
SET state = 1,
    in_group = NULL,
    available_at = @now
WHERE sequence_number @in(:numbers);

-- ---- histories -------------------------------------------------------------------------------------------------------

-- record_events: record one event of each of these messages, as they are now, if their queues keep a history
INSERT INTO message_event (
    sequence_number, queue_id, happened_at, event, state, lock_token, receiver_id, reason, delivery_count, remove_at
)
SELECT
    m.sequence_number, m.queue_id, @now, :event, m.state, m.lock_token, m.receiver_id, :reason,
    CASE WHEN m.state = 2 THEN m.delivery_count END, @now + q.history_retention
FROM message AS m @index(PRIMARY)
@then_join queue AS q @index(PRIMARY) ON q.id = m.queue_id
WHERE m.sequence_number @in(:numbers)
  AND q.history_retention IS NOT NULL;

-- history: events of a message, after an event, if the message was in this queue last
SELECT @event
FROM message_event
WHERE sequence_number = :sequence_number
  AND queue_id > 0
  AND id > :after
  -- The queue of its last event.
  AND (SELECT e.queue_id FROM message_event AS e WHERE e.sequence_number = :sequence_number AND e.queue_id > 0 ORDER BY e.id DESC LIMIT 1) = :queue_id  -- fence: queue
ORDER BY id
LIMIT :limit;

-- minutes_of_history: the newest events of all queues, those of one counted by minute, event and outcome
SELECT happened_at - happened_at % 60000000, event, outcome, COUNT(*)
FROM message_event
-- Not MAX(id): planned for an empty table, that reads every entry of the index.
WHERE id > (SELECT last.id FROM message_event AS last WHERE last.id > 0 ORDER BY last.id DESC LIMIT 1) - :newest
  AND queue_id = :queue_id
GROUP BY 1, 2, 3
ORDER BY 1;

-- expired_events: events past their time, and whether each is kept: its message is in a queue or the archive, or has later events
SELECT
    id,
    CASE
        WHEN (SELECT 1 FROM message WHERE message.sequence_number = expired.sequence_number) IS NOT NULL THEN 1
        WHEN (SELECT 1 FROM archive WHERE archive.sequence_number = expired.sequence_number) IS NOT NULL THEN 1
        WHEN (
            SELECT remove_at FROM message_event
            WHERE message_event.sequence_number = expired.sequence_number AND queue_id > 0
            ORDER BY id DESC
            LIMIT 1
        ) > expired.now THEN 1
        ELSE 0
    END
FROM (
    SELECT id, sequence_number, @now AS now
    FROM message_event
    WHERE remove_at <= @now  -- fence: time
    ORDER BY remove_at
    LIMIT :limit
) AS expired;

-- keep_events: look at these events again later
UPDATE message_event SET remove_at = @now + :period WHERE id @in(:ids);

-- delete_events: delete these events
DELETE FROM message_event WHERE id @in(:ids);

-- ---- transactions ----------------------------------------------------------------------------------------------------

-- count_open_transactions: the number of open transactions, counted up to a limit, and how many a principal has of these
SELECT COUNT(*), COUNT(CASE WHEN counted.principal = :principal THEN 1 END)
FROM (SELECT principal FROM message_transaction WHERE state = 1 LIMIT :limit) AS counted;

-- open_transaction: open a transaction for a duration
INSERT INTO message_transaction (id, principal, state, opened_at, expires_at, member_count, member_bytes)
SELECT :id, :principal, 1, clock.now, clock.now + :duration, 0, 0
FROM (SELECT @now AS now) AS clock;

-- find_transaction: a transaction of a principal; state 1 is an open one
SELECT @transaction
FROM message_transaction
WHERE id = :id
  AND CASE WHEN state = 1 THEN TRUE ELSE @replicated END
  AND principal = :principal;  -- fence: principal

-- transaction_for_update: the same, locked until the SQL transaction ends
SELECT @transaction
FROM message_transaction
WHERE id = :id
  AND principal = :principal  -- fence: principal
@for_update;

-- transaction_answer: the result of a transaction that is committed and locked
SELECT answer
FROM message_transaction
WHERE id = :id;

-- add_member: store a member of a transaction
INSERT INTO transaction_member (
    transaction_id, place, queue, queue_id, message_id, due_at, expires_at, sequence_number, lock_token, outcome,
    member_bytes, content, body
)
VALUES (
    :transaction_id, :place, :queue, :queue_id, :message_id, :due_at, :expires_at, :sequence_number, :lock_token, :outcome,
    :member_bytes, :content, :body
);

-- count_members: count members that have joined a transaction, and their bytes
UPDATE message_transaction
SET member_count = member_count + :count,
    member_bytes = member_bytes + :member_bytes
WHERE id = :id;

-- bring_deadline_forward: set the deadline of a transaction to this time, unless it is earlier
UPDATE message_transaction
SET expires_at = :expires_at
WHERE id = :id
  AND expires_at > :expires_at;

-- expired_member: the first send of a transaction whose time to live ends with the transaction, in the order of joining
SELECT place, queue, message_id, sequence_number, outcome, member_bytes
FROM transaction_member
WHERE transaction_id = :id
  AND expires_at <= :deadline
ORDER BY place
LIMIT 1;

-- transaction_members: the members of a transaction, in the order of joining
SELECT @member FROM transaction_member WHERE transaction_id = :id ORDER BY place;

-- page_of_members: members after a position, without their content
SELECT place, queue, message_id, sequence_number, outcome, member_bytes
FROM transaction_member
WHERE transaction_id = :id
  AND place > :after
ORDER BY place
LIMIT :limit;

-- joined_settlements: settlements of these messages that wait for the commit of a transaction
SELECT sequence_number, lock_token, transaction_id, outcome, place, queue
FROM transaction_member
WHERE sequence_number @in(:numbers);

-- delete_members: forget the members of a transaction
DELETE FROM transaction_member WHERE transaction_id = :id;

-- end_transaction: store how a transaction has ended
UPDATE message_transaction
SET state = :state,
    ended_at = @now,
    remove_at = @now + :retention,
    answer = :answer,
    cause = :cause,
    member = :member
WHERE id = :id;

-- open_transactions: open transactions with their principals, those whose deadline comes first
SELECT principal, @transaction
FROM message_transaction
WHERE state = 1
ORDER BY expires_at
LIMIT :limit;

-- overdue_transaction: the open transaction whose deadline passed first; locked until the SQL transaction ends
SELECT id, principal, expires_at
FROM message_transaction
WHERE state = 1  -- fence: state
  AND expires_at <= @now  -- fence: time
ORDER BY expires_at
LIMIT 1
@skip_locked;

-- ---- readiness ----------------------------------------------------------------------------------------------------------

-- add_trial: write as many bytes as a message may have, to see whether the database accepts them
INSERT INTO attempt (attempt_key, fingerprint, answer, remove_at) VALUES (:key, :key, :content, 0);

-- delete_trial: delete what a check has written, if anything; a read-only database refuses this in any case
DELETE FROM attempt WHERE attempt_key = :key;

-- ---- deletion of expired rows ---------------------------------------------------------------------------------------

-- delete_expired_settlements: delete tombstones past their time
@delete_first(settlement, sequence_number, lock_token)
WHERE remove_at <= @now
ORDER BY remove_at
LIMIT :limit;

-- delete_expired_attempts: delete answers of attempts past their time
@delete_first(attempt, attempt_key)
WHERE remove_at <= @now
ORDER BY remove_at
LIMIT :limit;

-- delete_expired_transactions: delete the outcomes of transactions past their time
@delete_first(message_transaction, id)
WHERE remove_at <= @now
ORDER BY remove_at
LIMIT :limit;

-- delete_expired_recent_ids: delete message ids past their window, when no send that began within it can still run
@delete_first(recent_id, queue_id, message_id)
WHERE remove_at <= @now - 60000000
ORDER BY remove_at
LIMIT :limit;

-- orphaned_queues: queue ids that messages name and no queue has; one index look-up per id, however many messages
WITH RECURSIVE named (id) AS (
    SELECT MIN(queue_id) FROM message
    UNION ALL
    SELECT (SELECT MIN(queue_id) FROM message WHERE queue_id > named.id) FROM named WHERE named.id IS NOT NULL
)
SELECT id
FROM named
WHERE id IS NOT NULL
  AND id NOT IN (SELECT id FROM queue);

-- orphans: messages of a deleted queue, locked ones too, with the bytes of each
SELECT sequence_number, @body_bytes
FROM message @index(message_by_state)
WHERE queue_id = :queue_id
ORDER BY state, sequence_number
LIMIT :limit
@skip_locked;

-- deleted_queue: the name and the retention that a queue had
SELECT name, archive_retention FROM deleted_queue WHERE id = :id;

-- queue_name_from_counts: the name under which messages of a queue were counted
SELECT queue FROM accepted_count WHERE queue_id = :id LIMIT 1;

-- delete_expired_deleted_queues: delete records of queues that were deleted long ago and have no message left
DELETE FROM deleted_queue
WHERE deleted_at <= @now - :retention
  -- One look-up per queue: an anti-join may read all messages.
  AND (SELECT 1 FROM message WHERE message.queue_id = deleted_queue.id AND message.state > 0 LIMIT 1) IS NULL;

-- delete_expired_restorable: forget messages past their retention that could have been restored
@delete_first(restorable, sequence_number)
WHERE remove_at <= @now
ORDER BY remove_at
LIMIT :limit;

-- ---- shared bodies ---------------------------------------------------------------------------------------------------

-- shared_bodies: shared bodies after an id, and 1 if no message in a queue or in the archive has it
--
-- One look-up per body and table: a join may read all messages.
SELECT
    id,
    CASE
        WHEN 1 = 1
         AND (SELECT m.shared_body_id FROM message AS m WHERE m.shared_body_id = shared_body.id LIMIT 1) IS NULL  -- fence: reference
         AND (SELECT a.shared_body_id FROM archive AS a WHERE a.shared_body_id = shared_body.id LIMIT 1) IS NULL  -- fence: reference
        THEN 1 ELSE 0
    END
FROM shared_body
WHERE id > :after
ORDER BY id
LIMIT :limit;

-- delete_shared_body: delete a body that no message has
DELETE FROM shared_body WHERE id = :id;

-- stop_sharing: give messages a body of their own
UPDATE message
SET body = @body,
    shared_body_id = NULL,
    shared_body_bytes = NULL
WHERE sequence_number @in(:numbers)
  AND shared_body_id IS NOT NULL;

-- ---- restoring -------------------------------------------------------------------------------------------------------

-- restorable: messages that can be restored to the queue of a name and ended within a time, by number
SELECT sequence_number
FROM restorable
WHERE queue = :queue
  AND sequence_number > :after
  AND settled_at > 0
  AND settled_at >= :since
  AND settled_at <= :until
  -- Its batch may have been trimmed. One look-up per message: a join may read all of the archive.
  AND (SELECT a.queue_id FROM archive AS a WHERE a.sequence_number = restorable.sequence_number) IS NOT NULL
ORDER BY sequence_number
LIMIT :limit;

-- archived_metadata: archived messages without their bodies, in the columns of @metadata as if they were available
SELECT
    sequence_number, queue_id, 1, priority, enqueued_at, available_at, expires_at, delivery_count, failure_count, NULL,
    first_delivered_at, last_failure, message_id, group_id, headers, properties, @body_bytes, dead_letter_reason,
    dead_letter_description, NULL
FROM archive
WHERE sequence_number @in(:numbers)
ORDER BY sequence_number;

-- ended_before: archived messages of all queues below a number, from the newest, without their bodies and properties
SELECT @ended
FROM archive @index(PRIMARY)
WHERE sequence_number < :before
ORDER BY sequence_number DESC
LIMIT :limit;

-- restorable_for_update: lock those of these messages that can be restored, until the transaction ends
SELECT sequence_number FROM restorable WHERE sequence_number @in(:numbers) @skip_locked;

-- delete_restorable: prevent messages from being restored again
DELETE FROM restorable WHERE sequence_number @in(:numbers);

-- archived_content: what a restored message has of these archived ones, by number
SELECT priority, available_at, expires_at, settled_at, message_id, group_id, headers, properties, body_kind, @body
FROM archive
WHERE sequence_number @in(:numbers)
ORDER BY sequence_number;

-- ---- states ----------------------------------------------------------------------------------------------------------

-- state_for_update: the state of a key, and the clock; locked until the transaction ends
SELECT id, number, updated_at, @now FROM state WHERE state_key = :state_key @for_update;

-- create_state: create a state without versions, unless the key has one
INSERT INTO state (state_key, number, updated_at) VALUES (:state_key, 0, 0) ON CONFLICT DO NOTHING;

-- processed_version: the version that a message has added to a state, with the result of its processing
SELECT number, result_digest, receipts FROM state_version WHERE state_id = :state_id AND message_id = :message_id;

-- add_version: store a version of a state
INSERT INTO state_version (
    state_id, number, message_id, value, metadata, result_digest, receipts, created_at, replaced_at
)
VALUES (
    :state_id, :number, :message_id, :value, :metadata, :result_digest, :receipts, :created_at, :replaced_at
);

-- advance_state: set the newest version of a state
UPDATE state SET number = :number, updated_at = :updated_at WHERE id = :id;

-- newest_version: the newest version of the state of a key
SELECT number, value, metadata, message_id, created_at
FROM state_version
WHERE state_id = (SELECT s.id FROM state AS s WHERE s.state_key = :state_key)
  AND number = (SELECT s.number FROM state AS s WHERE s.state_key = :state_key);

-- version_by_number: one version of the state of a key
SELECT number, value, metadata, message_id, created_at
FROM state_version
WHERE state_id = (SELECT s.id FROM state AS s WHERE s.state_key = :state_key)
  AND number = :number;

-- captured: the version that a message has added to the state of a key, and what it captured
SELECT state_id, number, metadata
FROM state_version
WHERE state_id = (SELECT s.id FROM state AS s WHERE s.state_key = :state_key)
  AND message_id = :message_id;

-- version_of_state: one version of a state, also of one that was deleted since
SELECT number, value, metadata, message_id, created_at
FROM state_version
WHERE state_id = :state_id
  AND number = :number;

-- state_history: versions of the state of a key without their values, by number
SELECT number, metadata, message_id, created_at, LENGTH(value)
FROM state_version
WHERE state_id = (SELECT s.id FROM state AS s WHERE s.state_key = :state_key)
  AND number > :after
ORDER BY number
LIMIT :limit;

-- page_of_states: states by key, after a key
SELECT state_key, number, updated_at
FROM state
WHERE state_key > :after
  AND number > 0
ORDER BY state_key
LIMIT :limit;

-- delete_state: take a state away from its key; its versions are removed later
UPDATE state SET state_key = NULL WHERE state_key = :state_key AND number > 0;

-- try_lock_trimming: lock the one row that every database has, unless another transaction has locked it now
SELECT id FROM broker @skip_locked;

-- replacing_versions: versions that replaced another one some time ago, each with the earlier version and its bytes
SELECT v.id, old.id, LENGTH(old.value)
FROM state_version AS v
JOIN state_version AS old ON old.state_id = v.state_id AND old.number = v.number - 1
WHERE v.replaced_at <= @now - :retention  -- fence: time
ORDER BY v.replaced_at, v.id
LIMIT :limit;

-- delete_versions: remove versions of states
DELETE FROM state_version WHERE id @in(:numbers);

-- forget_messages: remove the message ids of versions whose predecessors were removed, so that these messages count as new
UPDATE state_version SET message_id = NULL, replaced_at = NULL WHERE id @in(:numbers);

-- versions_of_deleted: versions of states that were deleted, and the bytes of each
SELECT v.id, LENGTH(v.value)
FROM state AS s
JOIN state_version AS v ON v.state_id = s.id
WHERE s.state_key IS NULL
LIMIT :limit;

-- delete_empty_states: remove deleted states that have no version left
DELETE FROM state
WHERE state_key IS NULL
  AND (SELECT v.id FROM state_version AS v WHERE v.state_id = state.id LIMIT 1) IS NULL;

-- ---- archive batches ------------------------------------------------------------------------------------------------

-- first_unsealed: the unsealed message with the earliest removal time, from some time on
SELECT sequence_number, remove_at, @now - settled_at
FROM (
    SELECT * FROM (
        SELECT s.sequence_number, s.remove_at,
            COALESCE((SELECT settled_at FROM archive AS a WHERE a.sequence_number = s.sequence_number), 0) AS settled_at
        FROM archive_seal AS s @index(archive_seal_batch)
        WHERE s.export_batch IS NULL
          AND s.remove_at >= :since
        ORDER BY s.export_batch, s.remove_at
        LIMIT 1
    ) AS noted
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number, remove_at, settled_at
        FROM archive @index(archive_export)
        WHERE export_batch IS NULL
          AND remove_at >= :since
        ORDER BY export_batch, remove_at
        LIMIT 1
    ) AS of_older_servers
) AS unsealed
ORDER BY remove_at
LIMIT 1;

-- try_lock_sealing: lock the one row that every database has, unless another transaction has locked it now
SELECT version_num FROM alembic_version @skip_locked;

-- unsealed: unsealed messages to be removed within a span of time, the bytes and events of each, and 1 if an older server archived it
SELECT *
FROM (
    SELECT * FROM (
        SELECT s.sequence_number, s.remove_at,
            COALESCE((SELECT @a.body_bytes FROM archive AS a WHERE a.sequence_number = s.sequence_number), 0) AS bytes,
            (SELECT COUNT(*) FROM message_event AS e WHERE e.sequence_number = s.sequence_number AND e.queue_id > 0) AS events,
            0 AS is_older
        FROM archive_seal AS s @index(archive_seal_batch)
        WHERE s.export_batch IS NULL  -- fence: sealed
          AND s.remove_at >= :since
          AND s.remove_at <= :until
        ORDER BY s.export_batch, s.remove_at
        LIMIT :limit
    ) AS noted
    UNION ALL
    SELECT * FROM (
        SELECT sequence_number, remove_at, @body_bytes, 0, 1
        FROM archive @index(archive_export)
        WHERE export_batch IS NULL  -- fence: sealed
          AND remove_at >= :since
          AND remove_at <= :until
        ORDER BY export_batch, remove_at
        LIMIT :limit
    ) AS of_older_servers
) AS unsealed
ORDER BY remove_at
LIMIT :limit;

-- next_batch: the number that follows the last one
SELECT COALESCE(MAX(number), 0) + 1, @now FROM export_batch;

-- seal: put messages into a batch
UPDATE archive_seal @index(PRIMARY)
SET export_batch = :batch
WHERE sequence_number @in(:numbers);

-- seal_older: put messages that an older server archived into a batch
UPDATE archive @index(PRIMARY)
SET export_batch = :batch
WHERE sequence_number @in(:numbers);

-- add_batch: store the record of a batch
INSERT INTO export_batch (@batch, rows_until)
VALUES (:number, :row_count, :digest, :sealed_at, :remove_at, :removed_at, :removal, :digest_version, :remove_at);

-- batches: sealed batches by number
SELECT @batch FROM export_batch WHERE number > :after ORDER BY number LIMIT :limit;

-- batch_for_update: when a batch was removed (null if it was not), and its digest; locked until the transaction ends
SELECT removed_at, digest, digest_version FROM export_batch WHERE number = :number @for_update;

-- batch_messages: the messages of a batch; older servers write its number into the archive
SELECT sequence_number FROM archive_seal @index(archive_seal_batch) WHERE export_batch = :number
UNION ALL
SELECT sequence_number FROM archive @index(archive_export) WHERE export_batch = :number;

-- archived_numbers: archived messages, and the time since each ended
SELECT sequence_number, @now - settled_at FROM archive @index(PRIMARY) WHERE sequence_number @in(:numbers);

-- archived_digests: the digests of archived messages by ascending number, and the time since each ended
SELECT @row_digest, @now - settled_at
FROM archive @index(PRIMARY)
WHERE sequence_number @in(:numbers)
ORDER BY sequence_number;

-- event_digests: the digests of the events of messages, by message and in order
SELECT @event_digest
FROM message_event
WHERE sequence_number @in(:numbers)
  AND queue_id > 0
ORDER BY sequence_number, id;

-- delete_histories: delete the events of messages
DELETE FROM message_event
WHERE sequence_number @in(:numbers)
  AND queue_id > 0;

-- expired_batch: a batch past its time whose messages are not removed yet; locked until the transaction ends
SELECT number
FROM export_batch
WHERE removed_at IS NULL  -- fence: state
  AND remove_at <= @now  -- fence: time
ORDER BY removed_at, remove_at
LIMIT 1
@skip_locked;

-- unfinished_batch: the same, for a batch that an older server has recorded as removed
SELECT number
FROM export_batch
WHERE rows_until IS NOT NULL
  AND rows_until <= @now  -- fence: time
ORDER BY rows_until
LIMIT 1
@skip_locked;

-- delete_archived: remove messages from the archive
DELETE FROM archive WHERE sequence_number @in(:numbers);

-- delete_seals: forget which messages were in a batch
DELETE FROM archive_seal WHERE export_batch = :number;

-- mark_batch_removed: record that a batch was removed, and why
UPDATE export_batch
SET removed_at = @now,
    removal = :removal,
    rows_until = NULL
WHERE number = :number;

-- delete_expired_batches: delete records of batches that were removed long ago
@delete_first(export_batch, number)
WHERE removed_at <= @now - :retention
  AND number < :before
ORDER BY removed_at
LIMIT :limit;

-- ---- queues ----------------------------------------------------------------------------------------------------------

-- create_queue: create a queue, unless one of this name exists
INSERT INTO queue (name, settings, feature_level, group_in_flight, history_retention, version, created_at, updated_at)
SELECT :name, :settings, :feature_level, :group_in_flight, :history_retention, 1, clock.now, clock.now
FROM (SELECT @now AS now) AS clock
WHERE 1 = 1  -- or SQLite would read the next word as the condition of a join
ON CONFLICT DO NOTHING;

-- serialize_queue_creation: lock a row that every database has, so that queues are counted and created one at a time
SELECT id FROM broker @for_update;

-- count_queues: the number of queues
SELECT COUNT(*) FROM queue;

-- find_queue: a queue by name
SELECT @queue FROM queue WHERE name = :name;

-- queue_by_id: a queue by id
SELECT @queue FROM queue WHERE id = :id;

-- page_of_queues: queues by name, after a name
SELECT @queue FROM queue WHERE name > :after ORDER BY name LIMIT :limit;

-- forwarding_queues: names and settings of queues that may forward messages or dead letters
--
-- The text of the settings leaves out most others. A queue that needs a newer server counts: its messages travel too.
SELECT name, settings
FROM queue
WHERE feature_level > 0
  AND feature_level >= :level
  AND settings LIKE '%"forward%":"%';

-- dead_letter_sources: queues of a feature level or a newer one that may forward their dead letters; the text leaves out most others
SELECT @queue
FROM queue
WHERE feature_level > 0
  AND feature_level >= :level
  AND settings LIKE '%"forward_dead_letters_to":"%'
ORDER BY name;

-- forwarding_dead_letters: queues of a feature level, or a newer one that this version knows, that may forward a dead letter
--
-- The text of the settings leaves out most others. One look-up per queue: a semi-join may read all messages.
SELECT @queue
FROM queue
WHERE feature_level > 0
  AND feature_level >= :level
  AND feature_level <= @feature_level  -- fence: level
  AND settings LIKE '%"forward_dead_letters_to":"%'
  AND (
      SELECT m.sequence_number FROM message AS m WHERE m.queue_id = queue.id AND m.state = 5 AND m.state > 0 LIMIT 1
  ) IS NOT NULL
ORDER BY id;

-- newest_lock: when the newest of a queue's locks was granted, 0 if it has none
SELECT COALESCE(MAX(last_delivered_at), 0) FROM message WHERE queue_id = :id AND state = 2;

-- change_queue: change the settings of an unchanged queue, and set whether the locks granted until now are revoked;
-- locks that were granted before the clock was set back have a later time; the queue keeps a lasting level that it has
UPDATE queue
SET settings = :settings,
    feature_level = CASE
        WHEN feature_level >= :shared_bodies_level AND :feature_level < :shared_bodies_level THEN :shared_bodies_level
        WHEN feature_level >= :synchronous_level AND :feature_level < :synchronous_level THEN :synchronous_level
        ELSE :feature_level
    END,
    group_in_flight = :group_in_flight,
    history_retention = :history_retention,
    admit_after = CASE WHEN :admits_groups = 1 THEN '' ELSE admit_after END,
    version = version + 1,
    updated_at = @now,
    take_locks_until = CASE
        WHEN :revokes_locks = 0 THEN take_locks_until
        WHEN :newest_lock > @now THEN :newest_lock
        ELSE @now
    END
WHERE id = :id
  AND version = :version;  -- fence: version

-- count_lock_purge: count a purge that revoked locks of a queue
UPDATE queue SET lock_purges = lock_purges + 1 WHERE id = :id;

-- revocations: queues with locks, granted until some time, that are to be revoked, and queues whose revocation is over.
-- Until then a claim from before the change may still commit. Once the clock was set back behind the locks, none can
SELECT id, take_locks_until, is_over
FROM (
    SELECT id, take_locks_until, take_locks_until NOT BETWEEN @now - :period AND @now AS is_over
    FROM queue
    WHERE take_locks_until IS NOT NULL
      AND feature_level <= @feature_level  -- fence: level
) AS changed
WHERE is_over
   OR EXISTS (
        SELECT 1
        FROM message
        WHERE queue_id = changed.id
          AND state = 2
          AND last_delivered_at <= changed.take_locks_until
    )
ORDER BY take_locks_until
LIMIT :limit;

-- end_revocation: record that the locks of a queue that were granted until some time are revoked
UPDATE queue
SET take_locks_until = NULL
WHERE id = :id
  AND take_locks_until = :granted_until;

-- delete_queue: delete an unchanged queue
DELETE FROM queue
WHERE id = :id
  AND version = :version;  -- fence: version

-- queue_for_update: lock a queue by name, so that it is not deleted while a subscription begins to target it
SELECT id FROM queue WHERE name = :name @for_update;

-- subscription_of_queue: a subscription whose target is this queue, and its topic
SELECT subscription.name, topic.name
FROM subscription
JOIN topic ON topic.id = subscription.topic_id
WHERE subscription.target_queue = :target_queue
LIMIT 1;

-- add_deleted_queue: keep what the messages of a deleted queue need
INSERT INTO deleted_queue (id, name, archive_retention, deleted_at)
VALUES (:id, :name, :archive_retention, @now);

-- count_messages: the number of messages in each state of these queues; 6 for sends that wait for a commit
SELECT queue_id, state, COUNT(*)
FROM message
WHERE queue_id @in(:queue_ids)
GROUP BY queue_id, state
UNION ALL
SELECT queue_id, 6, COUNT(*)
FROM transaction_member
WHERE queue_id @in(:queue_ids)
GROUP BY queue_id;

-- total_messages: the number of messages in a queue
SELECT COUNT(*) FROM message WHERE queue_id = :queue_id;

-- oldest_available: how long the first available message of these queues has waited; one look-up per priority
SELECT q.id, @now - MIN(
    (
        SELECT m.available_at FROM message AS m @index(message_next)
        WHERE m.queue_id = q.id AND m.state = 1 AND m.priority = p.priority
        ORDER BY m.available_at LIMIT 1
    )
)
FROM queue AS q
CROSS JOIN (
    SELECT 0 AS priority UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
    UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
) AS p
WHERE q.id @in(:queue_ids)
GROUP BY q.id;

-- ---- move tasks ------------------------------------------------------------------------------------------------------

-- running_move: a row if a move task of a queue runs
SELECT id FROM move_task WHERE queue_id = :queue_id AND state = 1;

-- start_move: start a move task; the transaction holds its queue and has checked that none runs
INSERT INTO move_task (
    id, queue_id, request, state, position, last_number, found, moved, started_at, progressed_at, next_at
)
VALUES (:id, :queue_id, :request, 1, 0, :last_number, :found, 0, @now, @now, @now);

-- old_moves: the ended move tasks of a queue before its newest ones; after the clock was set back, a running one may be older
SELECT id
FROM move_task
WHERE queue_id = :queue_id
  AND state <> 1
ORDER BY started_at DESC, id
LIMIT 100
OFFSET :kept;

-- delete_move: forget a move task
DELETE FROM move_task WHERE id = :id;

-- delete_moves: forget the move tasks of a queue
DELETE FROM move_task WHERE queue_id = :queue_id;

-- moves_of_queue: the newest move tasks of a queue
SELECT @move_task FROM move_task WHERE queue_id = :queue_id ORDER BY started_at DESC, id LIMIT :limit;

-- find_move: a move task of a queue
SELECT @move_task
FROM move_task
WHERE id = :id
  AND queue_id = :queue_id;  -- fence: queue

-- running_moves: running move tasks, in the order in which their pages are due
SELECT @move_task
FROM move_task
WHERE state = 1
  AND queue_id NOT IN @newer_queues  -- fence: level
ORDER BY next_at
LIMIT :limit;

-- move_for_update: a move task if no page has followed and the next one is due; held until the transaction ends
SELECT id
FROM move_task
WHERE id = :id
  AND state = 1  -- fence: state
  AND position = :position  -- fence: position
  AND (next_at <= @now OR next_at > @now + :longest_pause)  -- fence: time
  AND queue_id NOT IN @newer_queues  -- fence: level
@skip_locked;

-- advance_move: record a page of a move task that the transaction holds
UPDATE move_task
SET progressed_at = CASE WHEN position < :position THEN @now ELSE progressed_at END,
    position = :position,
    moved = moved + :moved,
    next_at = @now + :pause,
    ended_at = CASE WHEN :is_ended = 1 THEN @now END,
    state = :state,
    reason = :reason
WHERE id = :id;

-- cancel_move: end a running move task as cancelled
UPDATE move_task
SET state = 3,
    ended_at = @now
WHERE id = :id
  AND queue_id = :queue_id  -- fence: queue
  AND state = 1;  -- fence: state

-- ---- API keys --------------------------------------------------------------------------------------------------------

-- serialize_key_creation: lock the one row that every database has, so that keys are counted and added one at a time
SELECT version_num FROM alembic_version @for_update;

-- live_keys: the number of live keys of a principal
SELECT COUNT(*)
FROM api_key
WHERE principal = :principal
  AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > @now);

-- add_key: store a key
INSERT INTO api_key (id, principal, secret_hash, rights, created_at, expires_at, last_used_at, revoked_at)
VALUES (:id, :principal, :secret_hash, :rights, :created_at, :expires_at, :last_used_at, :revoked_at);

-- key_by_hash: the key whose secret has this digest, and the time
SELECT @api_key, @now FROM api_key WHERE secret_hash = :secret_hash;

-- key_by_id: the key with this id, and the time
SELECT @api_key, @now FROM api_key WHERE id = :id;

-- list_keys: all keys, oldest first
SELECT @api_key FROM api_key ORDER BY created_at, id;

-- revoke_key: revoke a live key
UPDATE api_key
SET revoked_at = @now
WHERE id = :id
  AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > @now);

-- record_key_use: set the time of a key's last use to now
UPDATE api_key SET last_used_at = @now WHERE id = :id;

-- any_live_key: a row if a live key exists
SELECT 1
FROM api_key
WHERE revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > @now)
LIMIT 1;

-- ---- sessions --------------------------------------------------------------------------------------------------------

-- add_session: store a session
INSERT INTO session (secret_hash, key_id, created_at, expires_at)
VALUES (:secret_hash, :key_id, :created_at, :expires_at);

-- session_key: the key of the session whose secret has this digest, and the time
SELECT @api_key, @now
FROM api_key
WHERE id = (SELECT session.key_id FROM session WHERE session.secret_hash = :secret_hash AND session.expires_at > @now);

-- delete_session: end a session
DELETE FROM session WHERE secret_hash = :secret_hash;

-- delete_expired_sessions: delete the sessions that have expired
DELETE FROM session WHERE expires_at <= @now;

-- ---- topics ----------------------------------------------------------------------------------------------------------

-- count_topics: the number of topics
SELECT COUNT(*) FROM topic;

-- create_topic: create a topic; the transaction has checked that none has this name
INSERT INTO topic (name, description, labels, version, created_at, updated_at)
VALUES (:name, :description, :labels, 1, @now, @now);

-- find_topic: a topic by name
SELECT @topic FROM topic WHERE name = :name;

-- page_of_topics: topics by name, after a name
SELECT @topic FROM topic WHERE name > :after ORDER BY name LIMIT :limit;

-- change_topic: change the settings of an unchanged topic
UPDATE topic
SET description = :description,
    labels = :labels,
    version = version + 1,
    updated_at = @now
WHERE id = :id
  AND version = :version;  -- fence: version

-- topic_for_update: lock a topic, so that its subscriptions are counted and added one at a time
SELECT id FROM topic WHERE id = :id @for_update;

-- delete_topic: delete an unchanged topic
DELETE FROM topic
WHERE id = :id
  AND version = :version;  -- fence: version

-- delete_subscriptions: delete the subscriptions of a topic
DELETE FROM subscription WHERE topic_id = :topic_id;

-- count_subscriptions: the number of subscriptions of a topic
SELECT COUNT(*) FROM subscription WHERE topic_id = :topic_id;

-- add_subscription: add a subscription; the transaction holds its topic and has checked that none has this name
INSERT INTO subscription (
    topic_id, name, target_queue, filter, set_properties, remove_properties, labels, version, created_at, updated_at
)
VALUES (
    :topic_id, :name, :target_queue, :filter, :set_properties, :remove_properties, :labels, 1, @now, @now
);

-- find_subscription: a subscription of a topic by name
SELECT @subscription FROM subscription WHERE topic_id = :topic_id AND name = :name;

-- subscription_with_target: the name of the subscription of a topic that has this target queue
SELECT name FROM subscription WHERE topic_id = :topic_id AND target_queue = :target_queue;

-- page_of_subscriptions: subscriptions of a topic by name, after a name
SELECT @subscription FROM subscription WHERE topic_id = :topic_id AND name > :after ORDER BY name LIMIT :limit;

-- routes: the subscriptions of a topic by name, each with its target queue, or nulls if that does not exist
SELECT @s.subscription, @q.queue
FROM subscription AS s
LEFT JOIN queue AS q ON q.name = s.target_queue
WHERE s.topic_id = :topic_id
ORDER BY s.name;

-- change_subscription: change an unchanged subscription
UPDATE subscription
SET target_queue = :target_queue,
    filter = :filter,
    set_properties = :set_properties,
    remove_properties = :remove_properties,
    labels = :labels,
    version = version + 1,
    updated_at = @now
WHERE id = :id
  AND version = :version;  -- fence: version

-- delete_subscription: delete an unchanged subscription
DELETE FROM subscription
WHERE id = :id
  AND version = :version;  -- fence: version
