package ibv

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// The type of a GID decides whether the path has a UDP port. If it cannot be read, the queue pair is not connected: a port of 0
// would send packets that no RoCE v2 device takes.
func TestAPathOfUnreadableTypeIsRefused(t *testing.T) {
	q := &DevXQP{object: object{device: "none0"}, sysfs: t.TempDir()}
	a := &QPAttr{AH: AHAttr{PortNum: 1, GRH: GlobalRoute{SGIDIndex: 7}}}
	if port, err := q.sourcePort(a, [6]byte{2}); port != 0 || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none0: reading the type of GID 7: ") {
		t.Errorf("port %d, error %v", port, err)
	}
	if port, err := q.sourcePort(a, [6]byte{}); port != 0 || err != nil {
		t.Errorf("over InfiniBand: port %d, error %v", port, err)
	}
}
