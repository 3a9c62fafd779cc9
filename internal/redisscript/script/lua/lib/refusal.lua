-- Of an owner that does not get the lock now. One that waits has a place in the queue from here on.
-- uses: waits, HELD
local back, refused = 0
if waits(owner) then
  -- uses: enqueue
  place, back, refused = enqueue(owner, place, now, lock[3], current)
end
return refused or {HELD, left, now, place, back, earlier, holder, about}
