-- The present time by the clock of this server.
-- Reads: call. Defines: time, which is seconds and microseconds, each as text; now_ms, Unix milliseconds as
-- text.
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
