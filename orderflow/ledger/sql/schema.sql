-- The tables of the SQLite ledger, schema 1 (`PRAGMA user_version`).
-- Times are milliseconds since 1970 (UTC) by the database's clock; amounts are minor units.

-- name: create_effects
-- One row for each idempotency key, for ever. `token` counts claims: it is the fencing token.
-- `lease_until` is when the present claim ends; 0 while nobody holds the effect.
CREATE TABLE effects (
    key            TEXT    NOT NULL PRIMARY KEY,
    workflow_id    TEXT    NOT NULL,
    step           TEXT    NOT NULL,
    provider       TEXT    NOT NULL,
    operation      TEXT    NOT NULL,
    intent_digest  TEXT    NOT NULL,
    state          TEXT    NOT NULL
        CHECK (state IN ('pending', 'committed', 'declined', 'voided', 'reversing', 'reversed')),
    token          INTEGER NOT NULL CHECK (token >= 0),
    lease_until    INTEGER NOT NULL CHECK (lease_until = 0 OR state = 'pending'),
    amount_minor   INTEGER CHECK (amount_minor >= 0),
    currency       TEXT,
    reference      TEXT,
    captured_minor INTEGER CHECK (captured_minor >= 0),
    refunded_minor INTEGER CHECK (refunded_minor >= 0),
    decline_code   TEXT    CHECK ((decline_code IS NOT NULL) = (state = 'declined')),
    result_json    TEXT,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    settled_at     INTEGER CHECK (state = 'reversing' OR (settled_at IS NULL) = (state = 'pending'))
) STRICT, WITHOUT ROWID;

-- name: create_effects_by_workflow
-- `show` asks for all effects of one order.
CREATE INDEX effects_by_workflow ON effects (workflow_id, created_at);

-- name: create_attempts
-- Each claim, who held it and how it ended; `ended_at` stays empty for a holder that died.
CREATE TABLE attempts (
    key        TEXT    NOT NULL REFERENCES effects (key),
    token      INTEGER NOT NULL,
    holder     TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    ended      TEXT    CHECK ((ended IS NULL) = (ended_at IS NULL)),
    PRIMARY KEY (key, token)
) STRICT, WITHOUT ROWID;
