package names

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"math/bits"
	"strconv"
	"sync"

	"github.com/go-locker/locker/conformance/internal/party"
)

// nameHash is one by which locks make numbers of 32 bits, or fewer, of names.
type nameHash struct {
	name string
	of   func([]byte) uint32
}

// collision returns two names with the same hash: among a hundred thousand that differ at random
// there is nearly always a pair, the birthday paradox.
func (h nameHash) collision(stem string) (first, second string) {
	seen := map[uint32]string{}
	for n := uint64(1); ; n++ {
		name := stem + "-" + strconv.FormatUint(n*0x9e3779b97f4a7c15, 36)
		sum := h.of([]byte(name))
		if before, found := seen[sum]; found {
			return before, name
		}
		seen[sum] = name
	}
}

// hashes are those of locks that were seen: pg_advisory_lock(hashtext(name)), zlib.crc32, hashCode.
var hashes = []nameHash{
	{"FNV-1", func(name []byte) uint32 { h := fnv.New32(); _, _ = h.Write(name); return h.Sum32() }},
	{"FNV-1a", func(name []byte) uint32 { h := fnv.New32a(); _, _ = h.Write(name); return h.Sum32() }},
	{"CRC-32", crc32.ChecksumIEEE},
	{"djb2", polynomial(5381, 33)},
	{"Java's hashCode", polynomial(0, 31)},
	{"PostgreSQL's hashtext", hashtext},
	{"the first four bytes of MD5", func(name []byte) uint32 { s := md5.Sum(name); return binary.BigEndian.Uint32(s[:]) }},
	{"the first four bytes of SHA-1", func(name []byte) uint32 { s := sha1.Sum(name); return binary.BigEndian.Uint32(s[:]) }},
	{"the first four bytes of SHA-256", func(name []byte) uint32 { s := sha256.Sum256(name); return binary.BigEndian.Uint32(s[:]) }},
}

// collisions are two names for each of the hashes, the same ones in each trial of this process.
var collisions = sync.OnceValue(func() (pairs [][2]string) {
	stem := party.FreshName()
	for _, h := range hashes {
		first, second := h.collision(stem)
		pairs = append(pairs, [2]string{first, second})
	}
	return pairs
})

func polynomial(h, factor uint32) func([]byte) uint32 {
	return func(name []byte) uint32 {
		h := h
		for _, c := range name {
			h = h*factor + uint32(c)
		}
		return h
	}
}

// hashtext is PostgreSQL's hash_bytes: Bob Jenkins, lookup3, with the lowest byte of the last word
// kept for the length.
func hashtext(k []byte) uint32 {
	a := 0x9e3779b9 + uint32(len(k)) + 3923095
	b, c := a, a
	word := binary.LittleEndian.Uint32
	for ; len(k) >= 12; k = k[12:] {
		a, b, c = a+word(k), b+word(k[4:]), c+word(k[8:])
		for _, r := range []int{4, 6, 8, 16, 19, 4} {
			a, b, c = b, c+b, (a-c)^bits.RotateLeft32(c, r)
		}
	}
	last := make([]byte, 12)
	copy(last, k)
	a, b, c = a+word(last), b+word(last[4:]), c+word(last[8:])<<8
	for _, r := range []int{14, 11, 25, 16, 4, 14, 24} {
		a, b, c = b, (c^b)-bits.RotateLeft32(b, r), a
	}
	return b
}
