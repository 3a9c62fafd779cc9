if left <= 0 and not claimed then
  -- uses: succeed
  expired, claim = succeed(current, last, lock[3], place, owner)
  if claim then
    current, left = claim, CLAIM
  end
end
