-- The statements that MariaDB and MySQL run for every message, and those whose syntax differs from common.sql.
--
-- Neither engine can change rows and return them in one statement. So a batch is a transaction of two steps: the first
-- locks and reads the rows that may be changed, the second changes exactly those. Many callers share one statement.
-- Their values are JSON that JSON_TABLE turns into rows. The join begins with these rows, so no statistics mislead it,
-- and finds messages by primary key.
--
-- A process may stop between the two steps. Its transaction then holds its rows for up to half a minute. So a
-- statement for many callers, and a statement of a background loop, skips a row that another transaction has locked.
-- The request for that row has no effect, and the requests for all other rows proceed.

-- ---- sending ----------------------------------------------------------------------------------------------------------

-- start_clock: read the clock for the statements that follow, and count how many of these queues are deleted
--
-- A plain SELECT waits for no lock. A subquery of the INSERT would wait for a change of a queue that holds its row.
SELECT @now, :queue_count - COUNT(*) INTO @clock, @missing_queues
FROM queue
WHERE id @in(:queue_ids)
  AND feature_level <= @feature_level; -- fence: level

-- read_clock: the clock as read, and the step between the numbers of one statement (in a cluster, not 1)
SELECT @clock, @@SESSION.auto_increment_increment;

-- send: store drafts, numbered in their order; refused as a whole if a queue is deleted, because all ids are then null
INSERT INTO message (
    queue_id, priority, message_id, group_id, headers, properties, body_kind, body, content_digest, in_group,
    shared_body_id, shared_body_bytes, state, home_state, delivery_count, failure_count, lock_generation, enqueued_at,
    available_at,
    expires_at
)
VALUES (
    IF(@missing_queues = 0, :queue_id, NULL), :priority, :message_id, :group_id, :headers, :properties, :body_kind, :body,
    :content_digest, IF(COALESCE(:available_at, @clock + :delay) > @clock, NULL, :in_group),
    :shared_body_id, :shared_body_bytes,
    IF(COALESCE(:available_at, @clock + :delay) > @clock, 3, IF(:in_group = 2, 7, 1)), 1, 0, 0, 0, @clock,
    GREATEST(@clock, COALESCE(:available_at, @clock + :delay, @clock)),
    GREATEST(@clock, COALESCE(:available_at, @clock + :delay, @clock)) + :ttl
);

-- count_accepted: count the messages that this transaction has stored; LAST_INSERT_ID is that of the last INSERT before
--
-- A queue may have been deleted since they were stored.
INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted)
SELECT
    LAST_INSERT_ID(), entry.queue_id, @clock DIV 86400000000,
    COALESCE(
        (SELECT name FROM queue WHERE id = entry.queue_id),
        (SELECT name FROM deleted_queue WHERE id = entry.queue_id)
    ),
    entry.accepted
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    queue_id INT PATH '$.queue_id',
    accepted BIGINT PATH '$.accepted'
)) AS entry;

-- add_shared_bodies: store bodies that messages of this transaction share
INSERT INTO shared_body (id, body)
VALUES (:id, :body);

-- ids_for_update: lock those message ids that are known; fails at once if another transaction has locked one
SELECT 1
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    queue_id INT PATH '$.queue_id',
    message_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.message_id'
)) AS entry
STRAIGHT_JOIN recent_id AS recent FORCE INDEX (PRIMARY)
    ON recent.queue_id = entry.queue_id
    AND recent.message_id = CAST(entry.message_id AS BINARY)
FOR UPDATE NOWAIT;

-- insert_ids: insert message ids of queues; waits for another transaction that does so at the same time
INSERT INTO recent_id (queue_id, message_id, sequence_number, state, enqueued_at, remove_at)
VALUES (:queue_id, :message_id, 0, 0, 0, 0)
ON DUPLICATE KEY UPDATE queue_id = recent_id.queue_id;

-- first_receipts: the first receipts for these message ids within the window of each, with the states of the messages now
SELECT recent.queue_id, recent.message_id, recent.sequence_number, recent.enqueued_at, m.state
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    queue_id INT PATH '$.queue_id',
    message_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.message_id'
)) AS entry
STRAIGHT_JOIN recent_id AS recent FORCE INDEX (PRIMARY)
    ON recent.queue_id = entry.queue_id
    AND recent.message_id = CAST(entry.message_id AS BINARY)
LEFT JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = recent.sequence_number
WHERE recent.remove_at > @now;

-- save_receipts: save the receipts of these message ids
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    queue_id INT PATH '$.queue_id',
    message_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.message_id',
    sequence_number BIGINT PATH '$.sequence_number',
    enqueued_at BIGINT PATH '$.enqueued_at',
    state SMALLINT PATH '$.state',
    duplicate_window BIGINT PATH '$.duplicate_window'
)) AS entry
STRAIGHT_JOIN recent_id AS recent FORCE INDEX (PRIMARY)
    ON recent.queue_id = entry.queue_id
    AND recent.message_id = CAST(entry.message_id AS BINARY)
SET recent.sequence_number = entry.sequence_number,
    recent.enqueued_at = entry.enqueued_at,
    recent.state = entry.state,
    recent.remove_at = entry.enqueued_at + entry.duplicate_window;

-- correct_receipts: note that messages with these ids, whose groups had a free place, are available
UPDATE JSON_TABLE(:ids, '$[*]' COLUMNS (
    queue_id INT PATH '$.queue_id',
    message_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.message_id'
)) AS entry
STRAIGHT_JOIN recent_id AS recent FORCE INDEX (PRIMARY)
    ON recent.queue_id = entry.queue_id
    AND recent.message_id = CAST(entry.message_id AS BINARY)
SET recent.state = 1;

-- ---- receiving --------------------------------------------------------------------------------------------------------

-- next_available: lock the next messages of a queue in order of delivery, skipping locked ones; see @inline_message
SELECT @inline_message
FROM message FORCE INDEX (message_next)
WHERE queue_id = :queue_id
  AND state = 1
  AND (expires_at IS NULL OR expires_at > @now)
ORDER BY priority DESC, available_at, sequence_number
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- next_dead_lettered: lock the next messages of a dead-letter queue, oldest first
SELECT @inline_message
FROM message FORCE INDEX (message_by_state)
WHERE queue_id = :queue_id
  AND state = 5
ORDER BY sequence_number
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- candidates: available messages after a position in the order of delivery, without their bodies
SELECT @m.metadata
FROM (
    (
        SELECT priority, available_at, sequence_number FROM message FORCE INDEX (message_next)
        WHERE queue_id = :queue_id
          AND state = 1
          AND priority = :priority
          AND available_at >= :available_at
          AND (available_at > :available_at OR sequence_number > :sequence_number)
          AND (expires_at IS NULL OR expires_at > @now)
        ORDER BY available_at, sequence_number LIMIT :limit
    )
    UNION ALL
    (
        SELECT priority, available_at, sequence_number FROM message FORCE INDEX (message_next)
        WHERE queue_id = :queue_id
          AND state = 1
          AND priority < :priority
          AND (expires_at IS NULL OR expires_at > @now)
        ORDER BY priority DESC, available_at, sequence_number LIMIT :limit
    )
    ORDER BY priority DESC, available_at, sequence_number
    LIMIT :limit
) AS chosen
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = chosen.sequence_number
ORDER BY chosen.priority DESC, chosen.available_at, chosen.sequence_number;

-- by_number: lock those messages of one queue, given by number, that are in one state, up to a maximum
SELECT @m.inline_message
FROM JSON_TABLE(:numbers, '$[*]' COLUMNS (sequence_number BIGINT PATH '$')) AS requested
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = requested.sequence_number
WHERE m.queue_id = :queue_id
  AND m.state = :source
  AND (m.expires_at IS NULL OR m.expires_at > @now OR m.state = 5)
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- large_bodies: what `inline_message` has omitted of messages that this transaction has locked
SELECT sequence_number, properties, @body
FROM message FORCE INDEX (PRIMARY)
WHERE sequence_number @in(:numbers);

-- lock: give messages that were locked and read to their receivers
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    sequence_number BIGINT PATH '$.sequence_number',
    home_state SMALLINT PATH '$.home_state',
    lock_token CHAR(24) CHARACTER SET utf8mb4 PATH '$.lock_token',
    read_at BIGINT PATH '$.read_at',
    locked_until BIGINT PATH '$.locked_until',
    receiver_id VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.receiver_id'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number
SET m.state = 2,
    m.home_state = IF(m.home_state = 8, 8, entry.home_state),
    m.delivery_count = m.delivery_count + 1,
    m.lock_token = FROM_BASE64(entry.lock_token),
    m.locked_until = entry.locked_until,
    m.lock_generation = 0,
    m.receiver_id = entry.receiver_id,
    m.first_delivered_at = COALESCE(m.first_delivered_at, entry.read_at),
    m.last_delivered_at = entry.read_at;

-- ---- settling ---------------------------------------------------------------------------------------------------------

-- fence_holds: lock the messages that still pass their fence, and read in which group each has a place
SELECT entry.entry_index, IF(m.in_group = 1, m.group_id, NULL)
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    entry_index INT PATH '$.entry_index',
    sequence_number BIGINT PATH '$.sequence_number',
    queue_id INT PATH '$.queue_id',
    lock_token CHAR(24) CHARACTER SET utf8mb4 PATH '$.lock_token',
    generation_above INT PATH '$.generation_above',
    max_generation INT PATH '$.max_generation',
    knows_group INT PATH '$.knows_group'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number
WHERE m.queue_id = entry.queue_id -- fence: queue
  AND m.state = 2 -- fence: locked
  AND m.lock_token = FROM_BASE64(entry.lock_token) -- fence: token
  AND (m.locked_until > @now OR entry.generation_above < -1) -- fence: time
  AND m.lock_generation > entry.generation_above -- fence: generation
  AND m.lock_generation <= entry.max_generation -- fence: generation
  AND m.home_state <> 8 -- fence: offer
  AND (m.in_group IS NULL OR entry.knows_group = 1) -- fence: group
FOR UPDATE SKIP LOCKED;

-- lock_ended: lock the messages whose lock has ended, by its time or by an expired generation; columns as above
SELECT entry.entry_index, IF(m.in_group = 1, m.group_id, NULL)
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    entry_index INT PATH '$.entry_index',
    sequence_number BIGINT PATH '$.sequence_number',
    queue_id INT PATH '$.queue_id',
    lock_token CHAR(24) CHARACTER SET utf8mb4 PATH '$.lock_token',
    generation_above INT PATH '$.generation_above',
    knows_group INT PATH '$.knows_group'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number
WHERE m.queue_id = entry.queue_id -- fence: queue
  AND m.state = 2 -- fence: locked
  AND m.lock_token = FROM_BASE64(entry.lock_token) -- fence: token
  AND (
      m.locked_until <= @now -- fence: time
      OR m.lock_generation = entry.generation_above -- fence: generation
  )
  AND (m.in_group IS NULL OR entry.knows_group = 1) -- fence: group
FOR UPDATE SKIP LOCKED;

-- extendable: lock the messages whose lock has not ended, and read what an extension changes
SELECT entry.entry_index, m.lock_generation, m.locked_until, @now
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    entry_index INT PATH '$.entry_index',
    sequence_number BIGINT PATH '$.sequence_number',
    queue_id INT PATH '$.queue_id',
    lock_token CHAR(24) CHARACTER SET utf8mb4 PATH '$.lock_token',
    expired_generation INT PATH '$.expired_generation',
    max_generation INT PATH '$.max_generation'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number
WHERE m.queue_id = entry.queue_id -- fence: queue
  AND m.state = 2 -- fence: locked
  AND m.lock_token = FROM_BASE64(entry.lock_token) -- fence: token
  AND m.locked_until > @now -- fence: time
  AND m.lock_generation > entry.expired_generation -- fence: generation
  AND m.lock_generation <= entry.max_generation -- fence: generation
  AND NOT EXISTS (SELECT 1 FROM queue AS q WHERE q.id = m.queue_id AND q.take_locks_until >= m.last_delivered_at) -- fence: revocation
FOR UPDATE SKIP LOCKED;

-- extend: give the locks that were found extendable their generation and their end
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    sequence_number BIGINT PATH '$.sequence_number',
    generation INT PATH '$.generation',
    locked_until BIGINT PATH '$.locked_until'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number
SET m.lock_generation = entry.generation,
    m.locked_until = entry.locked_until;

-- archive_settled: copy messages as they end
INSERT INTO archive (@archived, queue, outcome, settled_at, remove_at, export_batch)
SELECT @m.archived, entry.queue, entry.outcome, @now, @now + entry.retention, 0
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    sequence_number BIGINT PATH '$.sequence_number',
    queue VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.queue',
    outcome VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.outcome',
    retention BIGINT PATH '$.retention'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number;

-- delete_settled: delete messages from their queues
DELETE m
FROM JSON_TABLE(:numbers, '$[*]' COLUMNS (sequence_number BIGINT PATH '$')) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number;

-- add_tombstones: leave tombstones of deliveries that end here, dated with the lock's end, at the latest now
INSERT INTO settlement (sequence_number, lock_token, queue_id, outcome, state, settled_at, remove_at)
SELECT
    m.sequence_number, m.lock_token, m.queue_id, entry.outcome, entry.state,
    LEAST(m.locked_until, @now), @now + entry.tombstone_retention
FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    sequence_number BIGINT PATH '$.sequence_number',
    outcome VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.outcome',
    state SMALLINT PATH '$.state',
    tombstone_retention BIGINT PATH '$.tombstone_retention'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number;

-- move: move messages whose lock ends here into their next state
UPDATE JSON_TABLE(:rows, '$[*]' COLUMNS (
    sequence_number BIGINT PATH '$.sequence_number',
    state SMALLINT PATH '$.state',
    delay BIGINT PATH '$.delay',
    failures INT PATH '$.failures',
    delivery_count INT PATH '$.delivery_count',
    last_failure TEXT CHARACTER SET utf8mb4 PATH '$.last_failure',
    reason TEXT CHARACTER SET utf8mb4 PATH '$.dead_letter_reason',
    description TEXT CHARACTER SET utf8mb4 PATH '$.dead_letter_description',
    properties MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$.properties'
)) AS entry
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = entry.sequence_number
SET m.state = entry.state,
    m.in_group = IF(entry.state = 1, m.in_group, NULL),
    m.available_at = COALESCE(@now + entry.delay, m.available_at),
    m.failure_count = m.failure_count + entry.failures,
    m.delivery_count = COALESCE(entry.delivery_count, m.delivery_count),
    m.first_delivered_at = IF(entry.delivery_count = 0, NULL, m.first_delivered_at),
    m.last_delivered_at = IF(entry.delivery_count = 0, NULL, m.last_delivered_at),
    m.last_failure = COALESCE(entry.last_failure, m.last_failure),
    m.dead_letter_reason = COALESCE(entry.reason, m.dead_letter_reason),
    m.dead_letter_description = COALESCE(entry.description, m.dead_letter_description),
    m.dead_lettered_at = COALESCE(m.dead_lettered_at, IF(entry.state = 5, @now, NULL)),
    m.properties = COALESCE(entry.properties, m.properties),
    m.lock_token = NULL,
    m.locked_until = NULL,
    m.lock_generation = 0,
    m.receiver_id = NULL;

-- ---- groups -----------------------------------------------------------------------------------------------------------

-- admissible: the first blocked message of each of these groups that has a free place, and its number of free places
SELECT m.sequence_number, m.queue_id, m.group_id, m.priority, head.room, @now
FROM (
    SELECT
        (
            SELECT b.sequence_number FROM message AS b FORCE INDEX (message_group)
            WHERE b.in_group = 2 AND b.queue_id = entry.queue_id AND b.group_id = entry.group_id
            ORDER BY b.sequence_number LIMIT 1
        ) AS sequence_number,
        COALESCE((SELECT group_in_flight FROM queue WHERE id = entry.queue_id), :limit) - (
            SELECT COUNT(*) FROM message AS p FORCE INDEX (message_group)
            WHERE p.in_group = 1 AND p.queue_id = entry.queue_id AND p.group_id = entry.group_id
        ) AS room
    FROM JSON_TABLE(:groups, '$[*]' COLUMNS (
        queue_id INT PATH '$.queue_id',
        group_id VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.group_id'
    )) AS entry
) AS head
STRAIGHT_JOIN message AS m FORCE INDEX (PRIMARY) ON m.sequence_number = head.sequence_number
WHERE head.room > 0;

-- blocked_groups: groups of a queue that have a blocked message, after a group
SELECT DISTINCT group_id
FROM message FORCE INDEX (message_group)
WHERE in_group = 2
  AND queue_id = :queue_id
  AND group_id > :after
ORDER BY group_id
LIMIT :limit;

-- ---- counts of accepted messages ---------------------------------------------------------------------------------------

-- count_unarchived: count messages that leave their queue without a row in the archive
INSERT INTO accepted_count (first_number, queue_id, day, queue, unarchived)
SELECT MIN(m.sequence_number), m.queue_id, m.enqueued_at DIV 86400000000, :queue, COUNT(*)
FROM message AS m FORCE INDEX (PRIMARY)
WHERE m.sequence_number @in(:numbers)
  AND m.content_digest IS NOT NULL
GROUP BY m.queue_id, m.enqueued_at DIV 86400000000
ORDER BY NULL
ON DUPLICATE KEY UPDATE accepted_count.unarchived = accepted_count.unarchived + VALUES(unarchived);

-- count_moved: count messages that enter a queue or, if the sign is -1, leave it for another one
INSERT INTO accepted_count (first_number, queue_id, day, queue, moved)
SELECT MIN(m.sequence_number), :queue_id, m.enqueued_at DIV 86400000000, :queue, :sign * COUNT(*)
FROM message AS m FORCE INDEX (PRIMARY)
WHERE m.sequence_number @in(:numbers)
  AND m.content_digest IS NOT NULL
GROUP BY m.enqueued_at DIV 86400000000
ORDER BY NULL
ON DUPLICATE KEY UPDATE accepted_count.moved = accepted_count.moved + VALUES(moved);

-- lock_changes: lock changes of counts that are not folded yet, skipping locked ones, and keep their keys in @changes
SELECT JSON_ARRAYAGG(JSON_OBJECT('first_number', first_number, 'queue_id', queue_id, 'day', day)) INTO @changes
FROM (
    SELECT first_number, queue_id, day
    FROM accepted_count FORCE INDEX (PRIMARY)
    WHERE first_number > 0
    ORDER BY first_number
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS unfolded;

-- fold_accepted: add changes that this transaction has locked to the row of their queue and day
INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted, moved, unarchived)
SELECT 0, c.queue_id, c.day, MAX(c.queue), SUM(c.accepted), SUM(c.moved), SUM(c.unarchived)
FROM JSON_TABLE(@changes, '$[*]' COLUMNS (
    first_number BIGINT PATH '$.first_number',
    queue_id INT PATH '$.queue_id',
    day INT PATH '$.day'
)) AS entry
STRAIGHT_JOIN accepted_count AS c FORCE INDEX (PRIMARY)
    ON c.first_number = entry.first_number AND c.queue_id = entry.queue_id AND c.day = entry.day
GROUP BY c.queue_id, c.day
ORDER BY c.queue_id, c.day
ON DUPLICATE KEY UPDATE
    accepted_count.accepted = accepted_count.accepted + VALUES(accepted),
    accepted_count.moved = accepted_count.moved + VALUES(moved),
    accepted_count.unarchived = accepted_count.unarchived + VALUES(unarchived);

-- delete_folded: delete the changes that this transaction has folded
DELETE c
FROM JSON_TABLE(@changes, '$[*]' COLUMNS (
    first_number BIGINT PATH '$.first_number',
    queue_id INT PATH '$.queue_id',
    day INT PATH '$.day'
)) AS entry
STRAIGHT_JOIN accepted_count AS c FORCE INDEX (PRIMARY)
    ON c.first_number = entry.first_number AND c.queue_id = entry.queue_id AND c.day = entry.day;

-- ---- histories -------------------------------------------------------------------------------------------------------

-- record_ends: record how deliveries or messages ended, each with the receiver of the delivery, if their queues keep a history
INSERT INTO message_event (
    sequence_number, queue_id, happened_at, event, state, outcome, receiver_id, reason, delivery_count, remove_at
)
SELECT
    entry.sequence_number, q.id, @now, entry.event, entry.state, entry.outcome,
    (
        SELECT receiver_id FROM message_event AS e FORCE INDEX (message_event_message)
        WHERE e.sequence_number = entry.sequence_number AND e.lock_token = UNHEX(entry.lock_token)
        ORDER BY e.id DESC LIMIT 1
    ),
    entry.reason,
    (
        SELECT delivery_count FROM message_event AS e FORCE INDEX (message_event_message)
        WHERE e.sequence_number = entry.sequence_number AND e.lock_token = UNHEX(entry.lock_token)
        ORDER BY e.id DESC LIMIT 1
    ),
    @now + q.history_retention
FROM JSON_TABLE(:entries, '$[*]' COLUMNS (
    sequence_number BIGINT PATH '$.sequence_number',
    queue_id INT PATH '$.queue_id',
    lock_token VARCHAR(32) CHARACTER SET utf8mb4 PATH '$.lock_token',
    event VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.event',
    state SMALLINT PATH '$.state',
    outcome VARCHAR(64) CHARACTER SET utf8mb4 PATH '$.outcome',
    reason TEXT CHARACTER SET utf8mb4 PATH '$.reason'
)) AS entry
STRAIGHT_JOIN queue AS q FORCE INDEX (PRIMARY) ON q.id = entry.queue_id
WHERE q.history_retention IS NOT NULL;

-- ---- attempts ---------------------------------------------------------------------------------------------------------

-- attempt_for_update: fail if another transaction makes the same attempt at this moment
SELECT 1 FROM attempt WHERE attempt_key = :attempt_key FOR UPDATE NOWAIT;

-- begin_attempt: record an attempt unless it is known
INSERT INTO attempt (attempt_key, fingerprint, remove_at)
VALUES (:attempt_key, :fingerprint, @now + :retention)
ON DUPLICATE KEY UPDATE attempt_key = attempt.attempt_key;

-- earlier_attempt: the fingerprint and answer of the first attempt with this key; no row if it is new or removed
SELECT fingerprint, answer
FROM attempt
WHERE attempt_key = :attempt_key
  AND answer IS NOT NULL
  AND remove_at > @now;

-- answer_attempt: save the answer of an attempt, in the transaction that did its work
UPDATE attempt
SET fingerprint = :fingerprint,
    answer = :answer,
    remove_at = @now + :retention
WHERE attempt_key = :attempt_key;

-- was_migrated: a row if a migration has recorded its revision here
SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'alembic_version';

-- ---- lock on the database ---------------------------------------------------------------------------------------------

-- acquire_exclusive: take all named locks of this database, so that no other process serves it, until disconnection
--
-- Every release uses these names, so that processes of different releases exclude each other.
WITH RECURSIVE named_lock (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM named_lock WHERE number < 256)
SELECT COUNT(*) = SUM(GET_LOCK(CONCAT('peeklock seat ', number, ' ', MD5(DATABASE())), 0))
FROM named_lock;

-- acquire_shared: take one named lock of this database, so that no process can serve it exclusively
WITH RECURSIVE named_lock (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM named_lock WHERE number < 256)
SELECT EXISTS (
    SELECT 1 FROM named_lock
    WHERE GET_LOCK(CONCAT('peeklock seat ', number, ' ', MD5(DATABASE())), 0) = 1
    LIMIT 1
);

-- is_served: whether a process has registered on this database
WITH RECURSIVE named_lock (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM named_lock WHERE number < 256)
SELECT EXISTS (
    SELECT 1 FROM named_lock
    WHERE IS_USED_LOCK(CONCAT('peeklock seat ', number, ' ', MD5(DATABASE()))) IS NOT NULL
);

-- start_lock_version: invalidate the lock records of all queues
UPDATE queue SET lock_purges = :version;

-- unsafe_settings: settings by which the server can lose an acknowledged commit
SELECT 'innodb_flush_log_at_trx_commit' FROM DUAL WHERE @@innodb_flush_log_at_trx_commit NOT IN (1, 3)
UNION ALL
SELECT 'sync_binlog' FROM DUAL WHERE @@log_bin = 1 AND @@sync_binlog <> 1
UNION ALL
SELECT 'innodb_doublewrite' FROM DUAL WHERE CAST(@@innodb_doublewrite AS CHAR) IN ('0', 'OFF');

-- highest_number: the last sequence number that was given out. MySQL may show its counter as it was a day ago, so rows count too
SELECT GREATEST(
    COALESCE((
        SELECT AUTO_INCREMENT - 1 FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'message'
    ), 0),
    COALESCE((SELECT MAX(sequence_number) FROM message), 0),
    COALESCE((SELECT MAX(sequence_number) FROM archive), 0),
    COALESCE((SELECT MAX(sequence_number) FROM settlement), 0)
);

-- highest_queue_id: the last id of a queue that was given out
SELECT GREATEST(
    COALESCE((
        SELECT AUTO_INCREMENT - 1 FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'queue'
    ), 0),
    COALESCE((SELECT MAX(id) FROM queue), 0)
);

-- continue_numbers_at: give out no lower sequence number
ALTER TABLE message AUTO_INCREMENT = :first;

-- continue_queue_ids_at: give out no lower id of a queue
ALTER TABLE queue AUTO_INCREMENT = :first;

-- version: the server's version
SELECT @@version;

-- ---- cold statements in MariaDB's and MySQL's syntax ------------------------------------------------------------------

-- count_ahead: the number of available messages before a position in the order of delivery, up to a limit
SELECT COUNT(*)
FROM (
    (
        SELECT sequence_number FROM message FORCE INDEX (message_next)
        WHERE queue_id = :queue_id
          AND state = 1
          AND priority > :priority
        LIMIT :limit
    )
    UNION ALL
    (
        SELECT sequence_number FROM message FORCE INDEX (message_next)
        WHERE queue_id = :queue_id
          AND state = 1
          AND priority = :priority
          AND available_at <= :available_at
          AND (available_at < :available_at OR sequence_number < :sequence_number)
        LIMIT :limit
    )
    LIMIT :limit
) AS ahead;

-- orphaned_queues: queue ids that messages name and no queue has; one index look-up per id, however many messages
SELECT named.queue_id
FROM (SELECT DISTINCT queue_id FROM message FORCE INDEX (message_by_state)) AS named
WHERE named.queue_id NOT IN (SELECT id FROM queue);

-- create_queue: create a queue, unless one of this name exists
INSERT INTO queue (name, settings, feature_level, group_in_flight, history_retention, version, created_at, updated_at)
SELECT :name, :settings, :feature_level, :group_in_flight, :history_retention, 1, clock.now, clock.now
FROM (SELECT @now AS now) AS clock
WHERE NOT EXISTS (SELECT 1 FROM queue WHERE name = :name);

-- create_state: create a state without versions, unless the key has one; its row is locked at once in either case
INSERT INTO state (state_key, number, updated_at) VALUES (:state_key, 0, 0)
ON DUPLICATE KEY UPDATE number = number;
