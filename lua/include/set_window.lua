-- Writes a sale window.
-- Reads: call; sale_key; begin_ms, end_ms, '' for no bound.
for field, value in pairs({ begin_ms = begin_ms, end_ms = end_ms }) do
  if value == '' then
    call('HDEL', sale_key, field)
  else
    call('HSET', sale_key, field, value)
  end
end
