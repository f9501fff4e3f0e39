-- The statements about events, nonces and gates. Written like `effects.sql`. Each is whole by itself: whatever happens
-- between two of them, a delivery is judged again.

-- name: receive_event
-- Take in an event that nobody knows: with its nonce (`keep_nonce`), or neither. No row means that there is a reason not to.
INSERT INTO events (source, event_id, fingerprint, workflow_id, caller, received_at)
SELECT
    CAST(:source AS TEXT), CAST(:event_id AS TEXT), CAST(:fingerprint AS TEXT), CAST(:workflow_id AS TEXT),
    CAST(:caller AS TEXT), now_ms()
WHERE NOT EXISTS (SELECT 1 FROM intake WHERE scope = 'all' AND paused = 1)
    AND NOT EXISTS (
        SELECT 1 FROM nonces WHERE caller = :caller AND webhook_id = :webhook_id AND timestamp = :timestamp
    )
    AND NOT EXISTS (SELECT 1 FROM endings WHERE workflow_id = :workflow_id)
ON CONFLICT (source, event_id) DO NOTHING
RETURNING source, event_id;

-- name: keep_nonce
-- Part of each `receive_event` that gives a row. One that was seen meanwhile takes the event back with it.
INSERT INTO nonces (caller, webhook_id, timestamp, source, event_id)
VALUES (:caller, :webhook_id, :timestamp, :source, :event_id);

-- name: receive_again
-- Keep the nonce of one more delivery of a known event, and tell whether its order may still have to be started. An order
-- that has ended was started, even if nobody came to note it. No row means that there is a reason not to.
INSERT INTO nonces (caller, webhook_id, timestamp, source, event_id)
SELECT CAST(:caller AS TEXT), CAST(:webhook_id AS TEXT), :timestamp, source, event_id FROM events
WHERE source = :source
    AND event_id = :event_id
    AND fingerprint = :fingerprint
    AND NOT EXISTS (SELECT 1 FROM intake WHERE scope = 'all' AND paused = 1)
ON CONFLICT (caller, webhook_id, timestamp) DO NOTHING
RETURNING (
    SELECT COUNT(*) FROM events AS known
    WHERE known.source = :source
        AND known.event_id = :event_id
        AND known.started_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM endings WHERE endings.workflow_id = known.workflow_id)
) AS waits;

-- name: look_at_delivery
-- All that a delivery is judged by.
SELECT
    (SELECT COUNT(*) FROM intake WHERE scope = 'all' AND paused = 1) AS paused,
    (SELECT COUNT(*) FROM endings WHERE workflow_id = :workflow_id) AS ended,
    known.fingerprint,
    known.started_at,
    seen.source AS seen_source,
    seen.event_id AS seen_event_id
FROM (SELECT 1 AS delivery) AS this
LEFT JOIN events AS known ON known.source = :source AND known.event_id = :event_id
LEFT JOIN nonces AS seen
    ON seen.caller = :caller AND seen.webhook_id = :webhook_id AND seen.timestamp = :timestamp;

-- name: event_started
-- The first time counts, and so does what the order was really started with.
UPDATE events SET started_at = COALESCE(started_at, now_ms()), fingerprint = :fingerprint
WHERE source = :source AND event_id = :event_id AND (started_at IS NULL OR fingerprint <> :fingerprint);

-- name: event_of_workflow
-- Where an order came from.
SELECT * FROM events WHERE workflow_id = :workflow_id ORDER BY received_at LIMIT 1;

-- name: waiting_events
-- Received longer than :period_ms ago, and never started as far as anybody knows.
SELECT COUNT(*) AS waiting FROM events
WHERE started_at IS NULL
    AND received_at <= (SELECT now_ms() - :period_ms)
    AND NOT EXISTS (SELECT 1 FROM endings WHERE endings.workflow_id = events.workflow_id);

-- name: intake
-- How the gates stand, that of all doors first.
SELECT * FROM intake ORDER BY CASE scope WHEN 'all' THEN 0 ELSE 1 END, scope;

-- name: set_intake
-- Who says again what stands already has not changed it. (`WHERE TRUE`: or SQLite takes what follows for a join.)
INSERT INTO intake (scope, paused, reason, changed_by, changed_at, seen_at)
SELECT CAST(:scope AS TEXT), :paused, CAST(:reason AS TEXT), CAST(:changed_by AS TEXT), clock.now, clock.now
FROM (SELECT now_ms() AS now) AS clock
WHERE TRUE
ON CONFLICT (scope) DO UPDATE
SET paused = excluded.paused,
    reason = excluded.reason,
    changed_by = CASE
        WHEN intake.paused = excluded.paused AND intake.reason = excluded.reason
            THEN intake.changed_by ELSE excluded.changed_by
    END,
    changed_at = CASE
        WHEN intake.paused = excluded.paused AND intake.reason = excluded.reason
            THEN intake.changed_at ELSE excluded.changed_at
    END,
    seen_at = excluded.seen_at
RETURNING *;
