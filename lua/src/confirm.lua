-- Writes the note of an order once more without changing it. WAIT waits for writes of its own connection:
-- after this call, it waits for everything that was written before, also over other connections.
-- KEYS[1] journal: hash, order id -> stock movement as JSON
-- ARGV[1] order id
-- Reply 1: written
-- Reply 0: the order has no note; nothing was written
local journal, order = KEYS[1], ARGV[1]

local note = redis.call('HGET', journal, order)
if not note then
  return 0
end
redis.call('HSET', journal, order, note)
return 1
