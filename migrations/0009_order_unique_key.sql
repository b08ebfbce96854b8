-- The guard of the whole design: a user has one live order in a slot of a voucher, whatever lock was lost, whatever
-- entry came twice. The voucher comes first because the orders of one voucher are looked up and audited together.
ALTER TABLE tb_voucher_order
  ADD UNIQUE KEY uk_voucher_user_slot (voucher_id, user_id, slot);
