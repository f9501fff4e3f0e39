-- The statements of the effect ledger. `now_ms()` stands for the database's own clock in milliseconds (`Dialect` in
-- `ledger/statements.py`) and `:name` for the driver's placeholder; the rest is plain enough for SQLite and PostgreSQL
-- alike. Each update carries the state it starts from, so that no transition of `domain/effects.py` can be skipped.
-- `age_ms` is told by the clock that wrote `created_at`: the clocks of hosts differ.

-- name: claim_effect
-- Take the effect if nobody ever did, or if it is PENDING with the same intent and its lease is over. No row means
-- that it is settled, undone, held, in conflict, or that the window for a first claim is closed: read it again (D03).
-- A key that exists passes the window: what was begun is finished whatever the time. The lease of a takeover is counted
-- when the row is locked, which may be long after `excluded` was computed.
INSERT INTO effects (
    key, workflow_id, step, provider, operation, intent_digest, amount_minor, currency,
    state, token, lease_until, created_at, updated_at
)
SELECT
    CAST(:key AS TEXT), :workflow_id, :step, :provider, :operation, :intent_digest,
    CAST(:amount_minor AS BIGINT), :currency,
    'pending', 1, now_ms() + :lease_ms, now_ms(), now_ms()
WHERE CAST(:claim_by_ms AS BIGINT) IS NULL
    OR now_ms() <= :claim_by_ms
    OR EXISTS (SELECT 1 FROM effects WHERE key = :key)
ON CONFLICT (key) DO UPDATE
SET token = effects.token + 1, lease_until = now_ms() + :lease_ms, updated_at = now_ms()
WHERE effects.state = 'pending'
    AND effects.intent_digest = excluded.intent_digest
    AND effects.lease_until <= now_ms()
RETURNING *, now_ms() - created_at AS age_ms;

-- name: begin_attempt
-- Who holds the claim with this token: part of each `claim_effect` that gives a row.
INSERT INTO attempts (key, token, holder, started_at) VALUES (:key, :token, :holder, now_ms());

-- name: end_attempt
-- Part of each `settle_effect`: how the holder of this token fared; also written for one whose claim was lost, as evidence.
UPDATE attempts SET ended = :ended, ended_at = now_ms() WHERE key = :key AND token = :token AND ended IS NULL;

-- name: get_effect
-- One effect and what is left of its lease.
SELECT effects.*, lease_until - now_ms() AS lease_left_ms, now_ms() - created_at AS age_ms
FROM effects WHERE key = :key;

-- name: renew_lease
-- Only the newest claim can be renewed.
UPDATE effects SET lease_until = now_ms() + :lease_ms
WHERE key = :key AND token = :token AND state = 'pending'
RETURNING key;

-- name: settle_effect
-- The end of a claim: from PENDING to :state, which may be PENDING again. The token fences off late holders (D06).
UPDATE effects
SET state = :state,
    lease_until = 0,
    reference = COALESCE(:reference, reference),
    captured_minor = CAST(:captured_minor AS BIGINT),
    decline_code = :decline_code,
    result_json = :result_json,
    updated_at = now_ms(),
    settled_at = CASE WHEN :state = 'pending' THEN NULL ELSE now_ms() END
WHERE key = :key AND token = :token AND state = 'pending'
RETURNING *, now_ms() - created_at AS age_ms;

-- name: void_unseen
-- The tombstone for a key that was never claimed; no row when it was.
INSERT INTO effects (
    key, workflow_id, step, provider, operation, intent_digest, amount_minor, currency,
    state, token, lease_until, created_at, updated_at, settled_at
)
VALUES (
    :key, :workflow_id, :step, :provider, :operation, :intent_digest, :amount_minor, :currency,
    'voided', 0, 0, now_ms(), now_ms(), now_ms()
)
ON CONFLICT (key) DO NOTHING
RETURNING *, now_ms() - created_at AS age_ms;

-- name: begin_reversal
-- From here on nobody claims or commits the effect: what is known to be done, or unknown and held by nobody.
UPDATE effects SET state = 'reversing', lease_until = 0, updated_at = now_ms()
WHERE key = :key
    AND intent_digest = :intent_digest
    AND (state = 'committed' OR (state = 'pending' AND lease_until <= now_ms()))
RETURNING *;

-- name: end_reversal
-- Taken back. Of an effect whose own outcome never became known, at least what was given back had been captured, and no
-- more than was asked for. A tombstone stays one, unless something was taken back: then a holder had woken up too late.
UPDATE effects
SET state = 'reversed',
    refunded_minor = CAST(:refunded_minor AS BIGINT),
    captured_minor = COALESCE(
        captured_minor,
        CASE WHEN CAST(:refunded_minor AS BIGINT) > amount_minor THEN amount_minor ELSE CAST(:refunded_minor AS BIGINT) END
    ),
    updated_at = now_ms(),
    settled_at = now_ms()
WHERE key = :key
    AND (state = 'reversing' OR (state = 'voided' AND COALESCE(CAST(:refunded_minor AS BIGINT), 1) > 0));

-- name: effects_of_workflow
-- All that was done for one order, undos included.
SELECT effects.*, now_ms() - created_at AS age_ms
FROM effects WHERE workflow_id = :workflow_id ORDER BY created_at, key;

-- name: attempts_of_workflow
-- Every try at it.
SELECT attempts.* FROM attempts JOIN effects ON effects.key = attempts.key
WHERE effects.workflow_id = :workflow_id
ORDER BY attempts.started_at, attempts.key, attempts.token;
