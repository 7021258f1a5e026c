package engine

import "github.com/flowtally/flowtally/dataplane/engine/backend"

// handover is what decides how a total goes on when another slot counts it from now on: a flow moves between hardware and XDP,
// or a start takes up what an earlier process has counted. docs/architecture.md has its table.
type handover struct {
	stands   backend.Pair // the total that readers saw last
	known    backend.Pair // the total by a slot that counts the same packets; zero where there is none
	complete bool         // that slot has seen every packet of the total
	passed   uint64       // packets that passed while hardware began to count, at most

	// sameBytes says that hardware and the slot count the same bytes of a packet, or that no bytes of hardware are replaced.
	sameBytes bool
}

// total returns the value from which the total goes on. It never falls: a slot that stands lower has missed packets. A slot that
// stands higher has seen packets that readers do not have yet.
//
// lacks says that packets may be missing or counted twice. exact says that there are none of those, and that the bytes are of one
// basis: such a total has no discontinuity.
func (h handover) total() (total backend.Pair, exact, lacks bool) {
	total = backend.Max(h.stands, h.known)
	behind := total.Packets != h.known.Packets
	lacks = !h.complete || behind || h.passed > 0
	return total, !lacks && h.sameBytes, lacks
}
