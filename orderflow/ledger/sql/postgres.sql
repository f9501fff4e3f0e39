-- What the PostgreSQL ledger says besides `effects.sql`; a name with `()` stands for the statement of that name there.

-- name: claim_effect
-- `claim_effect` of `effects.sql` and its `begin_attempt` in one round trip.
WITH claimed AS (claim_effect()), begun AS (
    INSERT INTO attempts (key, token, holder, started_at) SELECT key, token, :holder, now_ms() FROM claimed
)
SELECT * FROM claimed;

-- name: settle_effect
-- `settle_effect` of `effects.sql` and its `end_attempt` in one round trip; the latter counts when the former finds nothing.
WITH ended AS (end_attempt()) settle_effect();

-- name: receive_event
-- `receive_event` of `events.sql` and its `keep_nonce` in one round trip, both or neither. Where the same nonce comes with
-- another event at the same moment the second of them breaks the nonces' key, is run again, and finds the first.
WITH received AS (receive_event()), kept AS (
    INSERT INTO nonces (caller, webhook_id, timestamp, source, event_id)
    SELECT CAST(:caller AS TEXT), CAST(:webhook_id AS TEXT), :timestamp, source, event_id FROM received
)
SELECT * FROM received;

-- name: begin
-- Read committed whatever the database's default is: a claim is one statement, and what it does not tell is read again
-- by a statement that sees what others committed meanwhile (D03).
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: get_access
-- Who asks, and whether this user may look which revision alembic has written down; NULL when it has written none.
SELECT
    current_user AS who,
    CASE
        WHEN to_regclass('ledger_schema') IS NOT NULL
            THEN has_table_privilege(CAST(to_regclass('ledger_schema') AS oid), 'SELECT')
        WHEN EXISTS (
            SELECT FROM pg_class WHERE relname = 'ledger_schema' AND NOT has_schema_privilege(relnamespace, 'USAGE')
        ) THEN FALSE
    END AS may_look;

-- name: get_schema
-- The revision of this ledger.
SELECT version_num FROM ledger_schema;

-- name: write_no_effect
-- Changes no row, and still fails for a user who may not write and on a copy that is read only.
UPDATE effects SET token = token WHERE key = '';

-- name: write_no_event
-- The same for the door, which has no right on effects.
UPDATE events SET started_at = started_at WHERE source = '';

-- name: missing_grants
-- What the work of :role needs (0003_access.sql, 0004_events.sql) and this user lacks; NULL when it lacks nothing.
SELECT current_user AS who, string_agg(privilege || ' on ' || tablename, ', ' ORDER BY tablename, privilege) AS missing
FROM (
    VALUES
    ('orderflow_worker', 'attempts', ARRAY['SELECT', 'INSERT', 'UPDATE']),
    ('orderflow_worker', 'effects', ARRAY['SELECT', 'INSERT', 'UPDATE']),
    ('orderflow_worker', 'endings', ARRAY['SELECT', 'INSERT', 'UPDATE']),
    ('orderflow_worker', 'operations', ARRAY['SELECT', 'INSERT']),
    ('orderflow_worker', 'review_items', ARRAY['SELECT', 'INSERT', 'UPDATE']),
    ('orderflow_ingress', 'endings', ARRAY['SELECT']),
    ('orderflow_ingress', 'events', ARRAY['SELECT', 'INSERT', 'UPDATE']),
    ('orderflow_ingress', 'intake', ARRAY['SELECT', 'INSERT', 'UPDATE']),
    ('orderflow_ingress', 'nonces', ARRAY['SELECT', 'INSERT', 'DELETE'])
) AS needs (role, tablename, privileges)
CROSS JOIN unnest(privileges) AS privilege
WHERE role = :role
    AND NOT CASE privilege
        WHEN 'DELETE' THEN has_table_privilege(tablename, privilege)
        ELSE has_any_column_privilege(tablename, privilege)
    END;
