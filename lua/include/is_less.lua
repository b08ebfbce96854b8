-- Whether an entry id is below another. It compares text, each half by its length first: numbers lose digits
-- above 2^53.
-- Reads: no name. Defines: is_less.
local function is_less(a, b)
  local a_ms, a_seq, b_ms, b_seq = a:match('^%d+'), a:match('%d+$'), b:match('^%d+'), b:match('%d+$')
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  return #a_ms < #b_ms or #a_ms == #b_ms and a_ms < b_ms
end
