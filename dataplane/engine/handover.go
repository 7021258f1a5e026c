package engine

import "github.com/flowtally/flowtally/dataplane/engine/backend"

// handover decides how a total goes on in another slot, after a flow has moved between hardware and XDP, or a process has
// started on what an earlier one had counted. docs/architecture.md has its table.
type handover struct {
	last     backend.Pair // the total that readers saw last
	bySlot   backend.Pair // the total by a slot that counts the same packets; zero if there is none
	complete bool         // that slot has seen every packet of the total
	passed   uint64       // how many packets passed, at most, while hardware began to count

	// sameBytes: hardware and the slot count the same bytes of a packet, or the total has no bytes from hardware.
	sameBytes bool
}

// total returns the value from which the total goes on: the higher of the two, because a total never falls. A slot with less
// has missed packets. A slot with more has seen packets that readers do not know yet.
//
// lacks: packets may be missing, or counted twice. exact: neither is possible, and all bytes are of one basis. A total that
// is not exact gets a discontinuity.
func (h handover) total() (total backend.Pair, exact, lacks bool) {
	total = backend.Max(h.last, h.bySlot)
	behind := total.Packets != h.bySlot.Packets
	lacks = !h.complete || behind || h.passed > 0
	return total, !lacks && h.sameBytes, lacks
}
