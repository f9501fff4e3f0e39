-- The statements of `orderflow db prune`. Written like `effects.sql`. Times and counts of an order stand together, so that one
-- reading says what would be forgotten.

-- name: forgettable_orders
-- A page of orders that ended longer than :period_ms ago and of which nothing is open: no effect on its way, nothing that
-- stands although its order did not complete and nobody decided to keep it, no item before people.
SELECT
    endings.workflow_id,
    endings.ended_at,
    (SELECT COUNT(*) FROM effects WHERE effects.workflow_id = endings.workflow_id) AS effects,
    (
        SELECT COUNT(*) FROM attempts JOIN effects ON effects.key = attempts.key
        WHERE effects.workflow_id = endings.workflow_id
    ) AS attempts,
    (SELECT COUNT(*) FROM review_items WHERE review_items.workflow_id = endings.workflow_id) AS review_items
FROM endings
WHERE endings.ended_at <= now_ms() - :period_ms
    AND (endings.ended_at, endings.workflow_id) > (CAST(:after_ms AS BIGINT), :after)
    AND NOT EXISTS (
        SELECT 1 FROM effects
        LEFT JOIN review_items ON review_items.key = effects.key
        WHERE effects.workflow_id = endings.workflow_id
            AND (
                effects.state IN ('pending', 'reversing')
                OR (
                    effects.state = 'committed'
                    AND endings.stage <> 'completed'
                    AND effects.key = effects.workflow_id || '.' || effects.step || '.do'
                    AND (review_items.closed_as IS NULL OR review_items.closed_as <> 'kept')
                )
            )
    )
    AND NOT EXISTS (
        SELECT 1 FROM review_items
        WHERE review_items.workflow_id = endings.workflow_id AND review_items.closed_at IS NULL
    )
ORDER BY endings.ended_at, endings.workflow_id
LIMIT :limit;

-- name: forget_attempts
-- They name their effects, so they go first.
DELETE FROM attempts WHERE key IN (SELECT key FROM effects WHERE workflow_id = :workflow_id);

-- name: forget_effects
-- What has begun to move since it was read stays.
DELETE FROM effects WHERE workflow_id = :workflow_id AND state NOT IN ('pending', 'reversing');

-- name: forget_review_items
-- Closed ones; what people signed stays in `operations`.
DELETE FROM review_items WHERE workflow_id = :workflow_id AND closed_at IS NOT NULL;

-- name: forget_ending
-- If it is still the one that was read.
DELETE FROM endings WHERE workflow_id = :workflow_id AND ended_at = :ended_at;

-- name: left_of_order
-- Something is, if the order came back to life meanwhile.
SELECT key FROM effects WHERE workflow_id = :workflow_id
UNION ALL
SELECT key FROM review_items WHERE workflow_id = :workflow_id
UNION ALL
SELECT workflow_id FROM endings WHERE workflow_id = :workflow_id;
