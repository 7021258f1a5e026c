package instances

import (
	"testing"
	"time"
)

// Any user can create /dev/shm/flowtally and a mirror in it. If it has the name of root's stopped instance, that
// instance must not look dead, because clean --all-dead would remove it.
func TestMirrorOfAnotherUserDecidesNothingAboutPins(t *testing.T) {
	mirrors := []place{{path: "/dev/shm/flowtally/lb.mirror", owner: 1000}, {path: "/run/flowtally/lb.mirror"}}
	pins := []place{{path: "/sys/fs/bpf/flowtally/lb"}}
	halted := func(path string) (bool, uint64, time.Duration) { return path == mirrors[1].path, 0, 0 }
	list := join(mirrors, pins, func(string) int { return 2 }, halted)
	if len(list) != 2 {
		t.Fatalf("%d instances: %+v", len(list), list)
	}
	if hostile := list[0]; hostile.State != Dead || hostile.Owner != 1000 || hostile.Pins != "" {
		t.Errorf("the other user's: %+v", hostile)
	}
	if kept := list[1]; kept.State != Kept || kept.Pins != pins[0].path {
		t.Errorf("root's: %+v", kept)
	}
}
