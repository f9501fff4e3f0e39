-- Schema 3. Who may do what on PostgreSQL, where several users share a ledger, and which endings are oldest. A later table
-- is granted in the revision that makes it.

-- name: create_endings_by_time
-- Those that `orderflow db prune` comes for.
CREATE INDEX endings_by_time ON endings (ended_at, workflow_id);

-- name: create_roles (postgres)
-- Group roles belong to the server, not to a database: another ledger on it, or an upgrade of one that runs right now, may
-- have made them. Nobody logs in as one; users are made members.
DO $$
DECLARE
    wanted TEXT;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        'orderflow_worker', 'orderflow_ingress', 'orderflow_operator', 'orderflow_keeper', 'orderflow_reader'
    ] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
    EXECUTE format(
        'GRANT USAGE ON SCHEMA %I'
        ' TO orderflow_worker, orderflow_ingress, orderflow_operator, orderflow_keeper, orderflow_reader',
        current_schema()
    );
END $$;

-- name: grant_schema (postgres)
-- Everybody looks which revision the ledger has.
GRANT SELECT ON ledger_schema
    TO orderflow_worker, orderflow_ingress, orderflow_operator, orderflow_keeper, orderflow_reader;

-- name: grant_worker_reading (postgres)
-- A worker reads all of it, and adds to it.
GRANT SELECT, INSERT ON effects, attempts, endings, review_items, operations TO orderflow_worker;

-- name: grant_worker_effects (postgres)
-- What an effect is, whose and how much, stays as it was claimed; what becomes of it is written down.
GRANT UPDATE (
    state, token, lease_until, reference, captured_minor, refunded_minor, decline_code, result_json, updated_at, settled_at
) ON effects TO orderflow_worker;

-- name: grant_worker_attempts (postgres)
-- How an attempt ended.
GRANT UPDATE (ended_at, ended) ON attempts TO orderflow_worker;

-- name: grant_worker_endings (postgres)
-- An order that was reset ends anew.
GRANT UPDATE (stage, ended_at) ON endings TO orderflow_worker;

-- name: grant_worker_review_items (postgres)
-- Items are opened again, and closed. What people signed is never changed.
GRANT UPDATE (opened_by, amount_minor, currency, error, detail, opened_at, closed_at, closed_as)
    ON review_items TO orderflow_worker;

-- name: grant_ingress (postgres)
-- Has this order ended?
GRANT SELECT ON endings TO orderflow_ingress;

-- name: grant_operator (postgres)
-- Operators look; what they want done they sign, and a worker does it.
GRANT SELECT ON effects, attempts, endings, review_items, operations TO orderflow_operator;

-- name: grant_keeper (postgres)
-- `orderflow db prune`; what people signed is kept for ever.
GRANT SELECT, DELETE ON effects, attempts, endings, review_items TO orderflow_keeper;

-- name: grant_reader (postgres)
-- Reports and dashboards: all but what people signed, which holds their words.
GRANT SELECT ON effects, attempts, endings, review_items TO orderflow_reader;
