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

-- name: write_nothing_new
-- Changes no row, and still fails for a user who may not write and on a copy that is read only.
UPDATE effects SET token = token WHERE key = '';

-- name: missing_grants
-- What a worker needs (0003_access.sql) and this user lacks; NULL when it lacks nothing.
SELECT current_user AS who, string_agg(privilege || ' on ' || tablename, ', ' ORDER BY tablename, privilege) AS missing
FROM (VALUES ('attempts'), ('effects'), ('endings'), ('operations'), ('review_items')) AS tables (tablename)
CROSS JOIN (VALUES ('SELECT'), ('INSERT'), ('UPDATE')) AS privileges (privilege)
WHERE NOT (tablename = 'operations' AND privilege = 'UPDATE')
    AND NOT has_any_column_privilege(tablename, privilege);
