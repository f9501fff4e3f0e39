-- The statements about endings, review items and operations. Written like `effects.sql`.

-- name: end_order
-- Note how an order ended; the latest word counts, as an order can be reset and end anew.
INSERT INTO endings (workflow_id, stage, ended_at) VALUES (:workflow_id, :stage, now_ms())
ON CONFLICT (workflow_id) DO UPDATE SET stage = excluded.stage, ended_at = excluded.ended_at
WHERE endings.stage <> excluded.stage;

-- name: get_ending
-- How an order ended, as far as anybody noted it.
SELECT stage FROM endings WHERE workflow_id = :workflow_id;

-- name: page_of_effects
-- The last key of a page: how far one look goes, however little it finds. Nobody waits long for it in a large ledger.
SELECT MAX(key) AS last FROM (SELECT key FROM effects WHERE key > :after ORDER BY key LIMIT :limit) AS page;

-- name: unsettled_effects
-- Forward effects in a page that may stand although their order is not known to have completed, in the order of keys.
-- What people decided to keep is settled. A tombstone is one of them while its undo is on its way: the provider has been
-- asked for what a late holder may have done, and has not said yet.
SELECT effects.key, effects.workflow_id FROM effects
LEFT JOIN endings ON endings.workflow_id = effects.workflow_id
LEFT JOIN review_items ON review_items.key = effects.key
WHERE effects.key > :after
    AND effects.key <= :last
    AND effects.key = effects.workflow_id || '.' || effects.step || '.do'
    AND (
        effects.state IN ('pending', 'committed', 'reversing')
        OR (
            effects.state = 'voided'
            AND EXISTS (
                SELECT 1 FROM effects AS undo
                WHERE undo.key = effects.workflow_id || '.' || effects.step || '.undo' AND undo.state = 'pending'
            )
        )
    )
    AND (effects.state <> 'committed' OR endings.stage IS NULL OR endings.stage <> 'completed')
    AND (review_items.closed_as IS NULL OR review_items.closed_as <> 'kept')
ORDER BY effects.key;

-- name: open_review_item
-- Put an effect before people, again if it was there before. No row means that it is there already, for this very reason.
INSERT INTO review_items (key, workflow_id, step, opened_by, amount_minor, currency, error, detail, opened_at)
VALUES (
    :key, :workflow_id, :step, :opened_by, CAST(:amount_minor AS BIGINT), :currency, :error, :detail, now_ms()
)
ON CONFLICT (key) DO UPDATE
SET opened_by = excluded.opened_by,
    amount_minor = excluded.amount_minor,
    currency = excluded.currency,
    error = excluded.error,
    detail = excluded.detail,
    opened_at = CASE WHEN review_items.closed_at IS NULL THEN review_items.opened_at ELSE excluded.opened_at END,
    closed_at = NULL,
    closed_as = NULL
WHERE review_items.closed_at IS NOT NULL
    OR review_items.opened_by <> excluded.opened_by
    OR review_items.error <> excluded.error
    OR COALESCE(review_items.detail, '') <> COALESCE(excluded.detail, '')
    OR COALESCE(review_items.amount_minor, -1) <> COALESCE(excluded.amount_minor, -1)
    OR COALESCE(review_items.currency, '') <> COALESCE(excluded.currency, '')
RETURNING key;

-- name: close_review_item
-- Take an effect off the queue, and say as what.
UPDATE review_items SET closed_at = now_ms(), closed_as = :closed_as
WHERE key = :key AND closed_at IS NULL
RETURNING key;

-- name: review_items_of_workflow
-- The queue's part of one order.
SELECT * FROM review_items WHERE workflow_id = :workflow_id ORDER BY opened_at, key;

-- name: get_review_item
-- One item, open or closed.
SELECT * FROM review_items WHERE key = :key;

-- name: open_review_items
-- The queue, oldest first.
SELECT * FROM review_items WHERE closed_at IS NULL ORDER BY opened_at, key LIMIT :limit;

-- name: recent_review_items
-- Closed ones too, those that were opened last on top.
SELECT * FROM review_items ORDER BY opened_at DESC, key LIMIT :limit;

-- name: book_operation
-- Keep what was signed; a second delivery changes nothing.
INSERT INTO operations (jti, key, workflow_id, operation, outcome, operator, token, accepted_at)
VALUES (:jti, :key, :workflow_id, :operation, :outcome, :operator, :token, now_ms())
ON CONFLICT (jti) DO NOTHING;

-- name: operations_of_effect
-- What people said about an effect, oldest first.
SELECT * FROM operations WHERE key = :key ORDER BY accepted_at, jti;

-- name: resolve_taken_back
-- A person made sure that it does not stand: that is the end of it. Nobody may be at work on it. A tombstone comes before
-- people only when it was claimed before, and nobody could say whether its holder acted late.
UPDATE effects
SET state = 'reversed',
    lease_until = 0,
    refunded_minor = COALESCE(captured_minor, amount_minor),
    captured_minor = COALESCE(captured_minor, amount_minor),
    updated_at = now_ms(),
    settled_at = now_ms()
WHERE key = :key
    AND (
        state IN ('committed', 'reversing')
        OR (state = 'pending' AND lease_until <= now_ms())
        OR (state = 'voided' AND token > 0)
    );

-- name: resolve_kept
-- A person made sure that it stands, and it may: that is the end of it, also if taking it back was begun. Nobody may be
-- at work on it. What is known to stand is left as it is.
UPDATE effects
SET state = 'committed',
    lease_until = 0,
    captured_minor = COALESCE(captured_minor, amount_minor),
    updated_at = now_ms(),
    settled_at = now_ms()
WHERE key = :key AND (state = 'reversing' OR (state = 'pending' AND lease_until <= now_ms()));

-- name: void_undo
-- After a resolution no late undo may act any more.
UPDATE effects SET state = 'voided', lease_until = 0, updated_at = now_ms(), settled_at = now_ms()
WHERE key = :key AND state = 'pending' AND lease_until <= now_ms();

-- name: forbid_undo
-- Nor may the first one, of an effect that stands or stood: an undo that nobody began gets its tombstone. Of a voided
-- effect this row alone keeps an undo away that read it just before.
INSERT INTO effects (
    key, workflow_id, step, provider, operation, intent_digest, amount_minor, currency,
    state, token, lease_until, created_at, updated_at, settled_at
)
SELECT
    CAST(:undo_key AS TEXT), workflow_id, step, provider, 'undo', 'resolved', amount_minor, currency,
    'voided', 0, 0, now_ms(), now_ms(), now_ms()
FROM effects
WHERE key = :key AND (state IN ('committed', 'reversing', 'reversed') OR (state = 'voided' AND token > 0))
ON CONFLICT (key) DO NOTHING;
