// Package history has what several clients of a lock did and were told, and judges whether one lock
// can have behaved so. It runs nothing, and knows no Locker: a history that was saved is judged
// again by Read and Check.
package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// History is what several clients did, and what they were told, as they saw it. Times are
// nanoseconds of one monotonic clock. It is saved as it is when it fails.
type History struct {
	Format   int      `json:"format"`
	Scenario string   `json:"scenario,omitempty"`
	Again    string   `json:"again,omitempty"`   // a command that has the same clients and faults once more
	Outcome  string   `json:"outcome,omitempty"` // of a scenario that was recorded: kept, or what was seen of the breach
	Seed     uint64   `json:"seed"`
	Demand   Demand   `json:"demand"`
	Clients  []Client `json:"clients"`
	Faults   []Fault  `json:"faults"`
	Events   []Event  `json:"events"`

	mu    sync.Mutex
	began time.Time
}

// Client is one Locker of a history.
type Client struct {
	Who    string        `json:"who"`
	Name   string        `json:"name"` // of the lock
	TTL    time.Duration `json:"ttl"`
	Renews bool          `json:"renews,omitempty"`
}

// Fault is a fault that came and went.
type Fault struct {
	Kind string `json:"kind"` // of Faults, a field
	What string `json:"what"`
	From int64  `json:"from"`
	To   int64  `json:"to"`

	Set    int64 `json:"set,omitempty"`    // when its cause had returned
	Undone int64 `json:"undone,omitempty"` // when its end began
	Mutes  Muted `json:"mutes,omitempty"`
	Client int   `json:"client,omitempty"` // whom it was meant for
	Until  int64 `json:"until,omitempty"`  // how long that one was going to hold; 0: it did not hold

	Answered bool `json:"answered,omitempty"` // by a process that was stopped
}

// Event is one call, or the moment in which a client saw that Lost had fired. What a client does
// with a resource says nothing of the lock: Check passes over it.
type Event struct {
	Client int     `json:"c"`
	Op     string  `json:"op"`
	Call   int64   `json:"call"`
	Return int64   `json:"ret"`
	Err    ErrKind `json:"said,omitempty"`
	Token  uint64  `json:"token,omitempty"`  // of FencingToken, or the one that a resource is shown
	Text   string  `json:"text,omitempty"`   // of an error
	Value  int     `json:"value,omitempty"`  // that was read or written
	Fenced bool    `json:"fenced,omitempty"` // the resource checks tokens
}

// The operations.
const (
	OpLock      = "Lock"
	OpTryLock   = "TryLock"
	OpRLock     = "RLock"
	OpTryRLock  = "TryRLock"
	OpDowngrade = "Downgrade"
	OpExtend    = "Extend"
	OpUnlock    = "Unlock"
	OpToken     = "FencingToken"
	OpLost      = "Lost" // has fired
	OpRead      = "Read" // of a resource
	OpWrite     = "Write"
)

// ErrKind is what of an error matters here.
type ErrKind string

// The kinds.
const (
	NoErr     ErrKind = ""
	IsLost    ErrKind = "lost"
	IsNotHeld ErrKind = "not held"
	IsHeld    ErrKind = "held"
	IsStale   ErrKind = "stale" // of a resource: the token is below one that it has seen, or 0
	OtherErr  ErrKind = "error" // and nobody knows what the backend did
)

// Muted is whom a fault keeps from hearing of the backend.
type Muted string

// Whom a fault can mute.
const (
	Nobody    Muted = ""
	Everyone  Muted = "everyone"
	ItsVictim Muted = "its victim"
)

// Coarse is how much later than after its TTL a hold may expire, at a backend whose clock is
// coarse, with some allowance for a slow one.
const Coarse = 700 * time.Millisecond

// Assured returns how long after the call of its Lock, or of an Extend, a hold lasts for certain,
// whatever pauses: Lock succeeds only with half a TTL left.
func Assured(ttl time.Duration) time.Duration { return ttl / 2 }

// Begin starts the history's clock.
func (h *History) Begin() { h.began = time.Now() }

// Now returns the time on the history's clock.
func (h *History) Now() int64 { return int64(time.Since(h.began)) }

// AddClient adds a client, and returns its number.
func (h *History) AddClient(c Client) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Clients = append(h.Clients, c)
	return len(h.Clients) - 1
}

// RecordFault adds a fault.
func (h *History) RecordFault(f Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Faults = append(h.Faults, f)
}

// Record adds a call.
func (h *History) Record(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Events = append(h.Events, e)
}

// hold is one in a history: from a Lock that returned nil to its Unlock, and what its client was
// told meanwhile.
type hold struct {
	id       int // of the history, from 1
	client   int
	token    uint64 // 0: never seen
	grant    Event
	confirms []Event // FencingTokens that were not 0, Extends that returned nil
	extends  []Event // that may have extended it
	toldLost int64   // when the client was told of its loss; 0: never
	assured  int64   // how long a call that returned nil holds it, whatever tells of an earlier loss; 0: no time
	unlock   *Event
	breaches []breach
}

// breach is what no lock may say, whatever others do.
type breach struct {
	Event
	why string
}

// holdsOf finds the holds of one client in its events. A hold without a grant has what its client
// was told while it held nothing, and should not have been told.
func holdsOf(id int, c Client, events []Event) []*hold {
	slices.SortStableFunc(events, func(a, b Event) int { return int(a.Call - b.Call) })
	current := &hold{client: id}
	all := []*hold{current}
	for _, e := range events {
		switch e.Op {
		case OpLock, OpTryLock, OpRLock, OpTryRLock:
			if e.Err == NoErr {
				current = &hold{client: id, grant: e}
				all = append(all, current)
			}
		case OpToken:
			current.sampled(e)
		case OpLost:
			current.loss(e)
		case OpExtend:
			current.extended(e)
		case OpDowngrade:
			current.downgraded(e)
		case OpUnlock:
			current.unlocked(e)
		}
	}
	for _, h := range all {
		h.review(c)
	}
	return slices.DeleteFunc(all, func(h *hold) bool { return h.grant.Op == "" && h.breaches == nil })
}

// open reports whether t may still be held at e: e was not called after its Unlock.
func (h *hold) open(e Event) bool {
	return h.grant.Op != "" && (h.unlock == nil || e.Call < h.unlock.Return)
}

func (h *hold) breach(e Event, why string) { h.breaches = append(h.breaches, breach{e, why}) }

func (h *hold) sampled(e Event) {
	switch {
	case e.Token == 0:
		h.loss(e)
	case !h.open(e):
		h.breach(e, "nothing is held")
	default:
		if h.token == 0 {
			h.token = e.Token
		}
		h.confirms = append(h.confirms, e)
	}
}

// loss notes that the client was told.
func (h *hold) loss(e Event) {
	if h.grant.Op != "" && (h.toldLost == 0 || e.Return < h.toldLost) {
		h.toldLost = e.Return
	}
}

// unlocked notes the Unlock. Calls that were made before it may have returned later.
func (h *hold) unlocked(e Event) {
	if !h.open(e) || h.unlock != nil {
		h.nothingHeld(e)
		return
	}
	h.unlock = &e
	if e.Err == IsNotHeld {
		h.breach(e, "a hold, lost or not, awaits its Unlock")
	}
}

func (h *hold) extended(e Event) {
	switch {
	case !h.open(e):
		h.nothingHeld(e)
	case e.Err == NoErr:
		h.confirms = append(h.confirms, e)
		h.extends = append(h.extends, e)
	case e.Err == IsLost:
		h.loss(e)
	case e.Err == IsNotHeld:
		h.breach(e, "a hold, lost or not, awaits its Unlock")
	default:
		h.extends = append(h.extends, e)
	}
}

// downgraded notes a Downgrade that succeeded, or told of a loss. What any other did is unknown.
func (h *hold) downgraded(e Event) {
	switch {
	case !h.open(e):
		h.nothingHeld(e)
	case e.Err == NoErr:
		h.confirms = append(h.confirms, e)
	case e.Err == IsLost:
		h.loss(e)
	}
}

// shared reports whether it was granted as a share.
func (h *hold) shared() bool { return h.grant.Op == OpRLock || h.grant.Op == OpTryRLock }

// nothingHeld is an Extend or an Unlock of nothing. It may be unable to ask.
func (h *hold) nothingHeld(e Event) {
	if e.Err == NoErr || e.Err == IsLost {
		h.breach(e, "nothing is held; want ErrNotHeld")
	}
}

// review looks at what depends on later events.
func (h *hold) review(c Client) {
	if h.toldLost > 0 && h.unlock != nil && h.toldLost >= h.unlock.Call {
		h.toldLost = 0 // while Unlock was under way, and it may be about that
	}
	for _, e := range h.confirms {
		if e.Op == OpToken && e.Token != h.token {
			h.breach(e, fmt.Sprintf("the token of this hold was %d", h.token))
		}
		if h.toldLost > 0 && e.Call > h.toldLost {
			h.breach(e, "its loss has been told")
		}
		h.punctual(c, e)
	}
	if h.unlock != nil && h.unlock.Err == NoErr {
		h.punctual(c, *h.unlock)
		if h.toldLost > 0 {
			h.breach(*h.unlock, "its loss has been told")
		}
	}
}

// punctual notes if a hold that nobody extended is confirmed after its TTL and all that is allowed
// for a backend whose clock is coarse.
func (h *hold) punctual(c Client, e Event) {
	if c.Renews {
		return
	}
	last := h.grant.Return
	for _, x := range h.extends {
		if x.Call < e.Return {
			last = max(last, x.Return)
		}
	}
	if late := e.Call - last - int64(c.TTL+Coarse); late > 0 {
		h.breach(e, fmt.Sprintf("its TTL of %v ended %v before", c.TTL, time.Duration(late)+Coarse))
	}
}

// end is when the hold was over, as far as its client could see; ok is false if it may still be
// held. It was not before the last of the calls that confirmed it, nor before the assured time,
// unless an Unlock was called by then.
func (h *hold) end(confirmed []Event) (from, to int64, ok bool) {
	switch {
	case h.toldLost > 0:
		to = h.toldLost
	case h.unlock != nil:
		to = h.unlock.Return
	default:
		return 0, 0, false
	}
	from = h.grant.Call
	if h.toldLost == 0 && h.unlock.Err == NoErr {
		from = h.unlock.Call
	}
	lasts := h.grant.Call + h.assured
	for _, e := range confirmed {
		if e.Call <= to {
			from = max(from, e.Call)
		}
		if e.Op == OpExtend && e.Call <= to {
			lasts = max(lasts, e.Call+h.assured)
		}
	}
	if h.unlock != nil {
		lasts = min(lasts, h.unlock.Call)
	}
	from = max(from, lasts)
	return from, max(from, to), true
}

// Format is the version of the format of files, which docs/evidence/histories.md explains.
const Format = 1

// Save writes h into a file in dir, as JSON, and draws it.
func (h *History) Save(dir string, j Judgement) (file, timeline string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	raw, err := os.CreateTemp(dir, fmt.Sprintf("history-%d-*.json", h.Seed))
	if err != nil {
		return "", "", err
	}
	if err := errors.Join(h.Encode(raw), raw.Close()); err != nil {
		return "", "", err
	}
	file = raw.Name()
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	timeline, err = h.Draw(file, j)
	return file, timeline, err
}

// Encode writes h as JSON. Clients may still go on meanwhile.
func (h *History) Encode(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Format = Format
	return json.NewEncoder(w).Encode(h)
}

// Draw writes the page that shows who held what, when, beside the file of h.
func (h *History) Draw(file string, j Judgement) (timeline string, err error) {
	timeline = strings.TrimSuffix(file, ".json") + ".timeline.html"
	return timeline, h.drawTimeline(j, timeline)
}

// Read reads the file of a history, and refuses what Check could not judge.
func Read(file string) (*History, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	h, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no history: %w", file, err)
	}
	return h, nil
}

// Parse is Read of what is in a file.
func Parse(data []byte) (*History, error) {
	h := &History{}
	if err := json.Unmarshal(data, h); err != nil {
		return nil, err
	}
	if err := h.valid(); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *History) valid() error {
	if h.Format != Format {
		return fmt.Errorf("its format is %d; want %d", h.Format, Format)
	}
	switch h.Demand {
	case Exclusive, Revocable, Undisturbed, Fenced:
	default:
		return fmt.Errorf("unknown demand %q", h.Demand)
	}
	for i, e := range h.Events {
		if e.Client < 0 || e.Client >= len(h.Clients) {
			return fmt.Errorf("event %d: there is no client %d", i, e.Client)
		}
		if e.Return < e.Call {
			return fmt.Errorf("event %d: it returned before it was called", i)
		}
		switch e.Op {
		case OpLock, OpTryLock, OpRLock, OpTryRLock, OpDowngrade, OpExtend, OpUnlock, OpToken, OpLost, OpRead, OpWrite:
		default:
			return fmt.Errorf("event %d: unknown operation %q", i, e.Op)
		}
		switch e.Err {
		case NoErr, IsLost, IsNotHeld, IsHeld, IsStale, OtherErr:
		default:
			return fmt.Errorf("event %d: unknown result %q", i, e.Err)
		}
	}
	for i, f := range h.Faults {
		if f.Client < 0 || f.Client >= max(len(h.Clients), 1) {
			return fmt.Errorf("fault %d: there is no client %d", i, f.Client)
		}
	}
	return nil
}
