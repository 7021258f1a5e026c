package plugintest

import (
	"context"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

func testInterfaces(t *testing.T, s *suite) {
	was, err := s.Interfaces(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := func(list []dataplane.Interface) {
		t.Helper()
		if got, err := s.Interfaces(s.ctx); err != nil || !slices.Equal(got, list) {
			t.Errorf("interfaces %v, %v, want %v", got, err, list)
		}
	}
	now := was
	if len(was) > 0 { // an instance that was started without interfaces gets none
		now = append(slices.Clone(was), dataplane.Interface{Name: "not-there*", Mode: "generic", Optional: true, Direction: dataplane.DirectionEgress})
	}
	if err := s.SetInterfaces(s.ctx, now); err != nil {
		t.Fatal(err)
	}
	want(now)
	for _, bad := range []dataplane.Interface{{}, {Name: "a/b"}, {Name: "eth["}, {Name: "eth0", Mode: "fast"}, {Name: "eth0", Direction: "up"}, {Name: "\xff*"}} {
		s.wantErr(bad.Name, s.SetInterfaces(s.ctx, append(slices.Clone(was), bad)), dataplane.ErrInvalid)
	}
	ended, end := context.WithCancel(s.ctx)
	end()
	s.wantErr("a cancelled context", s.SetInterfaces(ended, was), context.Canceled)
	want(now)
	if err := s.SetInterfaces(s.ctx, was); err != nil {
		t.Error(err)
	}
	want(was)
}
