package rdma

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

func TestMain(m *testing.M) {
	kernel.Preload()
	_ = lab.Isolate(lab.ForTests) // without the privilege to do so, run in the present namespaces
	code := m.Run()
	kernel.Close()
	libraries.Close()
	os.Exit(code)
}

var kernel soft.Kernel

// libraries has the shim in front of the host's libraries, for what no kernel can cause.
var libraries soft.Libraries

// softwareNIC is a device of the uverbs kernel in software, below the host's libraries, with a wire.
type softwareNIC struct{ *soft.NIC }

func newSoftware(t *testing.T) *softwareNIC {
	t.Helper()
	return &softwareNIC{soft.NewNIC(t, &kernel)}
}

// options returns the backend's part of the configuration.
func (s *softwareNIC) options() Options {
	return Options{
		RDMA: s.Config.RDMA, Interfaces: []dataplane.Interface{{Name: s.Wire.Near.Name}}, Period: s.Config.Poll.Period, Logger: slog.New(slog.DiscardHandler),
	}
}

// open opens the backend on a thread in the near namespace.
func (s *softwareNIC) open(t *testing.T) *Backend {
	t.Helper()
	return s.openWith(t, slog.New(slog.DiscardHandler))
}

func (s *softwareNIC) openWith(t *testing.T, log *slog.Logger) *Backend {
	t.Helper()
	s.Env.Set(t.Setenv)
	o := s.options()
	o.Logger = log
	var b *Backend
	err := s.Wire.Near.NS.Do(func() (err error) {
		b, err = New(t.Context(), o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(false); err != nil {
			t.Errorf("closing the backend: %v", err)
		}
	})
	return b
}

// Remove reads a slot once more, in every mode, so the last value also has the packets since the last sample.
func TestRemovedFlowsAreReadToTheEnd(t *testing.T) {
	for _, c := range []struct {
		mode    string
		without []string
		action  flow.Action
		steal   bool
	}{
		{mode: "devx"},
		{mode: "dont-trap", without: []string{"devx"}},
		{mode: "drop", without: []string{"devx"}, action: flow.Drop},
		{mode: "steal", without: []string{"devx", "dont_trap"}, steal: true},
	} {
		t.Run(c.mode, func(t *testing.T) {
			s := newSoftware(t)
			s.Env.Without, s.Config.RDMA.Steal = c.without, c.steal
			s.Config.Poll.Period = time.Hour // only Install and Remove sample
			var errs strings.Builder
			b := s.openWith(t, slog.New(slog.NewTextHandler(&errs, &slog.HandlerOptions{Level: slog.LevelError})))
			streams := soft.Streams(t)[:3]
			var flows []backend.Placed
			for _, st := range streams {
				st.Flow.Action = c.action
				flows = append(flows, backend.Placed{Flow: st.Flow})
			}
			in := mustInstall(t, b, flows...)
			if in[0].Source.Modes() != c.mode {
				t.Fatalf("counted in mode %s", in[0].Source.Modes())
			}
			sent := make(map[string]lab.Tally)
			s.Send(t, streams, flow.Ingress, 1000, sent)
			if err := b.Remove(t.Context(), flows); err != nil {
				t.Fatal(err)
			}
			s.Send(t, streams, flow.Ingress, 1000, make(map[string]lab.Tally))
			for i, f := range flows {
				if got, _ := sampleOf(t, b, in[i].ID); got != backend.Pair(sent[f.Name]) {
					t.Errorf("%s: shows %+v, want %+v", f.Name, got, sent[f.Name])
				}
			}
			if errs.Len() > 0 {
				t.Errorf("it logs: %s", errs.String())
			}
		})
	}
}

// In switchdev mode a device is refused, with a step to test it. The device that a selftest names is not, and no other one is
// let in by it.
func TestSwitchdevIsLiftedForTheNamedDeviceAlone(t *testing.T) {
	for name, c := range map[string]struct {
		port, named string
		want        string // reason
	}{
		"uplink":                           {port: "p0", want: "its NIC is in switchdev mode (phys_switch_id e41d2d0003a1b2c4): "},
		"representor":                      {port: "pf0vf3", want: "it is a representor (phys_port_name pf0vf3): "},
		"uplink, another device is named":  {port: "p0", named: "mlx5_other", want: "switchdev mode"},
		"uplink, the device is named":      {port: "p0", named: "this"},
		"representor, the device is named": {port: "pf0vf3", named: "this"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSoftware(t)
			netdev := s.Wire.Near.Name
			tree := sysfs{t: t, root: t.TempDir(), switchdev: "0000:01:00.0"}
			tree.function("0000:01:00.0", netdev, s.Device, netdev)
			tree.file("net/"+netdev+"/phys_port_name", c.port)
			tree.file("net/"+netdev+"/phys_switch_id", "e41d2d0003a1b2c4")
			s.Env.Set(t.Setenv)
			o := s.options()
			if o.Switchdev = c.named; c.named == "this" {
				o.Switchdev = s.Device
			}
			hw, err := openIBV(o)
			if err != nil {
				t.Fatal(err)
			}
			hw.host = tree.host()
			var b *Backend
			err = s.Wire.Near.NS.Do(func() (err error) {
				b, err = open(t.Context(), o, hw, shm.Now)
				return err
			})
			if err == nil {
				defer b.Close(false)
			}
			var unsupported *probe.UnsupportedError
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.As(err, &unsupported) || !strings.Contains(unsupported.Reason, c.want)):
				t.Errorf("error %v, want %q", err, c.want)
			case c.want != "":
				lab.Step(t, unsupported.Fix, "flowtally selftest --interface "+netdev+" --rdma-device "+s.Device)
			}
		})
	}
}
