-- Puts a dead letter back into the stream: adds its entry again, under a new id, and deletes the letter. It
-- acts only while the letter exists, so a second call changes nothing. XADD comes first: if it fails (wrong
-- type, memory limit), the letter stays. The fields come from the caller, who has read them.
-- KEYS[1] dead: stream of the dead letters
-- KEYS[2] stream: the orders
-- KEYS[3] journal: hash of the order's voucher; absent if the letter holds no order
-- ARGV[1] letter: its id in the dead stream; ARGV[2] order id: '' if the letter holds no order
-- ARGV[3] and all that follow: name, value, name, value, ... of the entry with its history, at most 7800
-- Reply 0: no such letter any more; nothing was done
-- Reply 1: the order was released: it must not be written; nothing was done
-- Reply text: put back; the id of its new entry
local dead, stream, journal, letter, order = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]

if not redis.call('XRANGE', dead, letter, letter)[1] then
  return 0
end
local movement = order ~= '' and redis.call('HGET', journal, order)
if movement and string.find(movement, '"action":"release"', 1, true) then
  return 1
end
local added = redis.call('XADD', stream, '*', unpack(ARGV, 3))
redis.call('XDEL', dead, letter)
return added
