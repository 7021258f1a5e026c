package model

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/memkernel"
)

// A history is a line of steps, separated by semicolons. The world has the interfaces v0, with native XDP, and v1, a veth.
//
//	set a=1 b=2@v0 c=3>   the set of flows is a, b and c: by SetFlows, or of the next start. The numbers are ports
//	plus d=4, minus a     flows are added and removed, by AddFlows and RemoveFlows
//	rename a d            a flow gets another name, by SetFlows
//	only v0               the instance counts on these interfaces alone from now on, by SetFlows
//	start, stop           the process begins, and ends
//	kill                  it is killed
//	kill@3 STEP           it is killed at the third durable write of STEP
//	cancel@3 STEP         the caller of set, plus or rename gives up then
//	pass@3 STEP           a packet to port 1 passes each side of each interface then; STEP does not change the set of flows
//	send 1 v0 10          ten packets to port 1 arrive at v0
//	send> 1 v0 10         ten packets to port 1 leave through v0
//	detach v0, detach> v0 somebody takes our program off the hook
//	detach@3 wait 1s      the same at v0, at the third step of the process
//	held v0               a program counts what arrives at v0 now, or the history fails
//	refuse v0, refuse> v0 the hook refuses programs from now on
//	allow v0, allow> v0   it takes them again
//	hold v0, free v0      another program takes the hook of XDP, and leaves it
//	delete v0, add v0     the interface goes, and comes with another index
//	unlink, unpin         somebody removes the mirror, or the directory of the pins, of a process that runs
//	tight                 the tables have room for two flows; ahead of the first start
//	slow                  the process polls, and looks after its hooks, every 250 ms, as one does that has many or is idle;
//	                      otherwise it polls every 100 ms, and looks every 20 ms; ahead of the first start
//	keep, drop            the next start has xdp.keep_pins, or not
//	strict, degraded      the next start ends if something is refused, or goes on
//	wait 40s              time passes
//	check                 the mirror is compared with the truth, 3 s later
//
// A host with devices has these steps, too, and flows with a priority and a backend: a=1^2, b=*~xdp.
//
//	device v0 devx        v0 has a device, of the kind devx, verbs or steal; ahead of the first start
//	audit                 rdma.audit; ahead of the first start
//	late                  packets that pass amid a step are a while on their way between a device and XDP
//	lose v0, vanish v0    the device is removed, with an event or without
//	return v0             it is back
//	down v0, up v0        its port goes down, and no packet passes; it comes up
//	full v0, empty v0     the device refuses further rules; it takes them again
//	unread v0, read v0    its counters cannot be read; they can again
//	reset v0              its counters begin at 0 again
//	amid@3 send 1 v0 2: STEP  packets arrive at the third durable write of STEP
//
// A step that is refused changes no total. Each history ends with a check.
//
// The numbers of a step count the steps of the process; 0 is never.
type step struct {
	verb     string
	egress   bool
	args     []string
	killAt   int
	cancelAt int // its caller gives up
	passAt   int // packets pass
	detachAt int // v0 loses its program
	amidAt   int // amid is done
	amid     *step
}

func (s step) String() string {
	verb := s.verb
	if s.egress {
		verb += ">"
	}
	if s.cancelAt > 0 {
		verb = fmt.Sprintf("cancel@%d %s", s.cancelAt, verb)
	}
	if s.killAt > 0 {
		verb = fmt.Sprintf("kill@%d %s", s.killAt, verb)
	}
	if s.detachAt > 0 {
		verb = fmt.Sprintf("detach@%d %s", s.detachAt, verb)
	}
	if s.passAt > 0 {
		verb = fmt.Sprintf("pass@%d %s", s.passAt, verb)
	}
	if s.amidAt > 0 {
		verb = fmt.Sprintf("amid@%d %s: %s", s.amidAt, s.amid, verb)
	}
	return strings.Join(append([]string{verb}, s.args...), " ")
}

func parseHistory(text string) (steps []step, err error) {
	for _, part := range strings.Split(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		s := step{}
		if at, is := strings.CutPrefix(words[0], "amid@"); is {
			sent, rest, ok := strings.Cut(strings.Join(words[1:], " "), ":")
			if s.amidAt, err = strconv.Atoi(at); err != nil || !ok {
				return nil, fmt.Errorf("%q is no step: %w", part, err)
			}
			amid, err := parseHistory(sent)
			if err != nil {
				return nil, err
			}
			s.amid, words = &amid[0], strings.Fields(rest)
		}
		for _, p := range []struct {
			prefix string
			at     *int
		}{{"pass@", &s.passAt}, {"detach@", &s.detachAt}, {"kill@", &s.killAt}, {"cancel@", &s.cancelAt}} { // in the order of String
			n, is := strings.CutPrefix(words[0], p.prefix)
			if !is || len(words) == 1 {
				continue
			}
			if *p.at, err = strconv.Atoi(n); err != nil {
				return nil, fmt.Errorf("%q: %w", part, err)
			}
			words = words[1:]
		}
		s.verb, s.egress = strings.CutSuffix(words[0], ">")
		s.args = words[1:]
		if need := arguments[s.verb]; need == nil || len(s.args) < *need {
			return nil, fmt.Errorf("%q is no step", part)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// arguments is how many words a step has at least.
var arguments = func() map[string]*int {
	m := make(map[string]*int)
	for n, verbs := range [][]string{
		{"audit", "late", "tight", "slow", "set", "start", "stop", "kill", "keep", "drop", "strict", "degraded", "check", "unlink", "unpin"},
		{"lose", "vanish", "return", "down", "up", "full", "empty", "unread", "read", "reset", "detach", "held", "refuse", "allow", "hold", "free", "delete", "add", "wait", "plus", "minus", "only"},
		{"rename", "device"},
		{"send"},
	} {
		for _, v := range verbs {
			m[v] = &n
		}
	}
	return m
}()

// do does one step. It returns a violation. A refusal by the instance is no error.
func (w *world) do(s step) error {
	arg := func(i int) string {
		if i < len(s.args) {
			return s.args[i]
		}
		return ""
	}
	refusal := func(err error) error {
		if err != nil {
			w.counts.refused++
			w.trace("refused: %v", err)
		}
		return nil
	}
	if s.amidAt > 0 && w.rack != nil {
		w.passAt(s.amidAt, *s.amid)
		defer w.resolveAmid()
	}
	switch s.verb {
	case "set":
		list, err := parseFlows(strings.Join(s.args, " "))
		if err != nil {
			return err
		}
		ctx, done := w.cancelledAt(s.cancelAt)
		defer done()
		if _, err = w.within(s.killAt, true, func() error { return w.set(ctx, list, nil) }); err != nil {
			w.noteUndone(list, true)
		}
		return refusal(err)
	case "plus":
		list, err := parseFlows(strings.Join(s.args, " "))
		if err != nil {
			return err
		}
		ctx, done := w.cancelledAt(s.cancelAt)
		defer done()
		if _, err = w.within(s.killAt, true, func() error { return w.plus(ctx, list) }); err != nil {
			w.noteUndone(list, false)
		}
		return refusal(err)
	case "minus":
		_, err := w.within(s.killAt, true, func() error { return w.minus(s.args) })
		return refusal(err)
	case "rename":
		ctx, done := w.cancelledAt(s.cancelAt)
		defer done()
		_, err := w.within(s.killAt, true, func() error { return w.rename(ctx, arg(0), arg(1)) })
		return refusal(err)
	case "only":
		ctx, done := w.cancelledAt(s.cancelAt)
		defer done()
		_, err := w.within(s.killAt, true, func() error { return w.only(ctx, s.args) })
		return refusal(err)
	case "start":
		w.may(w.wanted)
		defer w.passingAt(s.passAt)()
		killed, err := w.within(s.killAt, true, w.start)
		w.halfStarted = killed
		return refusal(err)
	case "stop":
		defer w.passingAt(s.passAt)()
		_, err := w.within(s.killAt, false, w.stop)
		return refusal(err)
	case "kill":
		return w.killNow()
	case "tight":
		if w.counts.starts == w.began {
			w.room = 2
		}
	case "slow":
		if w.counts.starts == w.began {
			w.slow = true
		}
	case "device":
		if w.rack == nil {
			w.rack = newRack(w.step)
		}
		w.rack.add(arg(0), arg(1))
	case "audit":
		w.audit = true
	case "late":
		w.late = true
	case "lose", "vanish", "return", "down", "up", "full", "empty", "unread", "read", "reset":
		w.device(s.verb, arg(0))
	case "keep", "drop":
		w.keep = s.verb == "keep"
	case "strict", "degraded":
		w.strict = s.verb == "strict"
	case "send":
		port, err := strconv.ParseUint(arg(0), 10, 16)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(arg(2))
		if err != nil {
			return err
		}
		return w.send(uint16(port), arg(1), s.egress, n)
	case "detach":
		w.detach(arg(0), s.egress)
	case "held":
		if !w.holds(site{arg(0), s.egress}) {
			return violated("%s has no program", arg(0))
		}
	case "refuse", "allow":
		var err error
		w.refusing[site{arg(0), s.egress}] = s.verb == "refuse"
		if s.verb == "refuse" {
			err = errRefused
		}
		for _, at := range hooksOf(s.egress) {
			w.host.Refuse(arg(0), at, err)
		}
	case "hold":
		w.host.Hold(arg(0), 99)
	case "free":
		w.host.Hold(arg(0), 0)
		w.unheld(arg(0), false) // counting moves back to XDP
	case "delete":
		w.noteDeleted(arg(0))
		w.host.Delete(arg(0))
		if w.engine == nil {
			w.noteUnseen()
		}
	case "add":
		if !w.exists(arg(0)) {
			kind := ""
			if arg(0) == "v1" {
				kind = "veth"
			}
			w.host.Add(arg(0), kind)
			w.fresh[arg(0)] = true
		}
	case "unlink", "unpin":
		if w.engine == nil {
			return nil
		}
		if s.verb == "unpin" {
			return removeWhileUsed(filepath.Join(w.home(w.boots), "pins"))
		}
		return ignoreMissing(os.Remove(w.mirror()))
	case "wait":
		d, err := time.ParseDuration(arg(0))
		if err != nil {
			return err
		}
		defer w.passingAt(s.passAt)()
		defer w.detachingAt(s.detachAt)()
		_, err = w.within(s.killAt, false, func() error { w.settle(d); return nil })
		return err
	case "check":
		return w.check()
	}
	return nil
}

// removeWhileUsed removes a directory in which a process makes files meanwhile.
func removeWhileUsed(dir string) error {
	err := os.RemoveAll(dir)
	for errors.Is(err, unix.ENOTEMPTY) {
		err = os.RemoveAll(dir)
	}
	return err
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// play plays a history in a bubble of its own, and returns the invariant that it violates. It adds to c, which may be nil.
func play(t *testing.T, text string, c *counts) (err error) {
	t.Helper()
	steps, err := parseHistory(text + "; check")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(memory, "model")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	host := memkernel.NewHost(&pages)
	defer host.Close()
	now := time.Now().UnixNano()
	synctest.Test(t, func(t *testing.T) {
		trace := func(string, ...any) {}
		if isVerbose() {
			trace = t.Logf
		}
		// A bubble begins in 2000, and the clock of package shm may not go back behind the start of this process.
		time.Sleep(time.Duration(now-time.Now().UnixNano()) + time.Hour)
		w := newWorld(host, dir, trace)
		if c != nil {
			w.counts = *c
		}
		w.counts.histories++
		w.began = w.counts.starts
		defer func() {
			if r := recover(); r != nil {
				err = violated("a panic: %v\n%s", r, debug.Stack())
			}
			w.end()
			if c != nil {
				*c = w.counts
			}
		}()
		for _, s := range steps {
			if s.verb != "check" {
				w.trace("%v: %s", time.Now().UTC().Format("04:05.000"), s)
			}
			if err = w.do(s); err != nil {
				err = fmt.Errorf("%s: %w", s, err)
				return
			}
		}
	})
	return err
}

// pages are of the hosts of all histories, which are played one after another.
var pages memkernel.Pages

// memory is a tmpfs, so that no write of a mirror waits for a disk.
const memory = "/dev/shm"

// killedBetween is the example of docs/testing.md: a process is killed between packets.
const killedBetween = "set a=1; start; send 1 v0 10; kill; send 1 v0 5; start"

var history = flag.String("history", killedBetween, "a history that TestHistory plays")

func isVerbose() bool { return testing.Verbose() && *history != killedBetween }

// TestHistory plays the history of a command line: go test ./dataplane/engine/model -run TestHistory -v -history 'STEPS'.
func TestHistory(t *testing.T) {
	if err := play(t, *history, nil); err != nil {
		t.Error(err)
	}
}
