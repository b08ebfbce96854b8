-- Appends results to the results stream, one after the other, until there is an error.
-- Sent twice, it appends twice.
-- KEYS[1] the results stream
-- ARGV[1] number of names; ARGV[2] is the first name, then the others; then come, for each result,
-- its values in the order of the names; an empty one is left out
-- Reply array: how many results were appended
-- Reply array: how many results were appended; the text of the error of the next one
-- Reply error: the error of the first result, if it was not appended
-- Error BADARG: key, names or number of arguments are invalid; nothing was done
-- Written by `just lua` from lua/src/publish.lua: change that file, not this one
local names = #KEYS == 1 and string.find(ARGV[1] or '', '^[1-9]%d?%d?$') and tonumber(ARGV[1])
if not names or #ARGV <= names or (#ARGV - 1) % names ~= 0 then
  return redis.error_reply('BADARG expected: 1 key, 1 to 999 names, a value of each for every result')
end
local argv, try, stream, fields = ARGV, redis.pcall, KEYS[1], {}
for first = names + 2, #argv, names do
  local count = 0
  for at = 0, names - 1 do
    local value = argv[first + at]
    if value ~= '' then
      fields[count + 1], fields[count + 2] = argv[at + 2], value
      count = count + 2
    end
  end
  local id = try('XADD', stream, '*', unpack(fields, 1, count))
  if type(id) == 'table' then
    if first == names + 2 then return id end
    return { (first - 2) / names - 1, id.err }
  end
end
return { (#argv - 1) / names - 1 }
