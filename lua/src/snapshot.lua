-- Reads in one step the start of a comparison of a voucher: its stock, and the time at which it had that
-- stock. Changes nothing. A caller that reads the journal afterwards must count later movements as if they
-- had not happened yet.
-- KEYS[1] stock: string, units left; KEYS[2] journal: hash, order id -> stock movement as JSON
-- KEYS[3] stream: the orders; KEYS[4] stock: under its name for a voucher with limits
-- Reply array: the stock as text, null if none is loaded; the time in Unix milliseconds, by the clock of
-- Redis; the last id that the stream gave out, '0-0' if there is none; 1 if the journal is complete,
-- otherwise 0; the number of fields that the journal holds; its field #purged, null without one
local plain_key, journal, stream, limited_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local stock = call('GET', plain_key) or call('GET', limited_key)
local is_complete, purged = unpack(call('HMGET', journal, '#complete', '#purged'))
local fields = call('HLEN', journal)
--- @include "time"
local about = call('EXISTS', stream) == 1 and call('XINFO', 'STREAM', stream) or {}
local last_id = '0-0'
for at = 1, #about, 2 do
  if about[at] == 'last-generated-id' then last_id = about[at + 1] end
end
return { stock, tonumber(now_ms), last_id, is_complete and 1 or 0, fields, purged }
