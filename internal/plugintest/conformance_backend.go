package plugintest

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// testBackend checks that the backend a flow names counts it, or adding the flow fails, and that placements return the
// choice.
func testBackend(t *testing.T, s *suite) {
	counts := s.add(flow.Flow{Name: "free"})[0].Source.Backend
	accepted := 1
	for _, word := range flow.Backends() {
		placed, err := s.AddFlows(s.ctx, flow.Flow{Name: "by-" + string(word), Backend: word})
		if err != nil {
			if word == counts || word == "auto" && counts != "sim" { // auto never chooses sim
				t.Errorf("backend %q, where %s counts: %v", word, counts, err)
			}
			continue
		}
		accepted++
		switch p := placed[0]; {
		case p.Flow.Backend != word:
			t.Errorf("backend %q came back as %q", word, p.Flow.Backend)
		case word != "auto" && p.Source.Backend != word:
			t.Errorf("backend %q was named, %q counts", word, p.Source.Backend)
		}
	}
	names := s.names()
	if len(names) != accepted {
		t.Errorf("flows are %q after %d were accepted", names, accepted)
	}
	_, err := s.AddFlows(s.ctx, flow.Flow{Name: "good"}, flow.Flow{Name: "bad", Backend: "dpdk"})
	s.wantErr("adding with a backend that there is not", err, dataplane.ErrInvalid)
	if got := s.names(); len(got) != len(names) {
		t.Errorf("flows are %q after one that is invalid, want %q", got, names)
	}
}
