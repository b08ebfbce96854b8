-- Hands pending entries to the consumer that holds them, by their ids, until they weigh enough: their number
-- of deliveries is 1 or more from then on (set_aside.lua). It withholds entries that too many processes died
-- of (count_crashes.lua). It skips ids of other consumers, and entries that an operator has made claimable
-- for all workers (make_claimable.lua). The next scan of any lane claims those, and a try by their holder
-- would undo that. Crashes that cannot be read (another type, no permission) count as none.
-- KEYS[1] stream; KEYS[2] crashes: hash, entry id -> number of crashes; absent if this user may not use it
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries; ARGV[3] bytes: limit for all entries that
-- it handles together (names, values, and 64 for each field); the first entry is always handled
-- ARGV[4] largest: bytes of the largest entry that is handed over, counted in the same way; ARGV[5] limit:
-- number of crashes from which on an entry is withheld
-- ARGV[6] run: run_id (INFO server) of the server that the entries came from; '': do not compare
-- ARGV[7] and all that follow: entry ids, ascending, at most 2000
-- Reply array: entries as XRANGE has them; ids without payload; ids of the too large; id, crashes, id,
-- crashes, ... of the withheld; ids of those handed over that have crashes; number of ids that were handled
-- Error OTHERRUN: another server, or this one after a restart; nothing was done (settle.lua says why)
-- Written by `just lua` from lua/src/fetch.lua: change that file, not this one
local stream, crashes, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local bytes, largest, limit, run = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local TEN_YEARS_MS, FIELD_BYTES = 315360000000, 64
local call = redis.call
if run ~= '' and string.match(call('INFO', 'server'), 'run_id:(%x+)') ~= run then
  return redis.error_reply('OTHERRUN these entries were read from another server')
end
local has_crashes, claims = crashes and redis.pcall('EXISTS', crashes) == 1, {}
local entries, gone, large, withheld, survivors, looked = {}, {}, {}, {}, {}, 0
local function claim(id, deliveries) -- one call for all entries with the same number of deliveries
  claims[deliveries] = claims[deliveries] or { 'XCLAIM', stream, group, consumer, 0 }
  table.insert(claims[deliveries], id)
end
local function look(id, deliveries, entry) -- returns false if there is no room for it
  local size = #entry[2] / 2 * FIELD_BYTES
  for _, value in ipairs(entry[2]) do size = size + #value end
  if size > bytes and looked > 0 then return false end
  bytes = bytes - size -- also for too large ones: handling many of them takes long
  if size > largest then
    large[#large + 1] = id
    return true
  end
  local note = has_crashes and redis.pcall('HGET', crashes, id) -- an error is a table
  local died = type(note) == 'string' and tonumber(string.match(note, '^%d+')) or 0
  if died >= limit then
    withheld[#withheld + 1], withheld[#withheld + 2] = id, died
    claim(id, 0)
    return true
  end
  entries[#entries + 1] = entry
  if died > 0 then survivors[#survivors + 1] = id end
  claim(id, deliveries + 1)
  return true
end
local most, rows = 2 * (#ARGV - 6), {} -- one call returns all of them, as in set_aside.lua
local found = call('XPENDING', stream, group, ARGV[7], ARGV[#ARGV], most, consumer)
for _, row in ipairs(found) do rows[row[1]] = row end
for at = 7, #ARGV do
  local id = ARGV[at]
  local held = rows[id] or #found == most and call('XPENDING', stream, group, id, id, 1, consumer)[1]
  local entry = held and held[3] <= TEN_YEARS_MS and (call('XRANGE', stream, id, id)[1] or 'gone')
  if entry == 'gone' then
    gone[#gone + 1] = id
  elseif entry and not look(id, held[4], entry) then
    break
  end
  looked = looked + 1
end
for deliveries, words in pairs(claims) do
  words[#words + 1], words[#words + 2], words[#words + 3] = 'RETRYCOUNT', deliveries, 'JUSTID'
  call(unpack(words))
end
return { entries, gone, large, withheld, survivors, looked }
