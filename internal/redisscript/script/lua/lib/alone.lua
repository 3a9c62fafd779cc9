-- Of an owner that wants the lock alone, where it is not free.
if left > 0 and current == owner then
  -- uses: sent_twice
  return sent_twice(left, expires, last, now)
elseif too_late then
  -- uses: LATE
  return {LATE, now}
end
