-- Hands pending entries to the consumer that holds them, by their ids, until they weigh enough. After a start
-- or a claim, counts a death of each that a process had in hand, and withholds those that have too many. A
-- number of deliveries of 0: nobody has it in hand (set_aside.lua). Ids of others are passed over.
-- KEYS[1] stream; KEYS[2] deaths: hash, entry id -> number of deaths, a blank, token that counted the last
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries; ARGV[3] bytes: of names and values, at
-- most, but the first is handed over whatever it weighs; ARGV[4] largest: bytes of one that is handed over
-- ARGV[5] token: a death is counted once for each; '' counts none; ARGV[6] limit: deaths of the withheld
-- ARGV[7] and all that follow: entry ids, ascending, at most 2000
-- Reply: array of entries as XRANGE has them; ids without payload; ids of the too large; id, deaths, id,
-- deaths, ... of the withheld; ids of handed over ones that have deaths; number of ids that were looked at
local stream, deaths, group, consumer, token = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5]
local bytes, largest, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[6])
local call, KEEP_DEATHS_MS = redis.call, 604800000
local has_deaths = call('EXISTS', deaths) == 1
local entries, gone, large, withheld, survivors, looked = {}, {}, {}, {}, {}, 0
local counted, claims = {}, {} -- claims: by the number of deliveries that they will have
local function claim(id, deliveries)
  claims[deliveries] = claims[deliveries] or { 'XCLAIM', stream, group, consumer, 0 }
  table.insert(claims[deliveries], id)
end
local function count_death(id, deliveries) -- returns the deaths of the entry
  local note = has_deaths and call('HGET', deaths, id) or '0 '
  local died, by = tonumber(string.match(note, '^%d+')), string.match(note, ' (.*)$')
  if token == '' or deliveries == 0 or by == token then return died end
  counted[#counted + 1], counted[#counted + 2] = id, died + 1 .. ' ' .. token
  return died + 1
end
local function look(id, deliveries, entry) -- returns false when there is no room for it
  local size = 0
  for _, value in ipairs(entry[2]) do size = size + #value end
  if size > largest then large[#large + 1] = id return true end
  if size > bytes and #entries > 0 then return false end
  local died = count_death(id, deliveries)
  if died >= limit then
    withheld[#withheld + 1], withheld[#withheld + 2] = id, died
    claim(id, 0)
    return true
  end
  entries[#entries + 1], bytes = entry, bytes - size
  if died > 0 then survivors[#survivors + 1] = id end
  claim(id, deliveries + 1)
  return true
end
for at = 7, #ARGV do
  local held = call('XPENDING', stream, group, ARGV[at], ARGV[at], 1)[1]
  local entry = held and held[2] == consumer and (call('XRANGE', stream, held[1], held[1])[1] or 'gone')
  if entry == 'gone' then gone[#gone + 1] = held[1]
  elseif entry and not look(held[1], held[4], entry) then break end
  looked = looked + 1
end
if #counted > 0 and type(redis.pcall('HSET', deaths, unpack(counted))) == 'number' then -- or memory is short
  call('PEXPIRE', deaths, KEEP_DEATHS_MS)
end
for deliveries, words in pairs(claims) do
  words[#words + 1], words[#words + 2], words[#words + 3] = 'RETRYCOUNT', deliveries, 'JUSTID'
  call(unpack(words))
end
return { entries, gone, large, withheld, survivors, looked }
