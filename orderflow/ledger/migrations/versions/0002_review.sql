-- Schema 2. Which orders have come to their end, what waits for people, and what people said about it.

-- name: create_endings
-- One row for each order that has ended: nobody has to ask Temporal again, which forgets sooner than the ledger.
CREATE TABLE endings (
    workflow_id TEXT   COLLATE bytewise() NOT NULL PRIMARY KEY,
    stage       TEXT   NOT NULL,
    ended_at    BIGINT NOT NULL
) table_options();

-- name: create_review_items
-- One row for each effect that a person has to look at, or had to. It names no row of `effects` as its own: a ledger
-- that was restored may not know what stands outside. `opened_by` is whose door an operation goes to.
CREATE TABLE review_items (
    key          TEXT   COLLATE bytewise() NOT NULL PRIMARY KEY,
    workflow_id  TEXT   COLLATE bytewise() NOT NULL,
    step         TEXT   NOT NULL,
    opened_by    TEXT   NOT NULL CHECK (opened_by IN ('order', 'reconcile')),
    amount_minor BIGINT CHECK (amount_minor >= 0),
    currency     TEXT,
    error        TEXT   NOT NULL,
    detail       TEXT,
    opened_at    BIGINT NOT NULL,
    closed_at    BIGINT,
    closed_as    TEXT   CHECK ((closed_as IS NULL) = (closed_at IS NULL))
) table_options();

-- name: create_open_review_items
-- The queue, oldest first.
CREATE INDEX open_review_items ON review_items (opened_at) WHERE closed_at IS NULL;

-- name: create_review_items_by_workflow
-- All items of one order.
CREATE INDEX review_items_by_workflow ON review_items (workflow_id);

-- name: create_operations
-- Each operation that was accepted, as it was signed, for ever. `jti` makes each count once.
CREATE TABLE operations (
    jti         TEXT   COLLATE bytewise() NOT NULL PRIMARY KEY,
    key         TEXT   COLLATE bytewise() NOT NULL,
    workflow_id TEXT   COLLATE bytewise() NOT NULL,
    operation   TEXT   NOT NULL CHECK (operation IN ('retry', 'resolve')),
    outcome     TEXT,
    operator    TEXT   NOT NULL,
    token       TEXT   NOT NULL,
    accepted_at BIGINT NOT NULL
) table_options();

-- name: create_operations_by_key
-- What was said about one effect.
CREATE INDEX operations_by_key ON operations (key, accepted_at);
