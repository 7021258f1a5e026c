package dataplane_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestConfigValidateReportsEveryMistake(t *testing.T) {
	eth0 := []dataplane.Interface{{Name: "eth0"}}
	for _, c := range []struct {
		name string
		cfg  dataplane.Config
		want []string // parts of the errors, in their order; none: it validates
	}{
		{"one interface", dataplane.Config{Interfaces: eth0}, nil},
		{"sim needs none", dataplane.Config{Backend: "sim"}, nil},
		{"everything", dataplane.Config{
			Instance: "edge-1", Backend: "xdp", Interfaces: []dataplane.Interface{{Name: "eth0", Mode: "native"}},
			Flows:  []flow.Flow{{Name: "a", Interface: "eth0"}, {Name: "b", Backend: "rdma"}, {Name: "c", Backend: "auto"}},
			Mirror: dataplane.MirrorConfig{Counters: 1 << 24, LatencyCounters: 1 << 20, History: -1, HistoryPeriod: 1, Mode: 0o604},
			Poll:   dataplane.PollConfig{Period: 100 * time.Microsecond, Busy: true, CPU: math.MaxInt32},
			XDP:    dataplane.XDPConfig{MaxFlows: dataplane.MostFlows, KeepPins: true},
			RDMA:   dataplane.RDMAConfig{Library: "/opt/lib/libibverbs.so.1", MLX5: "/opt/lib/libmlx5.so.1", EFA: "/opt/lib/libefa.so.1", CommandsPerSecond: 1_000_000, Steal: true, Audit: true},
		}, nil},
		{"the zero value", dataplane.Config{}, []string{"interfaces: none"}},
		{"an instance that leaves its directory", dataplane.Config{Instance: "../x", Backend: "sim"}, []string{`instance "../x"`}},
		{"a backend", dataplane.Config{Backend: "frob", Interfaces: eth0}, []string{`"frob" is no backend; use auto, rdma, xdp or sim`}},
		{"a backend of a flow", dataplane.Config{Interfaces: eth0, Flows: []flow.Flow{{Name: "a", Backend: "rmda"}}}, []string{`flow "a": backend: "rmda" is no backend; did you mean "rdma"?`}},
		{"a flow that sim does not count", dataplane.Config{Backend: "sim", Flows: []flow.Flow{{Name: "a", Backend: "rdma"}}}, []string{"interfaces: none"}},
		{"a library that the loader would look for", dataplane.Config{Interfaces: eth0, RDMA: dataplane.RDMAConfig{Library: "lib/libibverbs.so.1"}}, []string{`rdma.library "lib/libibverbs.so.1": write the whole path`}},
		{"every library", dataplane.Config{Interfaces: eth0, RDMA: dataplane.RDMAConfig{MLX5: "a.so", EFA: "b.so"}}, []string{"rdma.mlx5", `rdma.efa "b.so": write the whole path`}},
		{"names of interfaces", dataplane.Config{Interfaces: []dataplane.Interface{{}, {Name: "a/b"}, {Name: ".."}, {Name: "abcdefghijklmnop"}}},
			[]string{"name is empty", `"a/b"`, `".."`, "longer than 15"}},
		{"an interface twice", dataplane.Config{Interfaces: append(eth0, eth0...)}, []string{`"eth0": listed twice`}},
		{"a mode", dataplane.Config{Interfaces: []dataplane.Interface{{Name: "eth0", Mode: "fast"}}}, []string{`mode "fast"`}},
		{"flows", dataplane.Config{Interfaces: eth0, Flows: []flow.Flow{{Name: "a"}, {Name: "a"}, {Name: "-"}, {Name: "b", Interface: "eth1"}}},
			[]string{`flow "a": defined twice`, `flow "-": name`, `interface "eth1" is not listed`}},
		{"a mode that lets others write", dataplane.Config{Backend: "sim", Mirror: dataplane.MirrorConfig{Mode: 0o666}}, []string{"mirror.mode 0666"}},
		{"a mode of a directory", dataplane.Config{Backend: "sim", Mirror: dataplane.MirrorConfig{Mode: fs.ModeDir | 0o644}}, []string{"mirror.mode"}},
		{"an idle period", dataplane.Config{Backend: "sim", Poll: dataplane.PollConfig{Period: time.Second, IdlePeriod: time.Second}}, nil},
		{"an idle period below the period", dataplane.Config{Backend: "sim", Poll: dataplane.PollConfig{Period: time.Second, IdlePeriod: time.Second - 1}},
			[]string{"poll.idle_period 999.999999ms: at least poll.period, which is 1s"}},
		{"an idle period below the default period", dataplane.Config{Backend: "sim", Poll: dataplane.PollConfig{IdlePeriod: time.Millisecond}},
			[]string{"poll.idle_period 1ms: at least poll.period, which is 10ms"}},
		{"numbers", dataplane.Config{
			Backend: "sim",
			Mirror:  dataplane.MirrorConfig{Counters: 1<<24 + 1, LatencyCounters: -1, History: -2, HistoryPeriod: -1},
			Poll:    dataplane.PollConfig{Period: 99 * time.Microsecond, CPU: -1},
			XDP:     dataplane.XDPConfig{MaxFlows: -1},
			RDMA:    dataplane.RDMAConfig{CommandsPerSecond: 1_000_001},
		}, []string{"mirror.counters", "mirror.latency_counters", "mirror.history", "mirror.history_period", "poll.period", "poll.cpu", "xdp.max_flows", "rdma.commands_per_second"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Validate()
			if len(c.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, dataplane.ErrInvalid) {
				t.Fatalf("error %v, want one that satisfies ErrInvalid", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("%d errors, want %d:\n%v", len(lines), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("error %q does not say %q", lines[i], want)
				}
			}
		})
	}
	var field *flow.FieldError
	err := dataplane.Config{Backend: "sim", Flows: []flow.Flow{{Name: "-"}}}.Validate()
	if !errors.As(err, &field) || field.Flow != "-" || !errors.Is(err, flow.ErrInvalid) {
		t.Errorf("%v: the flow's own error is %+v", err, field)
	}
}

func TestInstanceNamesAreSafeInPaths(t *testing.T) {
	for name, ok := range map[string]bool{
		"default": true, "a": true, "0-9": true, strings.Repeat("x", 32): true,
		"": false, strings.Repeat("x", 33): false, "A": false, "a/b": false, "..": false, "a\n": false,
	} {
		if err := dataplane.ValidateInstance(name); ok != (err == nil) || err != nil && !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%q: error %v, want one that satisfies ErrInvalid: %t", name, err, !ok)
		}
	}
}

// TestTooManyInterfacesFailBeforeFlowsAreCompared: a list that is too long is refused before each flow is compared with each of its entries.
func TestTooManyInterfacesFailBeforeFlowsAreCompared(t *testing.T) {
	list := make([]dataplane.Interface, 1024)
	for i := range list {
		list[i].Name = fmt.Sprintf("eth%d*", i)
	}
	if err := (dataplane.Config{Interfaces: list}).Validate(); err != nil {
		t.Error(err)
	}
	cfg := dataplane.Config{Interfaces: append(list, dataplane.Interface{Name: "wlan0"}), Flows: []flow.Flow{{Name: "a", Interface: "lan0"}}}
	for _, err := range []error{dataplane.Config{Interfaces: cfg.Interfaces}.Validate(), cfg.Validate()} {
		if !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "1025 entries") || strings.Contains(err.Error(), "lan0") {
			t.Error(err)
		}
	}
}
