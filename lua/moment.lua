-- Reads in one step what a comparison of a voucher begins with: its stock and the time at which that was its
-- stock. Changes nothing. Whoever reads the journal afterwards counts later movements as they were before.
-- KEYS[1] stock: string, units left; KEYS[2] journal: hash, order id -> stock movement as JSON
-- KEYS[3] stream: the orders; KEYS[4] stock: under the name that it has while there are limits
-- Reply: array of six: the stock as text, null where none is loaded; the time in Unix milliseconds, by the
-- clock of Redis; the id that the stream gave out last, '0-0' where there is none; 1 where the journal is
-- complete, otherwise 0; the number of fields that the journal holds; its field #purged, null without one
local call = redis.call
local stock = call('GET', KEYS[1]) or call('GET', KEYS[4])
local noted = call('HMGET', KEYS[2], '#complete', '#purged')
local fields, last_id, time = call('HLEN', KEYS[2]), '0-0', call('TIME')
local about = call('EXISTS', KEYS[3]) == 1 and call('XINFO', 'STREAM', KEYS[3]) or {}
for at = 1, #about, 2 do
  if about[at] == 'last-generated-id' then last_id = about[at + 1] end
end
local now_ms = tonumber(time[1] .. string.sub('00000' .. time[2], -6, -4))
return { stock, now_ms, last_id, noted[1] and 1 or 0, fields, noted[2] }
