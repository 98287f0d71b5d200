-- The statements that PostgreSQL runs for every message, and those whose syntax differs from common.sql.
--
-- Many callers share one statement. Their values are arrays that become rows. `entry_index` is the index of an entry,
-- from 1, and `slot` that of a requested message. A caller that is alone runs a statement whose name ends in `_one`,
-- because arrays and sums over them cost more than the work itself. `@entries` makes both of one text. Each statement is
-- a transaction of its own. It skips a row that another transaction has locked: the request for that row has no effect,
-- and the requests for all other rows proceed.
--
-- A plan is made once per connection, perhaps while the planner takes the tables for empty. So each statement leaves it
-- one plan that is good at any size: a LATERAL finds rows one by one, and cannot be reordered because it locks them or
-- stops at one. Then the statement changes them by `ctid`. `IS TRUE` keeps a condition from choosing the index.
--
-- If a row was changed while the statement ran, its new version is outside the statement's snapshot and stays as it is.
-- So all other writes and results derive from the rows that were changed.

-- ---- sending ---------------------------------------------------------------------------------------------------------

-- send: store drafts, numbered in their order, if each of their queues exists
@store_drafts
SELECT sequence_number, enqueued_at, state FROM stored;

-- send_recorded: the same, and record it
@store_drafts,
@record_stored
SELECT sequence_number, enqueued_at, state FROM stored;

-- @store_drafts: store drafts as `stored`, and count them
WITH stored AS (
    INSERT INTO message (
        queue_id, state, home_state, priority, enqueued_at, available_at, expires_at,
        delivery_count, failure_count, lock_generation, message_id, group_id, headers, properties, body_kind, body,
        content_digest, in_group, shared_body_id, shared_body_bytes
    )
    SELECT
        draft.queue_id, CASE WHEN due.at > clock.now THEN 3 WHEN draft.in_group = 2 THEN 7 ELSE 1 END, 1,
        draft.priority, clock.now, due.at, due.at + draft.ttl,
        0, 0, 0, draft.message_id, draft.group_id, draft.headers, draft.properties, draft.body_kind, draft.body,
        draft.content_digest, CASE WHEN due.at <= clock.now THEN draft.in_group END,
        draft.shared_body_id, draft.shared_body_bytes
    FROM (SELECT @now AS now) AS clock
    CROSS JOIN @table(
        queue_id int, priority smallint, available_at bigint, delay bigint, ttl bigint, message_id text,
        group_id text, headers text, properties text, body_kind smallint, body bytea, content_digest bytea,
        in_group smallint, shared_body_id text, shared_body_bytes bigint
    ) AS draft
    CROSS JOIN LATERAL (SELECT greatest(clock.now, draft.available_at, clock.now + draft.delay) AS at) AS due
    WHERE NOT EXISTS (
        SELECT FROM unnest(:distinct_queue_ids::int[]) AS required (id)
        WHERE NOT EXISTS (
            SELECT FROM queue
            WHERE queue.id = required.id
              AND feature_level <= @feature_level  -- fence: level
        )
    )
    ORDER BY draft.entry_index
    RETURNING sequence_number, enqueued_at, state, queue_id
),
tally AS MATERIALIZED (
    SELECT
        queue_id, min(sequence_number) AS first_number, count(*) AS total,
        count(*) FILTER (WHERE state = 3) AS scheduled, count(*) FILTER (WHERE state = 7) AS blocked,
        min(enqueued_at) AS enqueued_at
    FROM stored
    GROUP BY queue_id
),
counted AS (
    INSERT INTO depth (queue_id, total, scheduled, blocked)
    SELECT queue_id, total, scheduled, blocked FROM tally
),
accepted AS (
    INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted)
    SELECT tally.first_number, tally.queue_id, tally.enqueued_at / 86400000000, named.name, tally.total
    FROM tally
    CROSS JOIN LATERAL (SELECT name FROM queue WHERE id = tally.queue_id LIMIT 1) AS named
)

-- send_one: store one draft, if its queue exists
@store_draft
SELECT sequence_number, enqueued_at, state FROM stored;

-- send_recorded_one: the same, and record it
@store_draft,
@record_stored
SELECT sequence_number, enqueued_at, state FROM stored;

-- @store_draft: store one draft as `stored`, and count it
WITH target AS MATERIALIZED (
    SELECT id, name, @now AS now
    FROM queue
    WHERE id = :queue_id
      AND feature_level <= @feature_level  -- fence: level
),
stored AS (
    INSERT INTO message (
        queue_id, state, home_state, priority, enqueued_at, available_at, expires_at,
        delivery_count, failure_count, lock_generation, message_id, group_id, headers, properties, body_kind, body,
        content_digest, in_group, shared_body_id, shared_body_bytes
    )
    SELECT
        target.id, CASE WHEN due.at > target.now THEN 3 WHEN :in_group::smallint = 2 THEN 7 ELSE 1 END, 1, :priority,
        target.now, due.at, due.at + :ttl::bigint,
        0, 0, 0, :message_id, :group_id, :headers, :properties, :body_kind, :body,
        :content_digest, CASE WHEN due.at <= target.now THEN :in_group::smallint END, :shared_body_id, :shared_body_bytes
    FROM target
    CROSS JOIN LATERAL (
        SELECT greatest(target.now, :available_at::bigint, target.now + :delay::bigint) AS at
    ) AS due
    RETURNING sequence_number, enqueued_at, state, queue_id
),
counted AS (
    INSERT INTO depth (queue_id, total, scheduled, blocked)
    SELECT :queue_id, 1, CASE WHEN state = 3 THEN 1 ELSE 0 END, CASE WHEN state = 7 THEN 1 ELSE 0 END FROM stored
),
accepted AS (
    INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted)
    SELECT stored.sequence_number, target.id, stored.enqueued_at / 86400000000, target.name, 1
    FROM stored
    CROSS JOIN target
)

-- send_unless_repeated: the same as `send`, but store a draft with a window only as the first of its message id within the window
--
-- A message id that another transaction has locked fails the statement. It waits only as long as most commits take.
@store_unless_repeated
@receipts;

-- send_unless_repeated_recorded: the same, and record it
@store_unless_repeated,
@record_stored
@receipts;

-- @receipts: number, time and state of each draft, and whether it was stored
SELECT sequence_number, now, state, sequence_number IN (SELECT sequence_number FROM stored) AS is_stored
FROM draft
ORDER BY entry_index

-- @store_unless_repeated: store those drafts as `stored` that do not repeat a message id, and count them
WITH clock AS MATERIALIZED (SELECT @now AS now, set_config('lock_timeout', '20ms', true)),
draft AS MATERIALIZED (
    SELECT
        nextval('message_sequence_number_seq') AS sequence_number,
        CASE WHEN due.at > clock.now THEN 3 WHEN entry.in_group = 2 THEN 7 ELSE 1 END AS state,
        clock.now, due.at AS due_at, due.at + entry.ttl AS expires_at, entry.*
    FROM clock
    CROSS JOIN @table(
        queue_id int, priority smallint, available_at bigint, delay bigint, ttl bigint, message_id text,
        group_id text, headers text, properties text, body_kind smallint, body bytea, content_digest bytea,
        in_group smallint, shared_body_id text, shared_body_bytes bigint, duplicate_window bigint
    ) AS entry
    CROSS JOIN LATERAL (SELECT greatest(clock.now, entry.available_at, clock.now + entry.delay) AS at) AS due
    WHERE NOT EXISTS (
        SELECT FROM unnest(:distinct_queue_ids::int[]) AS required (id)
        WHERE NOT EXISTS (
            SELECT FROM queue
            WHERE queue.id = required.id
              AND feature_level <= @feature_level  -- fence: level
        )
    )
),
-- A concurrent sender of the same id waits here until the other transaction ends.
first AS (
    INSERT INTO recent_id AS recent (queue_id, message_id, sequence_number, state, enqueued_at, remove_at)
    SELECT queue_id, message_id, sequence_number, state, now, now + duplicate_window
    FROM draft
    WHERE duplicate_window > 0
    ORDER BY queue_id, message_id
    ON CONFLICT (queue_id, message_id) DO UPDATE SET
        sequence_number = excluded.sequence_number,
        state = excluded.state,
        enqueued_at = excluded.enqueued_at,
        remove_at = excluded.remove_at
    WHERE recent.remove_at <= excluded.enqueued_at
    RETURNING sequence_number
),
stored AS (
    INSERT INTO message (
        sequence_number, queue_id, state, home_state, priority, enqueued_at, available_at, expires_at,
        delivery_count, failure_count, lock_generation, message_id, group_id, headers, properties, body_kind, body,
        content_digest, in_group, shared_body_id, shared_body_bytes
    )
    SELECT
        sequence_number, queue_id, state, 1, priority, now, due_at, expires_at,
        0, 0, 0, message_id, group_id, headers, properties, body_kind, body, content_digest,
        CASE WHEN state = 7 THEN in_group END, shared_body_id, shared_body_bytes
    FROM draft
    WHERE duplicate_window = 0 OR sequence_number IN (SELECT sequence_number FROM first)
    RETURNING sequence_number, enqueued_at, state, queue_id
),
tally AS MATERIALIZED (
    SELECT
        queue_id, min(sequence_number) AS first_number, count(*) AS total,
        count(*) FILTER (WHERE state = 3) AS scheduled, count(*) FILTER (WHERE state = 7) AS blocked,
        min(enqueued_at) AS enqueued_at
    FROM stored
    GROUP BY queue_id
),
counted AS (
    INSERT INTO depth (queue_id, total, scheduled, blocked)
    SELECT queue_id, total, scheduled, blocked FROM tally
),
accepted AS (
    INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted)
    SELECT tally.first_number, tally.queue_id, tally.enqueued_at / 86400000000, named.name, tally.total
    FROM tally
    CROSS JOIN LATERAL (SELECT name FROM queue WHERE id = tally.queue_id LIMIT 1) AS named
)

-- @record_stored: record that messages were stored, in queues that keep a history
recorded AS (
    INSERT INTO message_event (sequence_number, queue_id, happened_at, event, state, remove_at)
    SELECT
        stored.sequence_number, stored.queue_id, stored.enqueued_at, 'sent', stored.state,
        stored.enqueued_at + q.history_retention
    FROM stored
    CROSS JOIN LATERAL (
        SELECT history_retention FROM queue WHERE id = stored.queue_id AND history_retention IS NOT NULL LIMIT 1
    ) AS q
)

-- add_shared_bodies: store bodies that messages of this transaction share
INSERT INTO shared_body (id, body) SELECT * FROM unnest(:ids::text[], :bodies::bytea[]);

-- first_receipts: the first receipts for these message ids, with the states of the messages now, null for one that has ended
SELECT recent.queue_id, recent.message_id, recent.sequence_number, recent.enqueued_at, m.state
FROM unnest(:queue_id::int[], :message_id::text[]) AS entry (queue_id, message_id)
CROSS JOIN LATERAL (
    SELECT * FROM recent_id
    WHERE queue_id = entry.queue_id
      AND message_id = entry.message_id
    LIMIT 1
) AS recent
LEFT JOIN LATERAL (
    SELECT state FROM message WHERE sequence_number = recent.sequence_number LIMIT 1
) AS m ON TRUE
WHERE @replicated;

-- correct_receipts: note that messages with these ids, whose groups had a free place, are available
UPDATE recent_id SET state = 1
WHERE ctid = ANY(ARRAY(
    SELECT found.ctid
    FROM json_to_recordset(:ids::json) AS entry (queue_id int, message_id text)
    CROSS JOIN LATERAL (
        SELECT ctid FROM recent_id
        WHERE queue_id = entry.queue_id
          AND message_id = entry.message_id
        FOR UPDATE
    ) AS found
));

-- ---- receiving -------------------------------------------------------------------------------------------------------

-- claim: lock the next messages of some queues, for each priority from the position of the queue's ScanBound on
--
-- Together they weigh no more than the budget, unless the first one alone exceeds it. The scan ends with the second row
-- beyond the budget. PostgreSQL before 15 cannot end it there: those rows stay locked until the statement ends.
@lock_messages;

-- claim_recorded: the same, and record it
WITH claimed AS (
    @lock_messages
),
@record_claimed
SELECT * FROM claimed;

-- @lock_messages: the text of `claim`
WITH clock AS MATERIALIZED (
    SELECT @now AS now, pg_stat_get_xact_tuples_returned('message_next'::regclass) AS entries_read
),
-- Run once, because it is materialized. A second run would lock other rows.
next AS MATERIALIZED (
    SELECT row, slot, over_budget
    FROM (
        SELECT
            row, slot,
            count(*) FILTER (WHERE running_weight > :budget AND running_weight > weight)
                OVER (ROWS UNBOUNDED PRECEDING) AS over_budget
        FROM (
            SELECT
                ready.row, (request.slots_before + ready.number)::int AS slot, ready.weight,
                sum(ready.weight) OVER (ROWS UNBOUNDED PRECEDING) AS running_weight
            FROM clock
            CROSS JOIN unnest(:queue_id::int[], :max_messages::int[], :slots_before::int[])
                WITH ORDINALITY AS request (queue_id, max_messages, slots_before, queue_index)
            CROSS JOIN LATERAL (
                SELECT locked.row, locked.weight, row_number() OVER () AS number
                FROM (
                    -- Rows are locked one by one as they are scanned, in this order and no more than requested.
                    SELECT scanned.row, scanned.weight
                    FROM generate_series(9, 0, -1) AS level (priority)
                    CROSS JOIN LATERAL (
                        SELECT m.ctid AS row, @m.weight AS weight
                        FROM message AS m
                        WHERE m.queue_id = request.queue_id
                          AND m.state = 1
                          AND m.priority = level.priority
                          AND (m.available_at, m.sequence_number) >= (
                              coalesce((:bound_time::bigint[])[10 * request.queue_index - level.priority], 0),
                              coalesce((:bound_number::bigint[])[10 * request.queue_index - level.priority], 0)
                          )
                          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
                        ORDER BY m.available_at, m.sequence_number
                        FOR UPDATE SKIP LOCKED
                    ) AS scanned
                    LIMIT request.max_messages
                ) AS locked
            ) AS ready
        ) AS found
    ) AS measured
    WHERE over_budget < 2
),
-- Index entries that the scan has read, counted when all rows are found. The others belong to dead or locked rows.
scan AS MATERIALIZED (
    SELECT
        min(slot) FILTER (WHERE over_budget > 0) AS truncated_at,
        pg_stat_get_xact_tuples_returned('message_next'::regclass) - (SELECT entries_read FROM clock) AS entries_read
    FROM next
)
UPDATE message AS m SET
    state = 2,
    home_state = CASE WHEN m.home_state = 8 THEN 8 ELSE 1 END,
    delivery_count = m.delivery_count + 1,
    lock_token = substring(:secrets::bytea FROM 16 * next.slot - 15 FOR 16),
    locked_until = least(
        clock.now + lock.duration, CASE WHEN lock.duration > 43200000000 THEN m.expires_at END
    ),
    lock_generation = 0,
    receiver_id = (:receiver_id::text[])[least(next.slot, cardinality(:receiver_id::text[]))],
    first_delivered_at = coalesce(m.first_delivered_at, clock.now),
    last_delivered_at = clock.now
FROM clock, scan, next,
    LATERAL (
        SELECT (:lock_duration::bigint[])[least(next.slot, cardinality(:lock_duration::bigint[]))] AS duration
    ) AS lock
WHERE m.ctid = next.row
  AND next.over_budget = 0
RETURNING @m.message, next.slot, scan.entries_read, scan.truncated_at

-- claim_one: lock the next message of one queue, from the start of the queue; columns as `claim` has them
--
-- The index holds all priorities in the order of delivery. The scan ends with the first row that no other transaction has
-- locked, so this statement locks the row that it takes and no other.
@lock_message;

-- claim_recorded_one: the same, and record it
WITH claimed AS (
    @lock_message
),
@record_claimed
SELECT * FROM claimed;

-- @record_claimed: record that messages were delivered, in queues that keep a history
recorded AS (
    INSERT INTO message_event (
        sequence_number, queue_id, happened_at, event, state, lock_token, receiver_id, delivery_count, remove_at
    )
    SELECT
        claimed.sequence_number, claimed.queue_id, claimed.last_delivered_at, 'delivered', claimed.state,
        claimed.lock_token, claimed.receiver_id, claimed.delivery_count,
        claimed.last_delivered_at + q.history_retention
    FROM claimed
    CROSS JOIN LATERAL (
        SELECT history_retention FROM queue WHERE id = claimed.queue_id AND history_retention IS NOT NULL LIMIT 1
    ) AS q
)

-- @lock_message: the text of `claim_one`
WITH clock AS MATERIALIZED (
    SELECT @now AS now, pg_stat_get_xact_tuples_returned('message_next'::regclass) AS entries_read
),
-- Run once, because it is materialized. A second run would lock another row.
next AS MATERIALIZED (
    SELECT ready.row, clock.now, clock.entries_read
    FROM clock
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row
        FROM message AS m
        WHERE m.queue_id = :queue_id
          AND m.state = 1
          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
        ORDER BY m.priority DESC, m.available_at, m.sequence_number
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS ready
)
UPDATE message AS m SET
    state = 2,
    home_state = CASE WHEN m.home_state = 8 THEN 8 ELSE 1 END,
    delivery_count = m.delivery_count + 1,
    lock_token = :secret,
    locked_until = least(
        next.now + :lock_duration, CASE WHEN :lock_duration > 43200000000 THEN m.expires_at END
    ),
    lock_generation = 0,
    receiver_id = :receiver_id,
    first_delivered_at = coalesce(m.first_delivered_at, next.now),
    last_delivered_at = next.now
FROM next
WHERE m.ctid = next.row
RETURNING
    @m.message, 1 AS slot,
    pg_stat_get_xact_tuples_returned('message_next'::regclass) - next.entries_read AS entries_read,
    NULL::int AS truncated_at

-- claimable_queues: which of these queues have a message to claim, the clock, and the number of skipped index entries
WITH clock AS MATERIALIZED (
    SELECT @now AS now, pg_stat_get_xact_tuples_returned('message_next'::regclass) AS entries_read
),
ready AS MATERIALIZED (
    SELECT request.queue_id
    FROM clock
    CROSS JOIN unnest(:queue_id::int[]) AS request (queue_id)
    WHERE EXISTS (
        SELECT FROM message AS m
        WHERE m.queue_id = request.queue_id
          AND m.state = 1
          AND (m.expires_at IS NULL OR m.expires_at > clock.now)
    )
)
SELECT
    coalesce(array_agg(queue_id), '{}'),
    (SELECT now FROM clock),
    pg_stat_get_xact_tuples_returned('message_next'::regclass) - (SELECT entries_read FROM clock)
FROM ready;

-- claim_dead_letters: lock the next messages of one dead-letter queue, by number
WITH clock AS MATERIALIZED (SELECT @now AS now),
found AS (
    SELECT
        locked.row, locked.weight, row_number() OVER ()::int AS slot,
        sum(locked.weight) OVER (ROWS UNBOUNDED PRECEDING) AS running_weight
    FROM (
        SELECT m.ctid AS row, @m.weight AS weight FROM message AS m
        WHERE m.queue_id = :queue_id
          AND m.state = 5
        ORDER BY m.sequence_number
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
next AS MATERIALIZED (
    SELECT * FROM (
        SELECT
            row, slot,
            count(*) FILTER (WHERE running_weight > :budget AND running_weight > weight)
                OVER (ROWS UNBOUNDED PRECEDING) AS over_budget
        FROM found
    ) AS measured
    WHERE over_budget < 1
),
claimed AS (
    UPDATE message AS m SET
        state = 2,
        home_state = 5,
        delivery_count = m.delivery_count + 1,
        lock_token = substring(:secrets::bytea FROM 16 * next.slot - 15 FOR 16),
        locked_until = clock.now + :lock_duration,
        lock_generation = 0,
        receiver_id = :receiver_id,
        first_delivered_at = coalesce(m.first_delivered_at, clock.now),
        last_delivered_at = clock.now
    FROM clock, next
    WHERE m.ctid = next.row
    RETURNING @m.message, next.slot
),
counted AS (
    INSERT INTO depth (queue_id, dead_lettered)
    SELECT :queue_id, -count(*) FROM claimed HAVING count(*) > 0
)
SELECT * FROM claimed;

-- candidates: available messages after a position in the order of delivery, without their bodies
SELECT @m.metadata
FROM unnest('{1}'::smallint[]) AS available (state)
CROSS JOIN generate_series(:priority::int, 0, -1) AS level (priority)
CROSS JOIN LATERAL (
    SELECT * FROM message
    WHERE queue_id = :queue_id
      -- Repeated: the index implies the state, so the planner would leave it out and search the whole queue.
      AND state = ANY('{1}'::smallint[])
      AND state = available.state
      AND priority = level.priority
      AND (available_at, sequence_number) > (
          CASE WHEN level.priority = :priority THEN :available_at::bigint ELSE 0 END,
          CASE WHEN level.priority = :priority THEN :sequence_number::bigint ELSE 0 END
      )
      AND (expires_at IS NULL OR expires_at > @now)
    ORDER BY available_at, sequence_number
    LIMIT :limit
) AS m
LIMIT :limit;

-- claim_by_number: lock those messages of one queue, given by number, that are in one state
WITH clock AS MATERIALIZED (SELECT @now AS now),
found AS (
    SELECT
        locked.row, locked.weight, request.slot::int AS slot,
        sum(locked.weight) OVER (ROWS UNBOUNDED PRECEDING) AS running_weight
    FROM clock
    CROSS JOIN unnest(:numbers::bigint[]) WITH ORDINALITY AS request (sequence_number, slot)
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row, @m.weight AS weight FROM message AS m
        WHERE m.sequence_number = request.sequence_number
          AND m.queue_id = :queue_id
          AND m.state = :source
          AND (m.state = 5 OR m.expires_at IS NULL OR m.expires_at > clock.now)
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
next AS MATERIALIZED (
    SELECT row, slot FROM (
        SELECT
            row, slot,
            count(*) FILTER (WHERE running_weight > :budget AND running_weight > weight)
                OVER (ROWS UNBOUNDED PRECEDING) AS over_budget
        FROM found
    ) AS measured
    WHERE over_budget < 1
    LIMIT :limit
),
claimed AS (
    UPDATE message AS m SET
        state = 2,
        home_state = CASE WHEN m.home_state = 8 THEN 8 ELSE m.state END,
        delivery_count = m.delivery_count + 1,
        lock_token = substring(:secrets::bytea FROM 16 * next.slot - 15 FOR 16),
        locked_until = least(
            clock.now + :lock_duration, CASE WHEN :lock_duration > 43200000000 AND m.state <> 5 THEN m.expires_at END
        ),
        lock_generation = 0,
        receiver_id = :receiver_id,
        first_delivered_at = coalesce(m.first_delivered_at, clock.now),
        last_delivered_at = clock.now
    FROM clock, next
    WHERE m.ctid = next.row
    RETURNING @m.message, next.slot
),
counted AS (
    INSERT INTO depth (queue_id, deferred, dead_lettered)
    SELECT :queue_id, -count(*) FILTER (WHERE :source = 4), -count(*) FILTER (WHERE :source = 5)
    FROM claimed
    HAVING count(*) > 0
)
SELECT * FROM claimed;

-- ---- settling --------------------------------------------------------------------------------------------------------

-- remove: delete locked messages from their queues, into the archive or leaving a tombstone
@remove_locked,
@keep_removed
@removed_entries;

-- remove_recorded: the same, and record that receivers have settled them
@remove_locked,
@keep_removed,
recorded AS (
    INSERT INTO message_event (
        sequence_number, queue_id, happened_at, event, outcome, receiver_id, delivery_count, remove_at
    )
    SELECT
        removed.sequence_number, removed.queue_id, removed.now, 'settled', removed.outcome, delivery.receiver_id,
        delivery.delivery_count, removed.now + q.history_retention
    FROM removed
    CROSS JOIN LATERAL (
        SELECT history_retention FROM queue WHERE id = removed.queue_id AND history_retention IS NOT NULL LIMIT 1
    ) AS q
    LEFT JOIN LATERAL (
        SELECT e.receiver_id, e.delivery_count FROM message_event AS e
        WHERE e.sequence_number = removed.sequence_number
          AND e.queue_id > 0
          AND (e.lock_token = removed.lock_token) IS TRUE
        ORDER BY e.id DESC
        LIMIT 1
    ) AS delivery ON true
)
@removed_entries;

-- @removed_entries: the index, the queue and the group of each entry that was removed
SELECT entry_index, queue_id, CASE WHEN in_group = 1 THEN group_id END AS left_group FROM removed

-- @remove_locked: delete locked messages as `removed`
WITH clock AS MATERIALIZED (SELECT @now AS now),
ended AS MATERIALIZED (
    SELECT clock.now, entry.entry_index, entry.queue, entry.outcome, entry.retention, locked.row
    FROM clock
    CROSS JOIN @entries(
        sequence_number bigint, lock_token bytea, queue_id int,
        queue text, outcome text, retention bigint, generation_above int, max_generation int
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row
        FROM message AS m
        WHERE m.sequence_number = entry.sequence_number
          AND m.queue_id = entry.queue_id  -- fence: queue
          AND m.state = 2  -- fence: locked
          AND m.lock_token = entry.lock_token  -- fence: token
          AND (m.locked_until > clock.now OR entry.generation_above < -1) IS TRUE  -- fence: time
          AND m.lock_generation > entry.generation_above  -- fence: generation
          AND m.lock_generation <= entry.max_generation  -- fence: generation
          AND m.home_state <> 8  -- fence: offer
          AND (m.in_group IS NULL OR :admits::boolean)  -- fence: group
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
removed AS (
    DELETE FROM message AS m
    USING ended
    WHERE m.ctid = ended.row
    RETURNING ended.now, ended.entry_index, ended.queue, ended.outcome, ended.retention, m.in_group, @m.archived
)

-- @keep_removed: count the messages of `removed`, and archive them or leave a tombstone
discounted AS (
    INSERT INTO depth (queue_id, total)
    SELECT queue_id, -count(*) FROM removed GROUP BY queue_id
),
unarchived AS (
    INSERT INTO accepted_count (first_number, queue_id, day, queue, unarchived)
    SELECT min(sequence_number), queue_id, enqueued_at / 86400000000, min(queue), count(*)
    FROM removed
    WHERE retention = 0 AND content_digest IS NOT NULL
    GROUP BY queue_id, enqueued_at / 86400000000
    ON CONFLICT (first_number, queue_id, day) DO UPDATE
    SET unarchived = accepted_count.unarchived + excluded.unarchived
),
archived AS (
    INSERT INTO archive (@archived, queue, outcome, settled_at, remove_at, export_batch)
    SELECT @archived, queue, outcome, now, now + retention, 0
    FROM removed
    WHERE retention > 0
),
unsealed AS (
    INSERT INTO archive_seal (sequence_number, remove_at)
    SELECT sequence_number, now + retention
    FROM removed
    WHERE retention > 0
),
tombstones AS (
    INSERT INTO settlement (sequence_number, lock_token, queue_id, outcome, settled_at, remove_at)
    SELECT sequence_number, lock_token, queue_id, outcome, now, now + :tombstone_retention
    FROM removed
    WHERE retention < :tombstone_retention
)

-- commit: complete messages, send their results and add versions to states, each commit as a whole or not at all
--
-- A commit has no effect here if another transaction holds its message, its state or its attempt, or if it is a repeat, a
-- duplicate or in conflict. It runs again alone, and finds out why. This statement waits for no row. It waits for a
-- transaction that creates the same state, but only as long as most commits take. A subquery with LIMIT 1 is looked up in
-- an index for each commit, at any size of the table.
WITH clock AS MATERIALIZED (SELECT @now AS now, set_config('lock_timeout', '20ms', true)),
gone AS MATERIALIZED (
    SELECT required.id
    FROM unnest(:distinct_queue_ids::int[]) AS required (id)
    WHERE NOT EXISTS (
        SELECT FROM queue
        WHERE queue.id = required.id
          AND feature_level <= @feature_level  -- fence: level
    )
),
ready AS MATERIALIZED (
    SELECT
        clock.now, entry.*, locked.row, present.id AS state_id, present.row AS state_row,
        greatest(clock.now, present.updated_at) AS created_at
    FROM clock
    CROSS JOIN @entries(
        sequence_number bigint, lock_token bytea, from_queue_id int, queue text, outcome text, retention bigint,
        generation_above int, max_generation int, attempt_key bytea, fingerprint bytea, answer_retention bigint,
        state_key text, if_version bigint, processed_id text, value bytea, metadata bytea, result_digest bytea
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row
        FROM message AS m
        WHERE m.sequence_number = entry.sequence_number
          AND m.queue_id = entry.from_queue_id  -- fence: queue
          AND m.state = 2  -- fence: locked
          AND m.lock_token = entry.lock_token  -- fence: token
          AND (m.locked_until > clock.now OR entry.generation_above < -1) IS TRUE  -- fence: time
          AND m.lock_generation > entry.generation_above  -- fence: generation
          AND m.lock_generation <= entry.max_generation  -- fence: generation
          AND m.home_state <> 8  -- fence: offer
          AND m.in_group IS NULL  -- fence: group
        FOR UPDATE SKIP LOCKED
    ) AS locked
    LEFT JOIN LATERAL (
        SELECT s.ctid AS row, s.id, s.updated_at
        FROM state AS s
        WHERE s.state_key = entry.state_key
          AND s.number = entry.if_version
          AND (SELECT 1 FROM state_version WHERE state_id = s.id AND message_id = entry.processed_id LIMIT 1) IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS present ON true
    WHERE (
            entry.state_key IS NULL
            OR present.id IS NOT NULL
            OR (entry.if_version = 0 AND (SELECT 1 FROM state WHERE state_key = entry.state_key LIMIT 1) IS NULL)
        )
      AND NOT EXISTS (SELECT FROM gone)
      AND (SELECT 1 FROM attempt WHERE attempt_key = entry.attempt_key LIMIT 1) IS NULL
      AND pg_try_advisory_xact_lock(hashtextextended(encode(entry.attempt_key, 'hex'), 0))
),
removed AS (
    DELETE FROM message AS m
    USING ready
    WHERE m.ctid = ready.row
    RETURNING
        ready.now, ready.entry_index, ready.queue, ready.outcome, ready.retention, m.in_group, @m.archived,
        ready.attempt_key, ready.fingerprint, ready.answer_retention, ready.state_key, ready.state_id, ready.state_row,
        ready.if_version + 1 AS number, ready.processed_id, ready.value, ready.metadata, ready.result_digest,
        ready.created_at
),
@keep_removed,
draft AS MATERIALIZED (
    SELECT
        nextval('message_sequence_number_seq') AS sequence_number, removed.now,
        CASE WHEN due.at > removed.now THEN 3 ELSE 1 END AS state, due.at AS due_at, due.at + entry.ttl AS expires_at,
        entry.commit_index, entry.queue_id, entry.priority, entry.message_id, entry.group_id, entry.headers,
        entry.properties, entry.body_kind, entry.body, entry.content_digest
    FROM @table(
        commit_index int, queue_id int, priority smallint, available_at bigint, delay bigint, ttl bigint,
        message_id text, group_id text, headers text, properties text, body_kind smallint, body bytea,
        content_digest bytea
    ) AS entry
    JOIN removed ON removed.entry_index = entry.commit_index
    CROSS JOIN LATERAL (SELECT greatest(removed.now, entry.available_at, removed.now + entry.delay) AS at) AS due
),
stored AS (
    INSERT INTO message (
        sequence_number, queue_id, state, home_state, priority, enqueued_at, available_at, expires_at,
        delivery_count, failure_count, lock_generation, message_id, group_id, headers, properties, body_kind, body,
        content_digest
    )
    SELECT
        sequence_number, queue_id, state, 1, priority, now, due_at, expires_at,
        0, 0, 0, message_id, group_id, headers, properties, body_kind, body, content_digest
    FROM draft
),
tally AS MATERIALIZED (
    SELECT
        queue_id, min(sequence_number) AS first_number, count(*) AS total,
        count(*) FILTER (WHERE state = 3) AS scheduled, min(now) AS enqueued_at
    FROM draft
    GROUP BY queue_id
),
counted AS (
    INSERT INTO depth (queue_id, total, scheduled)
    SELECT queue_id, total, scheduled FROM tally
),
accepted AS (
    INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted)
    SELECT tally.first_number, tally.queue_id, tally.enqueued_at / 86400000000, named.name, tally.total
    FROM tally
    CROSS JOIN LATERAL (SELECT name FROM queue WHERE id = tally.queue_id LIMIT 1) AS named
),
-- As `write_receipts` writes them.
receipt AS MATERIALIZED (
    SELECT
        commit_index,
        string_agg(
            format('[%s,%s,%s,%s,false]', sequence_number, to_json(message_id), now, state), ',' ORDER BY sequence_number
        ) AS listed
    FROM draft
    GROUP BY commit_index
),
done AS MATERIALIZED (
    SELECT removed.*, format('[%s]', receipt.listed) AS receipts
    FROM removed
    LEFT JOIN receipt ON receipt.commit_index = removed.entry_index
),
advanced AS (
    UPDATE state AS s SET number = done.number, updated_at = done.created_at
    FROM done
    WHERE s.ctid = done.state_row
),
created AS (
    INSERT INTO state (state_key, number, updated_at)
    SELECT state_key, number, created_at FROM done WHERE state_key IS NOT NULL AND state_id IS NULL
    ORDER BY state_key
    RETURNING id, state_key
),
versions AS (
    INSERT INTO state_version (
        state_id, number, message_id, value, metadata, result_digest, receipts, created_at, replaced_at
    )
    SELECT
        coalesce(done.state_id, created.id), done.number, done.processed_id, done.value, done.metadata,
        done.result_digest, done.receipts, done.created_at, CASE WHEN done.number > 1 THEN done.created_at END
    FROM done
    LEFT JOIN created ON created.state_key = done.state_key
    WHERE done.state_key IS NOT NULL
),
-- As `write_unit_result` writes them.
answered AS (
    INSERT INTO attempt (attempt_key, fingerprint, answer, remove_at)
    SELECT
        attempt_key, fingerprint,
        format(
            '{"settled":[[%s,"%s",null]],"receipts":%s,"versions":[%s]}',
            sequence_number, outcome, receipts, CASE WHEN state_key IS NOT NULL THEN format('[%s,false]', number) END
        ),
        now + answer_retention
    FROM done
)
SELECT entry_index, receipts FROM done;

-- move: settle locked messages into another state, leaving tombstones
WITH clock AS MATERIALIZED (SELECT @now AS now),
ended AS MATERIALIZED (
    SELECT clock.now, clock.now AS ended_at, entry.*, locked.*
    FROM clock
    CROSS JOIN @entries(
        sequence_number bigint, lock_token bytea, queue_id int, outcome text, state smallint,
        delay bigint, failures int, delivery_count int, last_failure text, dead_letter_reason text,
        dead_letter_description text, properties text, generation_above int, max_generation int
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row, m.in_group, m.group_id
        FROM message AS m
        WHERE m.sequence_number = entry.sequence_number
          AND m.queue_id = entry.queue_id  -- fence: queue
          AND m.state = 2  -- fence: locked
          AND m.lock_token = entry.lock_token  -- fence: token
          AND (m.locked_until > clock.now OR entry.generation_above < -1) IS TRUE  -- fence: time
          AND m.lock_generation > entry.generation_above  -- fence: generation
          AND m.lock_generation <= entry.max_generation  -- fence: generation
          AND m.home_state <> 8  -- fence: offer
          AND (m.in_group IS NULL OR entry.state = 1 OR :admits::boolean)  -- fence: group
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
@apply_moves;

-- release: free messages whose lock has ended, leaving tombstones dated with the lock's end, at the latest now
WITH clock AS MATERIALIZED (SELECT @now AS now),
ended AS MATERIALIZED (
    SELECT clock.now, least(locked.locked_until, clock.now) AS ended_at, entry.*, locked.*
    FROM clock
    CROSS JOIN @entries(
        sequence_number bigint, lock_token bytea, queue_id int, outcome text, state smallint,
        delay bigint, failures int, delivery_count int, last_failure text, dead_letter_reason text,
        dead_letter_description text, properties text, generation_above int
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row, m.locked_until, m.in_group, m.group_id
        FROM message AS m
        WHERE m.sequence_number = entry.sequence_number
          AND m.queue_id = entry.queue_id  -- fence: queue
          AND m.state = 2  -- fence: locked
          AND m.lock_token = entry.lock_token  -- fence: token
          AND (
              m.locked_until <= clock.now  -- fence: time
              OR m.lock_generation = entry.generation_above  -- fence: generation
          )
          AND (m.in_group IS NULL OR entry.state = 1 OR :admits::boolean)  -- fence: group
        FOR UPDATE SKIP LOCKED
    ) AS locked
),
@apply_moves;

-- @apply_moves: give the messages of `ended` their next state, count them, and leave tombstones dated `ended_at`
moved AS (
    UPDATE message AS m SET
        state = ended.state,
        in_group = CASE WHEN ended.state = 1 THEN m.in_group END,
        available_at = coalesce(ended.now + ended.delay, m.available_at),
        failure_count = m.failure_count + ended.failures,
        delivery_count = coalesce(ended.delivery_count, m.delivery_count),
        first_delivered_at = CASE WHEN ended.delivery_count = 0 THEN NULL ELSE m.first_delivered_at END,
        last_delivered_at = CASE WHEN ended.delivery_count = 0 THEN NULL ELSE m.last_delivered_at END,
        last_failure = coalesce(ended.last_failure, m.last_failure),
        dead_letter_reason = coalesce(ended.dead_letter_reason, m.dead_letter_reason),
        dead_letter_description = coalesce(ended.dead_letter_description, m.dead_letter_description),
        dead_lettered_at = coalesce(m.dead_lettered_at, CASE WHEN ended.state = 5 THEN ended.now END),
        properties = coalesce(ended.properties, m.properties),
        lock_token = NULL,
        locked_until = NULL,
        lock_generation = 0,
        receiver_id = NULL
    FROM ended
    WHERE m.ctid = ended.row
    RETURNING
        ended.entry_index, ended.sequence_number, ended.lock_token, ended.queue_id,
        ended.outcome, ended.state, ended.now,
        ended.ended_at, m.priority, m.available_at,
        CASE WHEN ended.in_group = 1 AND ended.state <> 1 THEN ended.group_id END AS left_group
),
counted AS (
    INSERT INTO depth (queue_id, scheduled, deferred, dead_lettered)
    SELECT
        queue_id,
        count(*) FILTER (WHERE state = 3), count(*) FILTER (WHERE state = 4), count(*) FILTER (WHERE state = 5)
    FROM moved
    WHERE state > 2
    GROUP BY queue_id
),
tombstones AS (
    INSERT INTO settlement (sequence_number, lock_token, queue_id, outcome, state, settled_at, remove_at)
    SELECT sequence_number, lock_token, queue_id, outcome, state, ended_at, now + :tombstone_retention
    FROM moved
)
SELECT entry_index, queue_id, left_group, priority, available_at FROM moved

-- extend: extend locks that have not ended, and the generation grows by one; or set their end, and the generation stays
WITH clock AS MATERIALIZED (SELECT @now AS now),
live AS MATERIALIZED (
    SELECT clock.now, entry.entry_index, entry.duration, entry.is_exact, locked.row, locked.previous_locked_until
    FROM clock
    CROSS JOIN @entries(
        sequence_number bigint, lock_token bytea, queue_id int, duration bigint, expired_generation int,
        max_generation int, is_exact boolean
    ) AS entry
    CROSS JOIN LATERAL (
        SELECT m.ctid AS row, m.locked_until AS previous_locked_until
        FROM message AS m
        WHERE m.sequence_number = entry.sequence_number
          AND m.queue_id = entry.queue_id  -- fence: queue
          AND m.state = 2  -- fence: locked
          AND m.lock_token = entry.lock_token  -- fence: token
          AND (m.locked_until > clock.now) IS TRUE  -- fence: time
          AND m.lock_generation > entry.expired_generation  -- fence: generation
          AND m.lock_generation <= entry.max_generation  -- fence: generation
          AND NOT EXISTS (SELECT FROM queue AS q WHERE q.id = m.queue_id AND q.take_locks_until >= m.last_delivered_at)  -- fence: revocation
        FOR UPDATE SKIP LOCKED
    ) AS locked
)
UPDATE message AS m SET
    locked_until = CASE
        WHEN live.is_exact THEN live.now + live.duration
        ELSE greatest(m.locked_until, live.now + live.duration)
    END,
    lock_generation = m.lock_generation + CASE WHEN live.is_exact THEN 0 ELSE 1 END
FROM live
WHERE m.ctid = live.row
RETURNING live.entry_index, m.lock_generation, m.locked_until, live.now, live.previous_locked_until;

-- locked_message_id: the message ids of messages that these tokens lock
SELECT entry.entry_index, m.message_id
FROM @entries(queue_id int, sequence_number bigint, lock_token bytea) AS entry
CROSS JOIN LATERAL (
    SELECT message_id
    FROM message
    WHERE sequence_number = entry.sequence_number
      AND queue_id = entry.queue_id  -- fence: queue
      AND lock_token = entry.lock_token  -- fence: token
    LIMIT 1
) AS m;

-- ---- groups ----------------------------------------------------------------------------------------------------------

-- lock_groups: lock groups, each by its row, until the transaction ends
--
-- A send that checks for duplicates has shortened the wait of its transaction for message ids.
SELECT locked.bucket
FROM (SELECT set_config('lock_timeout', '1s', true) AS lock_timeout) AS patience
CROSS JOIN LATERAL (
    SELECT bucket FROM group_lock
    WHERE bucket @in(:buckets)
      AND patience.lock_timeout IS NOT NULL
    ORDER BY bucket
    FOR UPDATE
) AS locked;

-- admissible: the first blocked messages of these groups, as many as they have free places, and that number of places
SELECT head.sequence_number, entry.queue_id, entry.group_id, head.priority, free.room, clock.now
FROM (SELECT @now AS now) AS clock
CROSS JOIN json_to_recordset(:groups::json) AS entry (queue_id int, group_id text)
LEFT JOIN LATERAL (SELECT group_in_flight FROM queue WHERE id = entry.queue_id LIMIT 1) AS setting ON true
CROSS JOIN LATERAL (
    SELECT coalesce(setting.group_in_flight, :limit::int) - count(*)::int AS room
    FROM (
        SELECT FROM message AS m
        WHERE m.in_group = 1
          AND m.queue_id = entry.queue_id
          AND m.group_id = entry.group_id
        LIMIT coalesce(setting.group_in_flight, 0)
    ) AS placed
) AS free
CROSS JOIN LATERAL (
    SELECT m.sequence_number, m.priority FROM message AS m
    WHERE m.in_group = 2
      AND m.queue_id = entry.queue_id
      AND m.group_id = entry.group_id
    ORDER BY m.sequence_number
    LIMIT greatest(free.room, 0)
) AS head;

-- admit: give places to blocked messages, behind those that are available; a depth row for each message
WITH admitted AS (
    UPDATE message
    SET state = 1,
        in_group = 1,
        available_at = :available_at
    WHERE sequence_number @in(:numbers)
      AND COALESCE(in_group, 0) = 2  -- or it was taken away since it was found
    RETURNING queue_id
)
INSERT INTO depth (queue_id, blocked)
SELECT queue_id, -1 FROM admitted;

-- ---- histories -------------------------------------------------------------------------------------------------------

-- record_ends: record how deliveries or messages ended, each with the receiver of the delivery, if their queues keep a history
INSERT INTO message_event (
    sequence_number, queue_id, happened_at, event, state, outcome, receiver_id, reason, delivery_count, remove_at
)
SELECT
    entry.sequence_number, entry.queue_id, clock.now, entry.event, entry.state, entry.outcome, delivery.receiver_id,
    entry.reason, delivery.delivery_count, clock.now + q.history_retention
FROM (SELECT @now AS now) AS clock
CROSS JOIN json_to_recordset(:entries::json) AS entry (
    sequence_number bigint, queue_id int, lock_token text, event text, state smallint, outcome text, reason text
)
CROSS JOIN LATERAL (
    SELECT history_retention FROM queue WHERE id = entry.queue_id AND history_retention IS NOT NULL LIMIT 1
) AS q
LEFT JOIN LATERAL (
    SELECT e.receiver_id, e.delivery_count FROM message_event AS e
    WHERE e.sequence_number = entry.sequence_number
      AND e.queue_id > 0
      AND (e.lock_token = decode(entry.lock_token, 'hex')) IS TRUE
    ORDER BY e.id DESC
    LIMIT 1
) AS delivery ON true;

-- record_events: record one event of each of these messages, as they are now, if their queues keep a history
INSERT INTO message_event (
    sequence_number, queue_id, happened_at, event, state, lock_token, receiver_id, reason, delivery_count, remove_at
)
SELECT
    m.sequence_number, m.queue_id, clock.now, :event, m.state, m.lock_token, m.receiver_id, :reason,
    CASE WHEN m.state = 2 THEN m.delivery_count END, clock.now + q.history_retention
FROM (SELECT @now AS now) AS clock
CROSS JOIN unnest(:numbers::bigint[]) AS requested (sequence_number)
CROSS JOIN LATERAL (SELECT * FROM message WHERE sequence_number = requested.sequence_number LIMIT 1) AS m
CROSS JOIN LATERAL (
    SELECT history_retention FROM queue WHERE id = m.queue_id AND history_retention IS NOT NULL LIMIT 1
) AS q;

-- ---- attempts --------------------------------------------------------------------------------------------------------

-- begin_attempt: record an attempt that is the first of its key; returns a row if it is
--
-- Nothing is recorded while another transaction makes the same attempt. This one does not wait for it.
INSERT INTO attempt AS earlier (attempt_key, fingerprint, remove_at)
SELECT :attempt_key::bytea, :fingerprint, clock.now + :retention
FROM (SELECT @now AS now) AS clock
WHERE pg_try_advisory_xact_lock(hashtextextended(encode(:attempt_key::bytea, 'hex'), 0))
ON CONFLICT (attempt_key) DO UPDATE SET
    fingerprint = excluded.fingerprint,
    answer = NULL,
    remove_at = excluded.remove_at
WHERE earlier.remove_at <= @now
RETURNING attempt_key;

-- earlier_attempt: the fingerprint and answer of the first attempt with this key; no row if it is running or removed
SELECT fingerprint, answer FROM attempt WHERE attempt_key = :attempt_key AND remove_at > @now AND @replicated;

-- answer_attempt: save the answer of an attempt, in the transaction that did its work
UPDATE attempt SET answer = :answer WHERE attempt_key = :attempt_key;

-- ---- cold statements in PostgreSQL's syntax -------------------------------------------------------------------------

-- browse: messages of a queue in up to six states, by number; each state is read in its own index range
SELECT @message
FROM (
    SELECT * FROM message
    WHERE ctid = ANY(ARRAY(
        SELECT in_state.row
        FROM unnest(
            ARRAY[
                :first_state, :second_state, :third_state, :fourth_state, :fifth_state, :sixth_state
            ]::smallint[]
        ) AS requested (state)
        CROSS JOIN LATERAL (
            SELECT ctid AS row, sequence_number FROM message
            WHERE queue_id = :queue_id
              AND state = requested.state AND state > 0
              AND sequence_number > :after
            ORDER BY sequence_number
            LIMIT :limit
        ) AS in_state
        ORDER BY in_state.sequence_number
        LIMIT :limit
    ))
    OFFSET 0
) AS found
ORDER BY sequence_number;

-- browse_metadata: the same messages without their bodies
@metadata_of(browse)

-- unlocked_for_update: lock those of these messages that are unlocked and unchanged, until the transaction ends
SELECT sequence_number
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND state <> 2  -- fence: locked
ORDER BY sequence_number
FOR UPDATE SKIP LOCKED;

-- expired_for_update: the same, for messages that are still past their time to live
SELECT sequence_number
FROM message
WHERE sequence_number @in(:numbers)
  AND queue_id = :queue_id  -- fence: queue
  AND state = :state  -- fence: state
  AND state <> 2  -- fence: locked
  AND (expires_at <= @now) IS TRUE  -- fence: time
ORDER BY sequence_number
FOR UPDATE SKIP LOCKED;

-- expired_messages: available, scheduled, deferred and blocked messages past their time to live; 8 if a sender waits
@expired_unlocked
    ORDER BY expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS expired
LIMIT :limit;

-- expired_elsewhere: the same, for messages that are of none of these groups
@expired_unlocked
      AND NOT @in_groups(:groups)
    ORDER BY expires_at
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
) AS expired
LIMIT :limit;

-- @expired_unlocked: the messages of `expired_messages`
SELECT expired.sequence_number, expired.queue_id, expired.state, expired.home_state
FROM unnest('{1,3,4,7}'::smallint[]) AS expiring (state)
CROSS JOIN LATERAL (
    SELECT sequence_number, queue_id, state, home_state FROM message
    WHERE state = expiring.state
      AND expires_at <= @now  -- fence: time
      AND queue_id NOT IN @newer_queues  -- fence: level

-- orphans: messages of a deleted queue, locked ones too, with the bytes of each
SELECT sequence_number, @body_bytes
FROM message
WHERE queue_id = :queue_id
  AND state > 0
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- orphaned_queues: queue ids that messages name and no queue has; one index look-up per id, however many messages
WITH RECURSIVE named (id) AS (
    (SELECT queue_id FROM message WHERE state > 0 ORDER BY queue_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT queue_id FROM message WHERE queue_id > named.id AND state > 0 ORDER BY queue_id LIMIT 1
    )
    FROM named
    WHERE named.id IS NOT NULL
)
SELECT id
FROM named
WHERE id IS NOT NULL
  AND id NOT IN (SELECT id FROM queue);

-- ---- explanations ----------------------------------------------------------------------------------------------------

-- count_ahead: the number of available messages before a position in the order of delivery, up to a limit
SELECT count(*)
FROM (
    SELECT 1
    FROM unnest('{1}'::smallint[]) AS available (state)
    CROSS JOIN generate_series(9, :priority::int, -1) AS level (priority)
    CROSS JOIN LATERAL (
        SELECT sequence_number FROM message
        WHERE queue_id = :queue_id
          -- Repeated: the index implies the state, so the planner would leave it out and search the whole queue.
          AND state = ANY('{1}'::smallint[])
          AND state = available.state
          AND priority = level.priority
          AND (available_at, sequence_number) < (
              CASE WHEN level.priority = :priority THEN :available_at::bigint ELSE 9223372036854775807 END,
              :sequence_number::bigint
          )
        ORDER BY available_at, sequence_number
        LIMIT :limit
    ) AS before
    LIMIT :limit
) AS ahead;

-- ---- counting --------------------------------------------------------------------------------------------------------

-- count_messages: the number of messages in each state of these queues; only locked ones are counted row by row, and,
-- as 6, sends that wait for a commit
SELECT queue_depth.queue_id, of_state.state, of_state.count
FROM (
    SELECT
        queue_id, sum(total) AS total, sum(scheduled) AS scheduled, sum(deferred) AS deferred,
        sum(dead_lettered) AS dead_lettered, sum(blocked) AS blocked,
        (SELECT count(*) FROM message WHERE message.queue_id = depth.queue_id AND state = 2) AS locked
    FROM depth
    WHERE queue_id @in(:queue_ids)
    GROUP BY queue_id
) AS queue_depth
CROSS JOIN LATERAL (
    VALUES
        (1, total - locked - scheduled - deferred - dead_lettered - blocked),
        (2, locked), (3, scheduled), (4, deferred), (5, dead_lettered), (7, blocked)
) AS of_state (state, count)
WHERE of_state.count <> 0
UNION ALL
SELECT queue_id, 6, count(*)
FROM transaction_member
WHERE queue_id @in(:queue_ids)
GROUP BY queue_id;

-- total_messages: the number of messages in a queue
SELECT coalesce(sum(total), 0) FROM depth WHERE queue_id = :queue_id;

-- oldest_available: how long the first available message of these queues has waited; a look-up per priority in use
WITH RECURSIVE first (queue_id, state, priority, available_at) AS (
    SELECT requested.queue_id, highest.state, highest.priority, highest.available_at
    FROM unnest(:queue_ids::int[]) AS requested (queue_id)
    CROSS JOIN LATERAL (
        SELECT state, priority, available_at FROM message
        WHERE queue_id = requested.queue_id
          AND state = 1
        ORDER BY priority DESC, available_at
        LIMIT 1
    ) AS highest
    UNION ALL
    SELECT first.queue_id, lower.state, lower.priority, lower.available_at
    FROM first
    CROSS JOIN LATERAL (
        SELECT state, priority, available_at FROM message
        WHERE queue_id = first.queue_id
          -- Repeated: the index implies the state, so the planner would leave it out and search the whole queue.
          AND state = ANY('{1}'::smallint[])
          AND state = first.state
          AND priority < first.priority
        ORDER BY priority DESC, available_at
        LIMIT 1
    ) AS lower
)
SELECT queue_id, @now - min(available_at)
FROM first
GROUP BY queue_id;

-- adjust_depths: add messages to the depths of their queues or, if the sign is -1, subtract them
INSERT INTO depth (queue_id, total, scheduled, deferred, dead_lettered, blocked)
SELECT
    queue_id,
    :sign * count(*),
    :sign * count(*) FILTER (WHERE state = 3),
    :sign * count(*) FILTER (WHERE state = 4),
    :sign * count(*) FILTER (WHERE state = 5),
    :sign * count(*) FILTER (WHERE state = 7)
FROM message
WHERE sequence_number @in(:numbers)
GROUP BY queue_id;

-- fold_depths: fold the rows that add up to a queue's depth into one; returns how many were folded
--
-- Only another fold deletes these rows, so this one waits no longer than a fold takes, and locking each row before its
-- deletion would write as much again. A row that the other fold has deleted is not counted here.
WITH folded AS (
    DELETE FROM depth WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM depth
        WHERE queue_id = ANY(ARRAY(SELECT queue_id FROM depth GROUP BY queue_id HAVING count(*) > 1))
          -- A newer server may count states that this one does not know.
          AND queue_id NOT IN @newer_queues  -- fence: level
        -- Folding one row of each of many queues would leave as many rows as before.
        ORDER BY queue_id
        LIMIT :limit
    ))
    RETURNING *
),
added_up AS (
    INSERT INTO depth (queue_id, total, scheduled, deferred, dead_lettered, blocked)
    SELECT queue_id, sum(total), sum(scheduled), sum(deferred), sum(dead_lettered), sum(blocked)
    FROM folded
    GROUP BY queue_id
)
SELECT count(*) FROM folded;

-- fold_accepted: add changes of the counts of accepted messages to the row of their queue and day; returns how many
WITH folded AS (
    DELETE FROM accepted_count WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM accepted_count
        WHERE first_number > 0
        ORDER BY first_number
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING *
),
added_up AS (
    INSERT INTO accepted_count (first_number, queue_id, day, queue, accepted, moved, unarchived)
    SELECT 0, queue_id, day, max(queue), sum(accepted), sum(moved), sum(unarchived)
    FROM folded
    GROUP BY queue_id, day
    ORDER BY queue_id, day
    ON CONFLICT (first_number, queue_id, day) DO UPDATE
    SET accepted = accepted_count.accepted + excluded.accepted,
        moved = accepted_count.moved + excluded.moved,
        unarchived = accepted_count.unarchived + excluded.unarchived
)
SELECT count(*) FROM folded;

-- delete_orphaned_depths: delete the depths of deleted queues
DELETE FROM depth
WHERE NOT EXISTS (SELECT FROM queue WHERE queue.id = depth.queue_id);

-- ---- store -----------------------------------------------------------------------------------------------------------

-- was_migrated: a row if a migration has recorded its revision here
SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL;

-- acquire_exclusive: lock the database for this connection alone; returns whether it did. Every release uses this number
SELECT pg_try_advisory_lock(8102650225890321253);

-- acquire_shared: lock the database together with other shared locks; returns false if it is locked exclusively
SELECT pg_try_advisory_lock_shared(8102650225890321253);

-- is_served: whether a process has registered on this database
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (classid::bigint << 32) | objid::bigint = 8102650225890321253
      AND objsubid = 1
      AND granted
);

-- start_lock_version: invalidate the lock records of all queues. Synchronous standbys may be away: if one is promoted, a
-- process registers there first, and starts another version
WITH setting AS (SELECT set_config('synchronous_commit', 'local', TRUE))
UPDATE queue SET lock_purges = :version FROM setting;

-- unsafe_settings: settings by which an acknowledged commit can be lost
SELECT name
FROM pg_settings
WHERE (name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off')
   OR (
       name = 'synchronous_commit' AND setting IN ('local', 'remote_write')
       AND current_setting('synchronous_standby_names') <> ''
   );

-- highest_number: the last sequence number that was given out
SELECT last_value FROM message_sequence_number_seq;

-- highest_queue_id: the last id of a queue that was given out
SELECT last_value FROM queue_id_seq;

-- continue_numbers_at: give out no lower sequence number
SELECT setval('message_sequence_number_seq', :first, false);

-- continue_queue_ids_at: give out no lower id of a queue
SELECT setval('queue_id_seq', :first, false);

-- is_replicated: whether a commit returns only when synchronous standbys have it on disk
SELECT current_setting('synchronous_standby_names') <> ''
   AND current_setting('synchronous_commit') IN ('on', 'remote_apply');

-- ---- transactions ----------------------------------------------------------------------------------------------------

-- add_members: store members of a transaction
INSERT INTO transaction_member (
    transaction_id, place, queue, queue_id, message_id, due_at, expires_at, sequence_number, lock_token, outcome,
    member_bytes, content, body
)
SELECT
    transaction_id, place, queue, queue_id, message_id, due_at, expires_at, sequence_number, lock_token, outcome,
    member_bytes, content, body
FROM @table(
    transaction_id text, place int, queue text, queue_id int, message_id text, due_at bigint, expires_at bigint,
    sequence_number bigint, lock_token bytea, outcome text, member_bytes bigint, content text, body bytea
) AS entry;
