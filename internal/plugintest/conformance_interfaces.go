package plugintest

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func testInterfaces(t *testing.T, s *suite) {
	was, err := s.Interfaces(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []dataplane.Interface{{}, {Name: "a/b"}, {Name: "eth["}, {Name: "eth0", Mode: "fast"}, {Name: "eth0", Direction: "up"}, {Name: "\xff*"}} {
		cfg := dataplane.Config{Backend: flow.Sim, Interfaces: append(slices.Clone(was), bad)}
		_, err := s.SetFlows(s.ctx, nil, dataplane.SetOptions{KeepOthers: true, Config: &cfg})
		s.wantErr(bad.Name, err, dataplane.ErrInvalid)
	}
	if got, err := s.Interfaces(s.ctx); err != nil || !slices.Equal(got, was) {
		t.Errorf("interfaces %v, %v, want %v", got, err, was)
	}
}
