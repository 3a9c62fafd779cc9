package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Format is the version of the format of files, which docs/histories.md explains.
const Format = 1

// Files are those that Save, or Draw, has written.
type Files struct {
	History  string // as JSON
	Model    string // the page of the checker, which shows what contradicts itself; empty if nothing does
	Timeline string // the page that shows who held what, when
}

// Save writes h into dir, and the pages that show it.
func (h *History) Save(dir string, j Judgement) (Files, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Files{}, err
	}
	raw, err := os.CreateTemp(dir, fmt.Sprintf("history-%d-*.json", h.Seed))
	if err != nil {
		return Files{}, err
	}
	if err := errors.Join(h.Encode(raw), raw.Close()); err != nil {
		return Files{}, err
	}
	file := raw.Name()
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	return h.Draw(file, j)
}

// Encode writes h as JSON. Clients may still go on meanwhile.
func (h *History) Encode(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Format = Format
	return json.NewEncoder(w).Encode(h)
}

// Draw writes the pages that show h beside its file.
func (h *History) Draw(file string, j Judgement) (Files, error) {
	base := strings.TrimSuffix(file, ".json")
	all := Files{History: file, Timeline: base + ".timeline.html"}
	if err := h.drawTimeline(j, all.Timeline); err != nil {
		return all, err
	}
	if j.witness == nil {
		return all, nil
	}
	all.Model = base + ".html"
	return all, h.drawModel(j, all.Model)
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
