package conformance

import (
	"fmt"
	"sync"

	"github.com/go-locker/locker/internal/history"
)

// register is a number that many change. With a guard it refuses who comes with a token that is 0,
// or lower than the largest it has seen; reading shows a token, too.
type register struct {
	guarded bool

	mu      sync.Mutex
	value   int
	writes  int // accepted
	refused int
	largest uint64
}

// show has the guard look at a token. The caller holds r.mu.
func (r *register) show(token uint64) error {
	if !r.guarded {
		return nil
	}
	if token == 0 || token < r.largest {
		r.refused++
		return fmt.Errorf("%w: it is %d, the largest so far %d", errStale, token, r.largest)
	}
	r.largest = token
	return nil
}

func (r *register) read(token uint64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.show(token)
}

func (r *register) write(token uint64, value int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.show(token); err != nil {
		return err
	}
	r.value = value
	r.writes++
	return nil
}

// reads is read, by p.
func (p *party) reads(r *register, token uint64) (int, error) {
	since := p.env.record.now()
	n, err := r.read(token)
	p.env.record.did(history.Event{Client: p.id, Op: history.OpRead, Call: since, Token: token, Value: n, Fenced: r.guarded}, err)
	return n, err
}

// writes is write, by p.
func (p *party) writes(r *register, token uint64, value int) error {
	since := p.env.record.now()
	err := r.write(token, value)
	p.env.record.did(history.Event{Client: p.id, Op: history.OpWrite, Call: since, Token: token, Value: value, Fenced: r.guarded}, err)
	return err
}

// lost is how many updates are not there any more.
func (r *register) lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes - r.value
}

// bothWrite has p and b, who hold at the same time, write what each makes of the value that it has
// read; b, who got the lock later, is first. It returns what a resource makes of that which checks
// tokens, and of nobody without tokens "".
func (e *env) bothWrite(p, b *party) string {
	older, newer := p.token(), b.token()
	if older == 0 || newer == 0 {
		return ""
	}
	var first, second error
	for _, r := range []*register{{}, {guarded: true}} {
		was, _ := p.reads(r, older)
		is, _ := b.reads(r, newer)
		first, second = b.writes(r, newer, is+1), p.writes(r, older, was+1)
	}
	switch {
	case first != nil:
		return fmt.Sprintf("; a resource that checks tokens refuses the write of %s, who got the lock later", b.who)
	case second != nil:
		return fmt.Sprintf("; a resource that checks tokens refuses the late write of %s", p.who)
	default:
		return "; a resource that checks tokens accepts both" // they are equal
	}
}
