-- Reads the few fields of an entry that say what it is about, and leaves the rest where it is: for entries
-- that are too large to be read as a whole, or that processes died of. Changes nothing.
-- KEYS[1] stream
-- ARGV[1] id: of the entry; ARGV[2] longest: bytes of a value that is read, at most
-- ARGV[3] and all that follow: names of the fields; one that stands here twice is one
-- Reply: array of name, value, name, value, ... of those that the entry has, of a field that stands twice the
-- first; empty when the entry is not there
local stream, id, longest = KEYS[1], ARGV[1], tonumber(ARGV[2])
local wanted, found = {}, {}
for at = 3, #ARGV do wanted[ARGV[at]] = true end
local entry = redis.call('XRANGE', stream, id, id)[1]
local fields = entry and entry[2] or {}
for at = 1, #fields, 2 do
  local name, value = fields[at], fields[at + 1]
  if wanted[name] and #value <= longest then
    found[#found + 1], found[#found + 2] = name, value
    wanted[name] = nil
  end
end
return found
