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

-- name: has_schema
-- Whether alembic has written a revision down; also for a user who may not read it.
SELECT to_regclass('ledger_schema') IS NOT NULL AS has_schema;

-- name: get_schema
-- The revision of this ledger.
SELECT version_num FROM ledger_schema;

-- name: write_nothing_new
-- Changes no row, and still fails for a user who may not write and on a copy that is read only.
UPDATE effects SET token = token WHERE key = '';
