package model

import "testing"

// Some drivers restart the queues of their NIC when a program is attached to it, and when the program is detached.
func TestFlowsThatComeAndGoInHardwareTouchNoHook(t *testing.T) {
	inWorld(t, func(w *world) {
		w.setAtStep(func(what string) {
			if what == "attach" {
				t.Error("a program is attached")
			}
		})
		w.play(t, "device v0 devx; device v1 devx; set a=*^2; start; send 1 v0 3; check")
		w.play(t, "plus b=2; send 2 v0 3; check; set a=*^2 c=1; send 1 v0 3; check; minus c; send 2 v0 3; check")
		if w.counts.counted != 12 {
			t.Errorf("devices have counted %d packets, want all 12", w.counts.counted)
		}
	})
}
