package soft

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// NIC is a wire whose near end is the netdev of a software device. Each has a name of its own, because a library
// in which a dead device has left state stays loaded.
type NIC struct {
	Wire   *lab.Wire
	Device string
	Config dataplane.Config // counts on the near end, with a cycle of 1 ms
	Env    ibvtest.Env
}

// Stack is what serves the devices: *Kernel, or *Libraries with the shim in front.
type Stack interface {
	// libraries returns those to configure, and how the names of devices begin.
	libraries(t testing.TB) (rdma dataplane.RDMAConfig, prefix string)
}

// NewNIC makes the wire. A library that is loaded after Env.Set reads the environment.
func NewNIC(t testing.TB, s Stack) *NIC {
	t.Helper()
	need.Cap(t, "net_admin", "sys_admin", "net_raw")
	need.Netns(t)
	rdma, prefix := s.libraries(t)
	rdma.ByteBasis = dataplane.BasisL2 // the software NIC counts as XDP does
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wire.Close() })
	device := lab.Unique(prefix)
	return &NIC{
		Wire: wire, Device: device,
		Config: dataplane.Config{
			Interfaces: []dataplane.Interface{{Name: wire.Near.Name, Mode: dataplane.ModeNative}},
			RDMA:       rdma,
			Poll:       dataplane.PollConfig{Period: time.Millisecond},
		},
		Env: ibvtest.Env{
			Devices:    []ibvtest.Device{{Name: device, Netdev: wire.Near.Name}},
			Statistics: filepath.Join(t.TempDir(), "statistics"),
		},
	}
}

func (l *Libraries) libraries(t testing.TB) (rdma dataplane.RDMAConfig, prefix string) {
	t.Helper()
	return l.Shimmed(t), "mlx5_"
}

// Shimmed names the shim in place of each library of the host. TestMain has called Kernel.Preload.
func (l *Libraries) Shimmed(t testing.TB) dataplane.RDMAConfig {
	t.Helper()
	(&Kernel{}).Need(t)
	shim := l.Get(t).Shim
	return dataplane.RDMAConfig{Library: shim, MLX5: shim, EFA: shim}
}

// Controlled returns the control of the device, which is effective when the device is opened.
func (n *NIC) Controlled(t testing.TB) *ibvtest.Control {
	t.Helper()
	control, err := ibvtest.NewControl(filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	n.Env.Control = control.Path()
	return control
}

// Calls returns how often a verb or a firmware command was called.
func (n *NIC) Calls(t testing.TB, name string) uint64 {
	t.Helper()
	stats, err := ibvtest.ReadStatistics(n.Env.Statistics)
	if err != nil {
		t.Fatal(err)
	}
	return stats[name]
}
