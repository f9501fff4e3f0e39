-- Schema 4. Events as the door received them, the nonces of their deliveries, and the gates before new ones.

-- name: create_events
-- One row for each event, by its identity: two columns, so that no text can be cut in two ways. `started_at` stays empty
-- until its order has been started.
CREATE TABLE events (
    source      TEXT   COLLATE bytewise() NOT NULL,
    event_id    TEXT   COLLATE bytewise() NOT NULL,
    fingerprint TEXT   NOT NULL,
    workflow_id TEXT   COLLATE bytewise() NOT NULL,
    caller      TEXT   NOT NULL,
    received_at BIGINT NOT NULL,
    started_at  BIGINT,
    PRIMARY KEY (source, event_id)
) table_options();

-- name: create_events_by_workflow
-- Whose order is this?
CREATE INDEX events_by_workflow ON events (workflow_id);

-- name: create_waiting_events
-- Those whose order has not been started.
CREATE INDEX waiting_events ON events (received_at) WHERE started_at IS NULL;

-- name: create_nonces
-- One row for each delivery that was taken, and the event it carried. `timestamp` is the sender's, in seconds since 1970.
CREATE TABLE nonces (
    caller     TEXT   COLLATE bytewise() NOT NULL,
    webhook_id TEXT   COLLATE bytewise() NOT NULL,
    timestamp  BIGINT NOT NULL,
    source     TEXT   COLLATE bytewise() NOT NULL,
    event_id   TEXT   COLLATE bytewise() NOT NULL,
    PRIMARY KEY (caller, webhook_id, timestamp)
) table_options();

-- name: create_nonces_by_timestamp
-- They are forgotten by age.
CREATE INDEX nonces_by_timestamp ON nonces (timestamp);

-- name: create_intake
-- One row for each gate: `all`, which people close and open, and one for each door that closed itself. No row: open.
CREATE TABLE intake (
    scope      TEXT   COLLATE bytewise() NOT NULL PRIMARY KEY,
    paused     BIGINT NOT NULL CHECK (paused IN (0, 1)),
    reason     TEXT   NOT NULL,
    changed_by TEXT   NOT NULL,
    changed_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL
) table_options();

-- name: grant_ingress_events (postgres)
-- The door takes events in. Whose they are and what they carried is never changed.
GRANT SELECT, INSERT, UPDATE (started_at, fingerprint) ON events TO orderflow_ingress;

-- name: grant_ingress_nonces (postgres)
-- The door alone has to do with them.
GRANT SELECT, INSERT, DELETE ON nonces TO orderflow_ingress;

-- name: grant_intake (postgres)
-- Operators pause and resume; a door says what it found out by itself.
GRANT SELECT, INSERT, UPDATE (paused, reason, changed_by, changed_at, seen_at) ON intake
    TO orderflow_ingress, orderflow_operator;

-- name: grant_reading (postgres)
-- Where an order came from, and how the gates stand.
GRANT SELECT ON events TO orderflow_worker, orderflow_operator, orderflow_reader;

-- name: grant_reading_intake (postgres)
-- Which gates are closed, and why.
GRANT SELECT ON intake TO orderflow_worker, orderflow_reader;

-- name: grant_keeper_events (postgres)
-- `orderflow db prune`.
GRANT SELECT, DELETE ON events, nonces, intake TO orderflow_keeper;
