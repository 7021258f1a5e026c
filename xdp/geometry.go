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

// geometry is the sizes of all that is shared with programs. It is fixed when the maps are made, and the meta map has it.
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

// marked is the number of adjacent counters that have one mark.
const marked = 4

// MostCounters returns a number of counters that fits on a host with so many possible CPUs. It may be half of what fits: the
// marks make a CPU's block less than twice the size of its slots.
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
	// In the trees a rule of IPv4 takes four units, and an exact match of IPv6 seven.
	g.units = max(pow2(8*g.rules), 4096)
	g.words = max(pow2(treeWords*g.rules), 1<<18)
	g.block = pages(g.marksAt() + (g.counters+marked-1)/marked*4)
	if g.counterBytes() >= maxOffset {
		return g, fmt.Errorf("sizing %d counters for %d CPUs: %w: a program reaches less than %d MiB; %d counters fit",
			g.counters, cpus, ErrInvalid, maxOffset>>20, MostCounters(cpus))
	}
	return g, nil
}

// pow2 returns the least power of two that is not below n.
func pow2(n int) int { return 1 << bits.Len(uint(n-1)) }

// Bytes of the values of the maps. Behind the counters the map has room for its epoch (epochBytes).
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
