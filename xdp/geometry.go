package xdp

import (
	"cmp"
	"fmt"
	"math/bits"
	"os"
)

// MostRules is the greatest Options.MaxRules.
const MostRules = 1 << 20

// Limits of the layout. A slot has 24 bits for the unit of its entry, and 20 bits for its counter.
const (
	maxCounters = 1 << 20
	maxTuples   = 8    // hashed masks
	maxPorts    = 1024 // numbers of interfaces; 0 means no interface

	defaultRules = 1 << 16

	// treeWords is the memory of the trees per rule. It must fit the old and the new trees of a rebuild at once.
	treeWords = 32
	// treeTail pads the memory of the trees. To the verifier, a list may begin at the last word (FT_TREE_FAR).
	treeTail = 32

	unitWords = 2 // a unit of entries has 16 bytes

	// maxOffset is the largest offset into a map value that the verifier accepts, BPF_MAX_VAR_OFF.
	maxOffset = 1 << 29
)

// geometry holds the sizes of all memory shared with programs. It is chosen when the maps are made, and stored in the meta map.
type geometry struct {
	layout   int
	rules    int
	counters int // a power of two
	slots    int // a power of two, at least twice the rules; the slots of single tuples come before them
	units    int // a power of two
	words    int // of the trees; a power of two
	cpus     int
	block    int // bytes of one CPU's counters and marks, in whole pages
}

// marked is the number of adjacent counters that share a mark.
const marked = 4

// MostCounters returns a number of counters that fits on a host with this many possible CPUs. Up to twice as many may fit. It
// counts marks at the size of the slots, which is more than they take.
func MostCounters(cpus int) int { return 1 << (bits.Len(uint(maxOffset/(2*16*cpus))) - 1) }

func newGeometry(o Options, cpus int) (geometry, error) {
	g := geometry{
		layout: metaLayout,
		rules:  cmp.Or(o.MaxRules, min(defaultRules, MostCounters(cpus))),
		cpus:   cpus,
	}
	g.counters = cmp.Or(o.MaxCounters, g.rules)
	if g.rules < 0 || g.rules > MostRules {
		return g, fmt.Errorf("sizing tables for %d rules: %w: 1 to %d", g.rules, ErrInvalid, MostRules)
	}
	if g.counters < 0 || g.counters > maxCounters {
		return g, fmt.Errorf("sizing %d counters: %w: 1 to %d", g.counters, ErrInvalid, maxCounters)
	}

	g.counters = pow2(g.counters)
	g.slots = max(pow2(2*g.rules), 256)
	// In the trees, an IPv4 rule takes four units and an exact IPv6 rule takes seven.
	g.units = max(pow2(8*g.rules), 4096)
	g.words = max(pow2(treeWords*g.rules), 1<<18)
	g.block = pages(g.marksAt() + (g.counters+marked-1)/marked*4)
	if g.counterBytes() >= maxOffset {
		return g, fmt.Errorf("sizing %d counters for %d CPUs: %w: a program reaches less than %d MiB; %d counters fit",
			g.counters, cpus, ErrInvalid, maxOffset>>20, MostCounters(cpus))
	}
	return g, nil
}

// pow2 rounds n up to a power of two.
func pow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// Sizes of map values in bytes. The map of counters has epochBytes more.
func (g geometry) slotBytes() int    { return pages((maxTuples + g.slots) * 8) }
func (g geometry) entryBytes() int   { return pages((rankAt(g.units) + g.units) * 8) }
func (g geometry) rankBytes() int    { return (maxTuples + 1) * 8 }
func (g geometry) marksAt() int      { return g.counters * 16 }
func (g geometry) treeBytes() int    { return pages((g.words + treeTail) * 8) }
func (g geometry) counterBytes() int { return g.cpus * g.block }

// pages rounds bytes up to whole pages.
func pages(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}
