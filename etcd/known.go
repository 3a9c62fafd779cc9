package etcd

// knownShare is a share whose token is settled.
type knownShare struct {
	key            string
	created, token int64
}

// knownShares are the shares of a session for one folder.
type knownShares struct {
	latest string // the key of the one that was settled last
	all    map[string]knownShare
}

// noteShare has the next share for the folder find this one.
func (s *session) noteShare(folder string, known knownShare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := s.shares[folder]
	if shares == nil {
		shares = &knownShares{all: map[string]knownShare{}}
		s.shares[folder] = shares
	}
	shares.latest, shares.all[known.key] = known.key, known
}

// knownShare returns the share of the folder that was settled last, or another, if any is not known
// to have ended.
func (s *session) knownShare(folder string) (known knownShare, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := s.shares[folder]
	if shares == nil {
		return known, false
	}
	if known, ok = shares.all[shares.latest]; !ok {
		for _, known = range shares.all {
			break
		}
	}
	return known, true
}

// forgetShare forgets a share that has ended.
func (s *session) forgetShare(folder, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shares := s.shares[folder]; shares != nil {
		if delete(shares.all, key); len(shares.all) == 0 {
			delete(s.shares, folder)
		}
	}
}
