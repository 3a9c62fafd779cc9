-- A lock is one hash: owner and meta while it is held, and for a minute longer than its TTL
--   token   the latest, so that the next is larger
--   before  the one before it
--   lapsed  the largest token whose hold is known to have ended without a release
--   queue   there if somebody may wait
-- The lock expires KEEP before the key expires. So one PEXPIRE extends it, which Redis allows when it
-- is out of memory; and whoever looks at the key's expiry sees no lock that outlives its TTL.
local KEEP = 60000 -- ms
local AHEAD = KEEP * 500 -- µs that a token may be ahead of a clock that was not set back: it passes it before it is forgotten
local ELSEWHERE = 'TRYAGAIN locker: the shares are not where the lock is: its slot moves, or they were removed'
