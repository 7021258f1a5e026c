package model

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutant is a fault: a line of a file becomes another one.
type mutant struct{ file, line, mutant string }

// mutants are faults in the lines that keep and declare losses, in those that change a set, and in those that take up the pins.
var mutants = []mutant{
	{"xdp/ledger.go", `if r := l.site(k); r.state() == siteCovered {`, `if r := l.site(k); false {`},                              // no outage ever begins
	{"xdp/ledger.go", `if r.state() == siteOpen || len(renamed) > 0 {`, `if len(renamed) > 0 {`},                                  // its end is not noted
	{"xdp/ledger.go", `if r.state() == siteOpen || len(renamed) > 0 {`, `if true {`},                                              // each attachment ends an outage
	{"xdp/ledger.go", `l.set(k, l.tick(), siteUnused)`, `l.set(k, r.lost(), siteUnused)`},                                         // an interface leaves with its outage
	{"dataplane/engine/backend/overlay.go", `return int32(m-o) > 0`, `return int32(m-o) >= 0`},                                    // the clock has no order
	{"xdp/ledger.go", `case counts && !covered:`, `case false:`},                                                                  // a kill behind the attaching
	{"xdp/ledger.go", `case covered && !counts:`, `case false:`},                                                                  // a hook that was lost while no process ran
	{"xdp/ledger.go", `dp.ledger.leave(h.hookKey, false)`, `dp.ledger.begin(h.hookKey)`},                                          // an interface that goes is an outage
	{"xdp/ledger.go", `l.set(k, lost, siteCovered)`, `l.set(k, lost, r.state())`},                                                 // an outage never ends
	{"xdp/attach.go", `dp.ledger.cover(h.hookKey, h.ifindex)`, `_ = h`},                                                           // an attachment is not noted
	{"dataplane/engine/source.go", `	return last.After(c.seen())`, `	return last != last`},                                        // nothing is declared
	{"dataplane/engine/move.go", `past.Seen = uint32(seen)`, `_ = seen`},                                                          // one loss is declared again and again
	{"dataplane/engine/publish.go", `last.After(backend.Moment(old.Continuity.Seen))`, `last.After(u.Now())`},                     // a restart declares nothing
	{"xdp/ledger.go", `l.lost[at] = r.lost()`, `_ = r`},                                                                           // a start forgets the latest loss
	{"xdp/move.go", `	dp.ledger.begin(at.hookKey)`, ``},                                                                           // a move is no outage
	{"shm/entry.go", `s.discontinuities, s.seen = c.Discontinuities, c.Seen`, `s.discontinuities, s.seen = c.Discontinuities, 0`}, // the mirror forgets what it has declared
	{"dataplane/engine/publish.go", `in.Gap = in.Gap || last.After(`, `in.Gap = in.Gap || last == last || last.After(`},           // it declares always
	{"dataplane/engine/publish.go", `covered && !since.After(backend.Moment(old.Continuity.Seen))`, `(covered || since == 0)`},    // a shadow is always complete
	{"dataplane/engine/handover.go", `lacks = !h.complete ||`, `lacks =`},                                                         // what a slot has missed is no loss
	{"dataplane/engine/handover.go", `total = backend.Max(h.last, h.bySlot)`, `total = h.last`},                                   // what a slot has counted since is dropped
	{"dataplane/engine/arrange_steps.go", "m.stack.software.Look()\n\t}\n\tvar off", "}\n\tvar off"},                              // a hook is released before a look
	{"dataplane/engine/follow.go", `if err == nil && own.Packets == 0 {`, `if err == nil && own.Packets >= 0 {`},                  // a shadow lacks what passed amid an addition
	{"dataplane/engine/follow.go", `if meets && o.published() && !o.hasShadow {`, `if meets && false {`},                          // a shadow counts packets of a flow that has none
	{"dataplane/engine/alter_rules.go", `come, leave = a.comingTo(s), a.leaving(s)`, `come, leave = nil, a.leaving(s)`},           // flows come in an exchange of their own
	{"dataplane/engine/alter_rules.go", `come, leave = a.comingTo(s), a.leaving(s)`, `come = a.comingTo(s)`},                      // flows go in an exchange of their own
	{"dataplane/engine/arrange_steps.go", `	m.awaitFlight(entered, flow.Ingress)`, ``},                                            // received packets are in flight while a flow enters a device
	{"dataplane/engine/arrange_steps.go", `	m.awaitFlight(list, flow.Egress)`, ``},                                                // sent ones
	{"dataplane/engine/remove.go", `	p.mover.awaitFlight(removal.flows, flow.Ingress)`, ``},                                       // received packets are in flight while a flow leaves it
	{"dataplane/engine/undone_losses.go", `	alter.notePassed(u.altered)`, ``},                                                     // a rank that is taken back has counted nothing
	{"dataplane/engine/xdp/match.go", `!fates[i].adopts && len(of) > 0 {`, `len(of) < 0 {`},                                       // a renamed flow loses its counter
	{"dataplane/engine/xdp/match.go", `f.gap = unfinished[i] ||`, `f.gap = unfinished[i] &&`},                                     // an unfinished change is no gap
}

// sourceOf returns the text of the file of a mutant, which has its line once.
func sourceOf(t *testing.T, m mutant) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("../../..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.line); n != 1 {
		t.Errorf("%s has the line %d times: %s", m.file, n, m.line)
	}
	return string(source)
}

func TestEachMutantHasItsLine(t *testing.T) {
	for _, m := range mutants {
		sourceOf(t, m)
	}
}

// TestTheModelFindsMutants makes one fault at a time, and runs the model, which must fail. Each takes a build of the engine, so the
// test is part of make test-stress alone.
func TestTheModelFindsMutants(t *testing.T) {
	if os.Getenv("FLOWTALLY_STRESS") == "" {
		t.Skip("it is part of make test-stress")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(m.file+" "+m.mutant, func(t *testing.T) {
			path := filepath.Join(root, m.file)
			source := sourceOf(t, m)

			dir := t.TempDir()
			changed := filepath.Join(dir, "mutant.go")
			overlay := filepath.Join(dir, "overlay.json")
			text, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string]string{changed: strings.Replace(source, m.line, m.mutant, 1), overlay: string(text)} {
				if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			cmd := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-run", "TestKnownFaults|TestModel", ".", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), "FLOWTALLY_STRESS=")
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Error("the model does not find it")
			case !strings.Contains(string(out), "TestHistory"): // the line that repeats a history
				t.Errorf("it is found by something else:\n%s", out)
			}
		})
	}
}
