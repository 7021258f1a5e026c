package plugintest

import (
	"context"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func testSetFlows(t *testing.T, s *suite) {
	s.add(flow.Flow{Name: "old"}, flow.Flow{Name: "dns", Match: mustMatch(t, "udp dport 53")}, flow.Flow{Name: "web", Match: mustMatch(t, "tcp dport 80")})
	wanted := []flow.Flow{
		{Name: "dns", Match: mustMatch(t, "udp dport 53"), Action: flow.Drop},
		{Name: "front", Match: mustMatch(t, "tcp dport 80")},
		{Name: "new", Priority: 9},
	}
	opts := dataplane.SetOptions{DryRun: true, Renames: map[string]string{"web": "front"}}
	const want = "~ dns: count -> drop\n~ front: was web\n+ new\n- old\n"
	d, err := s.SetFlows(s.ctx, wanted, opts)
	if err != nil || d.String() != want {
		t.Fatalf("dry run: %v; difference\n%s", err, d)
	}
	s.wantNames("dns", "old", "web")
	opts.DryRun = false
	if d, err = s.SetFlows(s.ctx, wanted, opts); err != nil || d.String() != want {
		t.Fatalf("%v; difference\n%s", err, d)
	}
	s.wantNames("dns", "front", "new")
	if d, err = s.SetFlows(s.ctx, wanted, opts); err != nil || !d.Empty() || d.Unchanged != 3 {
		t.Errorf("again: %v; difference\n%s", err, d)
	}
	if d, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "more", Priority: 8}}, dataplane.SetOptions{KeepOthers: true}); err != nil || d.Unchanged != 3 {
		t.Errorf("beside the others: %v; difference\n%s", err, d)
	}
	s.wantNames("dns", "front", "more", "new")
	_, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "dns"}}, dataplane.SetOptions{Config: &dataplane.Config{
		Backend: "sim", Mirror: dataplane.MirrorConfig{Path: "/elsewhere.mirror"},
	}})
	s.wantErr("a setting that needs a restart", err, dataplane.ErrRestart)
	s.wantNames("dns", "front", "more", "new")
	_, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "dns"}, {Name: "with space"}}, dataplane.SetOptions{})
	s.wantErr("an invalid flow", err, dataplane.ErrInvalid)
	_, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "x"}}, dataplane.SetOptions{Renames: map[string]string{"absent": "x"}})
	s.wantErr("renaming a flow that does not exist", err, dataplane.ErrNotFound)
	ended, end := context.WithCancel(s.ctx)
	end()
	_, err = s.SetFlows(ended, nil, dataplane.SetOptions{})
	s.wantErr("a cancelled context", err, context.Canceled)
	s.wantNames("dns", "front", "more", "new")
	if d, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "dns", Priority: 3}}, dataplane.SetOptions{Keep: []string{"more", "dns", "absent", "front"}}); err != nil || d.Unchanged != 2 {
		t.Errorf("with flows that stay: %v; difference\n%s", err, d)
	}
	s.wantNames("dns", "front", "more")
	s.add(flow.Flow{Name: "by-hand", Priority: 4}, flow.Flow{Name: "taken", Priority: 5}, flow.Flow{Name: "gone", Priority: 6})
	if err := s.RemoveFlows(s.ctx, "gone"); err != nil {
		t.Error(err)
	}
	added := dataplane.SetOptions{KeepAdded: true}
	if d, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "taken", Priority: 5}, {Name: "gone", Priority: 6}}, added); err != nil || d.String() != "- dns\n- front\n+ gone\n- more\n" {
		t.Errorf("with added flows: %v; difference\n%s", err, d)
	}
	if d, err = s.SetFlows(s.ctx, []flow.Flow{{Name: "dns"}}, added); err != nil || d.String() != "+ dns\n- gone\n- taken\n" {
		t.Errorf("with added flows, again: %v; difference\n%s", err, d)
	}
	s.wantNames("by-hand", "dns")
	if _, err := s.SetFlows(s.ctx, nil, dataplane.SetOptions{}); err != nil {
		t.Error(err)
	}
	s.wantNames()
}
