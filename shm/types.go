package shm

import (
	"math"
	"time"
)

// Handle identifies one counter of one file for ever. Index is the slot: slot Index%4096 of segment Index/4096. Generation tells
// the counters apart that have had this slot. In a segment of blocks the slot is row Index%64 of block Index/64. In a segment of
// records it is a record.
type Handle struct{ Index, Generation uint32 }

// Value is the reading of a counter at one instant: the packets and bytes of a flow. For a counter of [KindCompletion] the same
// two words are its Completions and Errors.
type Value struct {
	Packets, Bytes uint64
	SampledAt      int64 // when, on the clock of Now; 0: never sampled, the value is absent
}

// Completions is the first word of a counter of [KindCompletion].
func (v Value) Completions() uint64 { return v.Packets }

// Errors is the second word of a counter of [KindCompletion]: completions in error.
func (v Value) Errors() uint64 { return v.Bytes }

// Age returns the time since the value was sampled. An absent value has the longest Duration as its age, so a program that
// only uses values up to some age never uses an absent one.
func (v Value) Age() time.Duration {
	if v.SampledAt == 0 {
		return math.MaxInt64
	}
	return time.Duration(Now() - v.SampledAt)
}

// Block is the values of the counters of one block, in the order of their rows.
type Block [BlockLen]Value

// KindCompletion is the Kind of a counter of completions, whose second value counts completions in error. No other kind has a
// meaning for readers: see [Reader.Wait].
const KindCompletion = "completion"

// Entry describes a counter.
type Entry struct {
	Handle Handle
	Name   string            // 1 to 63 bytes, no NUL; unique
	Kind   string            // "flow", KindCompletion, …; up to 15 bytes
	Unit   string            // of the first value; empty means packets; up to 15 bytes
	Text   string            // describes the counted packets to people; cut to 287 bytes: see TextSum
	Labels map[string]string // up to 255 bytes as key=value, each with its NUL

	Latency bool // in a record of its own, not in a block

	Source    string // backend, device and mode; cut to 63 bytes
	ByteBasis string // "l2", "l2-untagged", "l2-fcs", "l2-fcs-untagged", "l3", "payload", "unknown"; up to 15 bytes
	Width     uint32 // bits of the source's own counters; 0 means 64
	Valid     bool   // the source counts
	Stale     bool   // the source returns no more values; this one is its last
	Ambiguous bool   // another counter may have counted the same packets

	Continuity Continuity
	AddedAt    int64 // on the clock of Now; set by Add
}

// Continuity lets the next writer continue a total where the last writer stopped: the total is the base plus the source's own
// count, as long as Cookie still identifies that source. This package stores a Continuity as one unit and does not interpret it.
type Continuity struct {
	Cookie          uint64
	BasePackets     uint64
	BaseBytes       uint64
	Discontinuities uint64 // how often packets may have been lost or counted twice
	Seen            uint32 // Discontinuities includes losses up to this time on the source's clock of losses
}
