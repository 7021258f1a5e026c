package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// shapes are n flows that have a mask each: prefixes of two addresses.
func shapes(t *testing.T, n int) (flows []flow.Flow) {
	t.Helper()
	for i := range n {
		text := fmt.Sprintf("ipv4 src 0.0.0.0/%d dst 0.0.0.0/%d", 1+i%32, 1+i/32)
		flows = append(flows, flow.Flow{Name: fmt.Sprint("f", i), Match: match(t, text)})
	}
	return flows
}

func TestCheckRefusesMoreRulesThanXDPHolds(t *testing.T) {
	sim := shapes(t, 21)
	sim[3].Backend = "sim"
	for _, tt := range []struct {
		name string
		cfg  dataplane.Config
		is   error
		says string
	}{
		{"a mask for each flow", dataplane.Config{Flows: shapes(t, 1000)}, nil, ""},
		{"one of them simulated", dataplane.Config{XDP: dataplane.XDPConfig{MaxFlows: 20}, Flows: sim}, nil, ""},
		{"all of them simulated", dataplane.Config{Backend: "sim", XDP: dataplane.XDPConfig{MaxFlows: 20}, Flows: shapes(t, 70)}, nil, ""},
		{"as many rules as there may be", dataplane.Config{XDP: dataplane.XDPConfig{MaxFlows: 20}, Flows: shapes(t, 20)}, nil, ""},
		{"one more rule", dataplane.Config{XDP: dataplane.XDPConfig{MaxFlows: 20}, Flows: shapes(t, 21)}, dataplane.ErrFull, "xdp.max_flows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.cfg)
			if tt.is == nil && err != nil || !errors.Is(err, tt.is) || err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %v", err, tt.is)
			}
		})
	}
}

// A named set has no rules yet, and none may be left out without a word.
func TestCheckRefusesNamedSets(t *testing.T) {
	cfg := dataplane.Config{Flows: []flow.Flow{{Name: "ban", Match: match(t, "ipv4 src @blocklist")}}}
	_, planErr := Plan(cfg)
	_, hiddenErr := Hidden(cfg)
	for _, err := range []error{Check(cfg), planErr, hiddenErr} {
		if err == nil || !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("error %v, want ErrInvalid", err)
			continue
		}
		for _, part := range []string{`flow "ban"`, "@blocklist", "ipv4.src", "write the elements into the match"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not say %q", err, part)
			}
		}
	}
}
