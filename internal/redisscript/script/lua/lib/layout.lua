-- What the server keeps of a lock. Nothing of it may change while versions of this package work
-- side by side.
--
-- KEYS[1] is a hash. It is there while the lock is held, and for KEEP longer than its TTL:
--   owner   who holds the lock alone; or '>' and the waiter that it is claimed for; or SHARES; or CLAIMS
--   meta    the metadata of who holds it alone, or of the writer, if it is not in the owner
--   token   the latest token, so that the next is larger
--   before  the one before it
--   lapsed  the largest token whose hold is known to have ended without a release
--   queue   there if somebody may wait: 1, or whom the first that comes has to tell, the holders' processes
--           as in front of an owner, one behind the other
-- While there are shares, and claims of shares, it also has:
--   shared  the latest token of shares
--   reader  the owner of the last of them that was released
--   gone    a token, and those of its shares that have ended without a release, each after a line feed
--   writer  who had the lock alone and made it a share
--   first   who stands first in the queue, and wants the lock alone, while shares are held
--   seen    when that one last asked since it was found out, in µs
--
-- KEYS[2] is a sorted set, the queue: who waits, by the time of first asking in µs, or by a place
-- that it has brought. KEYS[3] is a sorted set, the readers: shares by their owners, and claims of
-- shares by '>' and the owner, by when each expires in ms.
--
-- An owner is a random text. What can stand in it:
--   p process /   in front: it waits, and its process is subscribed to the channel KEYS[1]:process
--   s process /   in front: the same, and the channel is a sharded one
--   - process /   in front: it waits, is not subscribed, and polls
--   place /       behind that: it waits at several servers, in the same order, and this is its place
--   ~             behind that: it asks for a share
--   line feed     at the end: what follows is metadata, of any characters, if it waits or asks for a share

-- What scripts are sent:
--   owner     which asks, holds or waits; of a release '>' and the owner: its claim alone
--   expires   TTL + KEEP in ms
--   due       see take.lua in lib
--   meta      metadata; '' if it is in the owner
--   token     of a hold; 0: not known, or any
--   sent      how often this release has been sent before

-- The lock expires KEEP before its key does. So one PEXPIRE extends it, which Redis allows when it
-- is out of memory; and whoever looks at the key's expiry sees no lock that outlives its TTL.
local KEEP = 60000 -- ms

-- How far a token may be ahead of a clock that was not set back: the clock passes it before it is
-- forgotten.
local AHEAD = KEEP * 500 -- µs

-- The queue and the readers, also where a script was given the lock's key alone.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local READERS = KEYS[3] or KEYS[1] .. ':readers'

-- The owner of a lock that has shares, and of one that has claims of shares alone.
local SHARES = '+'
local CLAIMS = '>+'

local ELSEWHERE = 'TRYAGAIN locker: the shares are not where the lock is: its slot moves, or they were removed'

-- id_of returns an owner without its metadata.
local function id_of(owner) return string.match(owner, '^[^\n]*') end

-- waits reports whether an owner wants a place in the queue.
local function waits(owner) return string.find(owner, '^[ps-][^~]*/') end

-- wants_share reports whether an owner asks for a share. Its metadata may have a ~, too.
local function wants_share(owner) return string.find(owner, '^[^\n~]*~') end

-- own_place returns the place that an owner has in its name, or one that the lock is claimed for:
-- digits, of which a number has the first 15.
local function own_place(owner) return string.match(owner, '^>?[ps-][^/]*/(%d+)/') end

-- is_shared reports whether that is the owner of a lock that has shares, or claims of them.
local function is_shared(owner) return owner == SHARES or owner == CLAIMS end
