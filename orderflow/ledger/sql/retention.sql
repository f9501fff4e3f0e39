-- The statements of `orderflow db prune`. Written like `effects.sql`.

-- name: ended_orders
-- A page of orders that ended longer than :period_ms ago, with how much is kept of each, and how much of that is open: an
-- effect on its way, one that stands although its order did not complete and nobody decided to keep it, an item before
-- people. The page is cut before anything is counted, so that it costs the same whatever stands before it.
SELECT
    ended.workflow_id,
    ended.ended_at,
    (SELECT COUNT(*) FROM effects WHERE effects.workflow_id = ended.workflow_id) AS effects,
    (
        SELECT COUNT(*) FROM attempts JOIN effects ON effects.key = attempts.key
        WHERE effects.workflow_id = ended.workflow_id
    ) AS attempts,
    (SELECT COUNT(*) FROM review_items WHERE review_items.workflow_id = ended.workflow_id) AS review_items,
    (SELECT COUNT(*) FROM events WHERE events.workflow_id = ended.workflow_id) AS events,
    (
        SELECT COUNT(*) FROM effects
        LEFT JOIN review_items ON review_items.key = effects.key
        WHERE effects.workflow_id = ended.workflow_id
            AND (
                effects.state IN ('pending', 'reversing')
                OR (
                    effects.state = 'committed'
                    AND ended.stage <> 'completed'
                    AND effects.key = effects.workflow_id || '.' || effects.step || '.do'
                    AND (review_items.closed_as IS NULL OR review_items.closed_as <> 'kept')
                )
            )
    ) + (
        SELECT COUNT(*) FROM review_items
        WHERE review_items.workflow_id = ended.workflow_id AND review_items.closed_at IS NULL
    ) AS still_open
FROM (
    SELECT workflow_id, stage, ended_at FROM endings
    WHERE ended_at <= now_ms() - :period_ms AND (ended_at, workflow_id) > (CAST(:after_ms AS BIGINT), :after)
    ORDER BY ended_at, workflow_id
    LIMIT :limit
) AS ended
ORDER BY ended.ended_at, ended.workflow_id;

-- name: forget_attempts
-- They name their effects, so they go first.
DELETE FROM attempts WHERE key IN (SELECT key FROM effects WHERE workflow_id = :workflow_id);

-- name: forget_effects
-- What has begun to move since it was read stays.
DELETE FROM effects WHERE workflow_id = :workflow_id AND state NOT IN ('pending', 'reversing');

-- name: forget_review_items
-- Closed ones; what people signed stays in `operations`.
DELETE FROM review_items WHERE workflow_id = :workflow_id AND closed_at IS NOT NULL;

-- name: forget_event
-- From now on its identity is a new one.
DELETE FROM events WHERE workflow_id = :workflow_id;

-- name: forget_ending
-- If it is still the one that was read.
DELETE FROM endings WHERE workflow_id = :workflow_id AND ended_at = :ended_at;

-- name: left_of_order
-- Something is, if the order came back to life meanwhile.
SELECT key FROM effects WHERE workflow_id = :workflow_id
UNION ALL
SELECT key FROM review_items WHERE workflow_id = :workflow_id
UNION ALL
SELECT event_id FROM events WHERE workflow_id = :workflow_id
UNION ALL
SELECT workflow_id FROM endings WHERE workflow_id = :workflow_id;

-- name: unstarted_events
-- Events that were received longer than :period_ms ago, whose order nobody started: it ended nowhere, did nothing, and
-- stands before nobody. The clock is read once, by a SELECT of its own: or PostgreSQL reads it for each row, and no index
-- helps to find the few that are old.
SELECT COUNT(*) AS events FROM events
WHERE started_at IS NULL
    AND received_at <= (SELECT now_ms() - :period_ms)
    AND NOT EXISTS (SELECT 1 FROM endings WHERE endings.workflow_id = events.workflow_id)
    AND NOT EXISTS (SELECT 1 FROM effects WHERE effects.workflow_id = events.workflow_id)
    AND NOT EXISTS (SELECT 1 FROM review_items WHERE review_items.workflow_id = events.workflow_id);

-- name: forget_unstarted
-- So many of the oldest of them; one that is started at this moment stays.
DELETE FROM events WHERE started_at IS NULL AND (source, event_id) IN (
    SELECT source, event_id FROM events
    WHERE started_at IS NULL
        AND received_at <= (SELECT now_ms() - :period_ms)
        AND NOT EXISTS (SELECT 1 FROM endings WHERE endings.workflow_id = events.workflow_id)
        AND NOT EXISTS (SELECT 1 FROM effects WHERE effects.workflow_id = events.workflow_id)
        AND NOT EXISTS (SELECT 1 FROM review_items WHERE review_items.workflow_id = events.workflow_id)
    ORDER BY received_at
    LIMIT :limit
)
RETURNING event_id;

-- name: forget_nonces
-- So many of the oldest whose timestamp lies longer than :period_ms in the past; whole seconds, rather kept too long.
DELETE FROM nonces WHERE (caller, webhook_id, timestamp) IN (
    SELECT caller, webhook_id, timestamp FROM nonces
    WHERE timestamp < (SELECT (now_ms() - :period_ms) / 1000)
    ORDER BY timestamp
    LIMIT :limit
)
RETURNING timestamp;

-- name: forget_doors
-- Gates of single doors of which nobody said anything for :period_ms; that of all doors stays as people left it.
DELETE FROM intake WHERE scope <> 'all' AND seen_at <= now_ms() - :period_ms RETURNING scope;
