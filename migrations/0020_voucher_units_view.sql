-- Where the units of each voucher are, for people and reports: `tidegate voucher show` has its numbers from the same text.
-- Only orders with a slot hold units. What contradicts itself is shown, too: `contradictory` are units of rows whose slot and
-- status do not fit each other, `unaccounted` is what was loaded and is found nowhere. Asked for one voucher, it reads the rows
-- of that voucher by the unique key, and looks for events of those orders only that hold no slot any more.
CREATE SQL SECURITY INVOKER VIEW tidegate_voucher_units AS
SELECT
  v.voucher_id,
  CAST(MAX(v.initial_stock) AS SIGNED) AS loaded,
  CAST(MAX(v.stock) AS SIGNED) AS unsold,
  CAST(COALESCE(SUM(CASE WHEN o.slot IS NOT NULL AND COALESCE(o.status, 1) = 1 THEN o.quantity END), 0) AS SIGNED) AS unpaid,
  CAST(COALESCE(SUM(CASE WHEN o.slot IS NOT NULL AND o.status = 2 THEN o.quantity END), 0) AS SIGNED) AS paid,
  CAST(COALESCE(SUM(CASE WHEN o.slot IS NOT NULL AND o.status = 3 THEN o.quantity END), 0) AS SIGNED) AS used,
  CAST(COALESCE(SUM(CASE WHEN o.slot IS NOT NULL AND o.status = 5 THEN o.quantity END), 0) AS SIGNED) AS refunding,
  CAST(COALESCE(SUM(e.released), 0) AS SIGNED) AS given_back,
  CAST(MAX(v.initial_stock) AS SIGNED)
    - CAST(COALESCE(SUM(CASE WHEN o.slot IS NOT NULL AND o.status = 3 THEN o.quantity END), 0) AS SIGNED) AS on_hand,
  CAST(COALESCE(SUM(CASE
    WHEN o.slot IS NOT NULL AND COALESCE(o.status, 1) NOT IN (1, 2, 3, 5) THEN o.quantity
    WHEN o.slot IS NULL AND COALESCE(o.status, 1) NOT IN (4, 5, 6) THEN o.quantity
  END), 0) AS SIGNED) AS contradictory,
  CAST(MAX(v.initial_stock) AS SIGNED) - CAST(MAX(v.stock) AS SIGNED)
    - CAST(COALESCE(SUM(CASE WHEN o.slot IS NOT NULL AND COALESCE(o.status, 1) IN (1, 2, 3, 5) THEN o.quantity END), 0) AS SIGNED)
    AS unaccounted
FROM tb_seckill_voucher v
LEFT JOIN tb_voucher_order o ON o.voucher_id = v.voucher_id
LEFT JOIN tidegate_event e ON e.order_id = CASE WHEN o.slot IS NULL THEN o.id END AND e.released > 0
GROUP BY v.voucher_id;
