-- Reads entries by their ids, until they weigh enough: whole entries, or only a few fields of each. With
-- names, it leaves the other fields in Redis. That is for entries that are too large to be read as a whole
-- or that processes died of, and for callers that only need the order of an entry. Changes nothing.
-- KEYS[1] stream
-- ARGV[1] bytes: limit for all entries that it reads together (names, values, and 64 for each field); the
-- first entry is always read; ARGV[2] longest: bytes of the longest value that is read, if names are given
-- ARGV[3] count: number of names that follow; 0: each entry is read as a whole
-- ARGV[4] and all that follow: names of the fields; a repeated name counts once; then entry ids
-- Reply list: for each id that was read, from the first one on: an array of name, value, name, value, ...,
-- with the given names that the entry has; if the entry repeats a field, the first one counts; false (null):
-- the entry does not exist
local stream, bytes, longest, count = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local FIELD_BYTES = 64
local replies = {}

local function weight(fields)
  local size = #fields / 2 * FIELD_BYTES
  for _, value in ipairs(fields) do size = size + #value end
  return size
end

local function wanted_of(fields)
  local wanted, found = {}, {}
  for at = 4, 3 + count do wanted[ARGV[at]] = true end
  for at = 1, #fields, 2 do
    local name, value = fields[at], fields[at + 1]
    if wanted[name] and #value <= longest then
      found[#found + 1], found[#found + 2] = name, value
      wanted[name] = nil
    end
  end
  return found
end

for at = 4 + count, #ARGV do
  local entry = redis.call('XRANGE', stream, ARGV[at], ARGV[at])[1]
  local fields = entry and entry[2] or false
  bytes = bytes - (fields and weight(fields) or 0)
  if bytes < 0 and #replies > 0 then break end
  replies[#replies + 1] = fields and (count == 0 and fields or wanted_of(fields))
end
return replies
