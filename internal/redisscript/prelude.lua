-- A lock is one hash: owner and meta while it is held, and for a day longer than its TTL
--   token   the latest, so that the next is larger
--   before  the one before it
--   lapsed  the largest token whose hold is known to have ended without a release
--   queue   there if somebody may wait
-- The lock expires KEEP before the key expires. So one PEXPIRE extends it, which Redis allows when it
-- is out of memory; and whoever looks at the key's expiry sees no lock that outlives its TTL.
local KEEP = 86400000 -- ms
-- A token may be this far ahead of the server's clock, in µs, or of the latest: half of KEEP. So by the time that it is forgotten
-- clocks have passed it, also one that is behind by the other half.
local AHEAD = KEEP * 500
