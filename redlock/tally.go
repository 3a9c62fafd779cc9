package redlock

// majority returns how many of so many nodes are more than half.
func majority(nodes int) int { return nodes/2 + 1 }

// tally counts how the nodes stand to an Extend or a Release of a hold.
type tally struct {
	nodes    int
	agreed   int
	waiting  int // have yet to answer
	without  int // had the lock not all the time: if too many had not, another may have come and gone
	doubtful int // may have been without it, and have yet to answer
}

func (t *tally) add(agreed, waits, without bool) {
	if agreed {
		t.agreed++
	}
	if waits {
		t.waiting++
	}
	switch {
	case without:
		t.without++
	case waits:
		t.doubtful++
	}
}

func (t *tally) quorum() int { return majority(t.nodes) }

// lost reports whether no majority has had the lock all the time.
func (t *tally) lost() bool { return t.without > t.nodes-t.quorum() }

// mayBeLost reports whether lost may come to be true, or is.
func (t *tally) mayBeLost() bool { return t.without+t.doubtful > t.nodes-t.quorum() }

// succeeded reports whether a majority has agreed, and lost cannot come to be true.
func (t *tally) succeeded() bool { return t.agreed >= t.quorum() && !t.mayBeLost() }
