-- What the PostgreSQL ledger says besides `effects.sql`.

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
