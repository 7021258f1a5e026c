package poll

import (
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// LiveWriter is the part of shm.Writer that shows where readers can read counters live.
type LiveWriter interface {
	SetLive(h shm.Handle, s shm.LiveSlot) error
}

// liveView tells readers of the mirror which slot of its source counts each counter. The zero liveView tells nothing.
type liveView struct {
	source backend.LiveCounters
	w      LiveWriter
	id     uint32 // of the map
	epoch  uint32
}

// show tells readers that slot id of s counts h from now on, on top of base. A nil s means that no slot does.
//
// The caller must call show before it gives h's old slot to another counter. show ignores errors, which mean that the mirror
// is damaged or that the counter was removed. In the first case the engine makes the mirror anew and calls ShowLiveAgain. The
// caller holds Plan.mu.
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
