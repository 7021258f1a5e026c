package xdp

import (
	"cmp"
	"fmt"
	"math/bits"
	"os"
)

// MostRules is the greatest Options.MaxRules.
const MostRules = 1 << 20

// Limits of the layout: a slot has 24 bits for the unit of its entry and 20 for its counter.
const (
	maxCounters = 1 << 20
	maxTuples   = 8    // masks that are hashed
	maxPorts    = 1024 // numbers of interfaces; 0 is none

	defaultRules = 1 << 16

	// treeWords is the memory of the trees for each rule. A rebuild needs the old and the new trees at once.
	treeWords = 32
	// treeTail is the room behind the trees: the verifier lets a list begin at their last word (FT_TREE_FAR).
	treeTail = 32

	unitWords = 2 // an entry is units of 16 bytes

	// maxOffset is the end of the part of a map that programs reach: the verifier's BPF_MAX_VAR_OFF.
	maxOffset = 1 << 29
)

// geometry is the size of everything that is shared with the programs. It is
// fixed when the maps are made, and kept in the meta map.
type geometry struct {
	layout   int
	rules    int
	counters int // a power of two
	slots    int // a power of two, at least twice the rules; the slots of single tuples come before them
	units    int // a power of two
	words    int // of the trees; a power of two
	cpus     int
	block    int // bytes of one CPU's counters and marks, whole pages
}

// marked is the number of counters that one mark is for.
const marked = 4

// MostCounters surely fit on a host of so many possible CPUs: the marks make a block less than twice the size of its slots.
func MostCounters(cpus int) int { return 1 << (bits.Len(uint(maxOffset/(2*16*cpus))) - 1) }

func newGeometry(o Options, cpus int) (geometry, error) {
	g := geometry{layout: metaLayout, rules: cmp.Or(o.MaxRules, min(defaultRules, MostCounters(cpus))), cpus: cpus}
	g.counters = cmp.Or(o.MaxCounters, g.rules)
	if g.rules < 0 || g.rules > MostRules {
		return g, fmt.Errorf("sizing tables for %d rules: %w: 1 to %d", g.rules, ErrInvalid, MostRules)
	}
	if g.counters < 0 || g.counters > maxCounters {
		return g, fmt.Errorf("sizing %d counters: %w: 1 to %d", g.counters, ErrInvalid, maxCounters)
	}
	g.counters = pow2(g.counters)
	g.slots = max(pow2(2*g.rules), 256)
	// In a tree a rule of IPv4 takes four units, an exact match of IPv6 takes seven.
	g.units = max(pow2(8*g.rules), 4096)
	g.words = max(pow2(treeWords*g.rules), 1<<18)
	g.block = pages(g.marksAt() + (g.counters+marked-1)/marked*4)
	if g.counterBytes() >= maxOffset {
		return g, fmt.Errorf("sizing %d counters for %d CPUs: %w: a program reaches less than %d MiB; %d counters fit", g.counters, cpus, ErrInvalid, maxOffset>>20, MostCounters(cpus))
	}
	return g, nil
}

func pow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// Bytes of the values of the maps; the map of counters has a page for its epoch behind them. The entries have a tail, so that the last unit may begin an entry of the greatest size.
func (g geometry) slotBytes() int    { return pages((maxTuples + g.slots) * 8) }
func (g geometry) entryBytes() int   { return pages((rankAt(g.units) + g.units) * 8) }
func (g geometry) rankBytes() int    { return (maxTuples + 1) * 8 }
func (g geometry) marksAt() int      { return g.counters * 16 }
func (g geometry) treeBytes() int    { return pages((g.words + treeTail) * 8) }
func (g geometry) counterBytes() int { return g.cpus * g.block }

func pages(n int) int {
	page := os.Getpagesize()
	return (n + page - 1) / page * page
}
