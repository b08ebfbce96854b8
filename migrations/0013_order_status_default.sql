-- Where the tables were made with a status that may be NULL and has no default, an order would be neither unpaid nor
-- anything else. The worker names only the columns that it knows, so the default speaks for it; whoever writes a status
-- of its own, as the tutorial's service does, is not touched by it, nor are rows that are there.
ALTER TABLE tb_voucher_order ALTER COLUMN status SET DEFAULT 1;
