package zookeeper

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
)

// A lock is a node, /prefix/name, and who stands in its queue a child of that:
//
//	/locker/orders%2F42/_c_<owner>-lock-0000000007
//
// The owner is 32 hexadecimal digits, and ZooKeeper appends the number.
const (
	nodePrefix = "_c_"
	nodeMiddle = "-lock-"

	// lastNumber is the largest by which one holds or waits. The servers count the children that were
	// ever made below a node, up to the largest int32. There they stop: each gets that number then,
	// and their coming no longer moves the node's pzxid. Of requests in flight together some even get
	// negative ones. What lies between is for those who come until the queue is empty.
	lastNumber = math.MaxInt32 - 1<<20
)

// nodeOf returns the path of an owner's node, but for the number.
func nodeOf(parent, owner string) string { return parent + "/" + nodePrefix + owner + nodeMiddle }

// parentOf returns the node of a name that begins, as the core's do, with a prefix without a colon,
// and a colon.
func parentOf(chroot, qualified string) string {
	prefix, name := sessions.Split(qualified)
	return rootOf(chroot, prefix) + "/" + escape(name)
}

// rootOf returns the node of all locks under a prefix.
func rootOf(chroot, prefix string) string { return chroot + "/" + escape(prefix) }

// escape makes one component of a path, in which ZooKeeper allows neither everything nor all of
// Unicode. No two strings have the same.
func escape(s string) string {
	switch s {
	case "":
		return "%" // escapes have digits
	case "zookeeper":
		return "%7Aookeeper" // the system's own, at the root
	}
	dots := s == "." || s == ".."
	var b strings.Builder
	for _, r := range s {
		if plain(r) && (!dots || r != '.') {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return sessions.Shorten(s, b.String())
}

// plain reports whether r stands for itself. ZooKeeper refuses control characters, surrogates,
// which is what everything beyond U+FFFF is to it, and private characters.
func plain(r rune) bool {
	switch r {
	case '/', '%':
		return false
	default:
		return r >= ' ' && r < 0x7f || r > 0x9f && r < 0xd800
	}
}

// contender is a child of a lock's node that stands in the queue.
type contender struct {
	sessions.Contender // its Token is that of a share; its Metadata are there if they were read
	owner              string
	number             int32
	czxid              int64 // if they were read: the transaction that made the node
}

// counts reports whether c has a place in the queue: else it was refused, and is about to leave.
func (c contender) counts() bool { return 0 <= c.number && c.number <= lastNumber }

// id returns what no other contender for the name has: owners of shares are alike.
func (c contender) id() string { return fmt.Sprintf("%s-%d", c.owner, c.number) }

// parseContender reads the name of a child: others may have put theirs there.
func parseContender(name string) (c contender, ok bool) {
	rest, ok := strings.CutPrefix(name, nodePrefix)
	if !ok || len(rest) < sessions.OwnerLen+len(nodeMiddle) {
		return c, false
	}
	owner := rest[:sessions.OwnerLen]
	digits, ok := strings.CutPrefix(rest[sessions.OwnerLen:], nodeMiddle)
	if !ok || !sessions.IsOwner(owner) {
		return c, false
	}
	number, err := strconv.ParseInt(digits, 10, 32)
	// ZooKeeper formats the number with %010d. Sprintf would be slow in a queue of a thousand.
	padded := len(digits) == 10 && (number != 0 || digits[0] == '0') || len(digits) == 11 && number <= -1e9
	if err != nil || !padded || digits[0] == '+' {
		return c, false
	}
	shared, token := parseShare(owner)
	who := sessions.Contender{Participant: driver.Participant{ID: name}, Shared: shared, Token: token}
	return contender{Contender: who, owner: owner, number: int32(number)}, true
}

// compare orders contenders. No two numbers are the same in one queue; should they be, everybody
// has to come to the same conclusion.
func compare(a, b contender) int {
	return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.ID, b.ID))
}

// contenders returns those of the children that stand in the queue, or were refused a place, in no
// order.
func contenders(children []string) []contender {
	all := make([]contender, 0, len(children))
	for _, child := range children {
		if c, ok := parseContender(child); ok {
			all = append(all, c)
		}
	}
	return all
}

// inQueue returns those of the children that stand in the queue, in no order.
func inQueue(children []string) []contender {
	return slices.DeleteFunc(contenders(children), func(c contender) bool { return !c.counts() })
}

// ahead returns the one right before own in a queue, if there is one. Before a share only writers
// count.
func ahead(queue []contender, own contender, shared bool) (last contender) {
	for _, c := range queue {
		if !(shared && c.Shared) && compare(c, own) < 0 && (last.ID == "" || compare(c, last) > 0) {
			last = c
		}
	}
	return last
}
