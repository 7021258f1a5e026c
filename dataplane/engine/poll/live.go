package poll

import (
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// LiveWriter is the part of shm.Writer that shows where readers can read counters live.
type LiveWriter interface {
	SetLive(h shm.Handle, s shm.LiveSlot) error
}

// liveView shows in the mirror in which slots of its source the counters are counted. The zero liveView shows none.
type liveView struct {
	source backend.LiveCounters
	w      LiveWriter
	id     uint32 // of the map
	epoch  uint32
}

// show shows that h is counted in slot id of s from now on, on top of base, or nowhere where s is nil. No counter gets the
// slot that h has left before the next call of the source. An error is of a mirror that is damaged, or of a counter
// that is gone from it: readers of the mirror that is made anew see no slot until ShowLiveAgain. It is called with
// Plan.mu held.
func (v *liveView) show(h shm.Handle, s backend.Counters, id uint32, base backend.Pair) {
	if v.source == nil || h.Generation == 0 {
		return
	}
	var slot shm.LiveSlot
	if s == backend.Counters(v.source) {
		base = backend.Sub(base, v.source.LiveBase(id))
		slot = shm.LiveSlot{
			Map:         v.id,
			Epoch:       v.epoch,
			Slot:        id,
			BasePackets: base.Packets,
			BaseBytes:   base.Bytes,
		}
	}
	_ = v.w.SetLive(h, slot)
}
