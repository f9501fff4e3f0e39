-- Schema 1. Times are milliseconds since 1970 (UTC) by the database's clock; amounts are minor units.
-- A dialect replaces `BIGINT`, `bytewise()` and `table_options()` (`ledger/statements.py`). Keys compare byte by byte, as
-- in every language of the server's: an upgrade of its locales must not break the index that makes them unique.

-- name: create_effects
-- One row for each idempotency key, for ever. `token` counts claims: it is the fencing token.
-- `lease_until` is when the present claim ends; 0 while nobody holds the effect.
CREATE TABLE effects (
    key            TEXT    COLLATE bytewise() NOT NULL PRIMARY KEY,
    workflow_id    TEXT    COLLATE bytewise() NOT NULL,
    step           TEXT    NOT NULL,
    provider       TEXT    NOT NULL,
    operation      TEXT    NOT NULL,
    intent_digest  TEXT    NOT NULL,
    state          TEXT    NOT NULL
        CHECK (state IN ('pending', 'committed', 'declined', 'voided', 'reversing', 'reversed')),
    token          BIGINT  NOT NULL CHECK (token >= 0),
    lease_until    BIGINT  NOT NULL CHECK (lease_until = 0 OR state = 'pending'),
    amount_minor   BIGINT  CHECK (amount_minor >= 0),
    currency       TEXT,
    reference      TEXT,
    captured_minor BIGINT  CHECK (captured_minor >= 0),
    refunded_minor BIGINT  CHECK (refunded_minor >= 0),
    decline_code   TEXT    CHECK ((decline_code IS NOT NULL) = (state = 'declined')),
    result_json    TEXT,
    created_at     BIGINT  NOT NULL,
    updated_at     BIGINT  NOT NULL,
    settled_at     BIGINT  CHECK (state = 'reversing' OR (settled_at IS NULL) = (state = 'pending'))
) table_options();

-- name: create_effects_by_workflow
-- `show` asks for all effects of one order.
CREATE INDEX effects_by_workflow ON effects (workflow_id, created_at);

-- name: create_attempts
-- Each claim, who held it and how it ended; `ended_at` stays empty for a holder that died.
CREATE TABLE attempts (
    key        TEXT    COLLATE bytewise() NOT NULL REFERENCES effects (key),
    token      BIGINT  NOT NULL,
    holder     TEXT    NOT NULL,
    started_at BIGINT  NOT NULL,
    ended_at   BIGINT,
    ended      TEXT    CHECK ((ended IS NULL) = (ended_at IS NULL)),
    PRIMARY KEY (key, token)
) table_options();
