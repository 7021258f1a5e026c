package shm

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A writer is killed at every named step of its work, by running the same
// script in a child process that stops at the step, and is killed there.

// script is a life of a writer that goes through every step. say is told the beginning and the end of
// each call.
func script(path string, hook func(string), say func(format string, a ...any)) error {
	o := Options{Path: path, History: 4, CoolDown: -1, hook: hook}
	say("begin create")
	w, err := Create(o)
	if err != nil {
		return err
	}
	say("end create")
	handles := make(map[string]Handle)
	add := func(name string, latency bool) {
		say("begin add %s", name)
		h, aerr := w.Add(Entry{Name: name, Text: "flow " + name, Latency: latency, Source: "before"})
		err = errors.Join(err, aerr)
		handles[name] = h
		say("end add %s", name)
	}
	remove := func(name string) {
		say("begin remove %s", name)
		err = errors.Join(err, w.Remove(handles[name]))
		delete(handles, name)
		say("end remove %s", name)
	}
	exchange := func(goesOn bool, names []string, entries ...Entry) {
		say("begin exchange %v %s", goesOn, strings.Join(names, " "))
		var old []Handle
		for _, name := range names {
			old = append(old, handles[name])
			delete(handles, name)
		}
		fresh, xerr := w.Exchange(old, entries, slices.Repeat([]bool{goesOn}, len(old)))
		err = errors.Join(err, xerr)
		for i, h := range fresh {
			handles[entries[i].Name] = h
		}
		say("end exchange")
	}
	n := uint64(0)
	cycle := func() {
		n++
		say("begin cycle %d", n)
		publishAll(w, slices.Collect(maps.Values(handles)), func(Handle) Value { return patterned(n) }, func() {
			for range 3 {
				w.AppendHistory(handles["a"], patterned(n))
			}
		})
		say("end cycle %d", n)
	}
	add("a", false)
	add("b", false)
	add("l", true)
	cycle()
	cycle()
	h := handles["a"]
	err = errors.Join(err, w.SetSource(h, "after", "l2"), w.SetFlags(h, true, false, false),
		w.SetContinuity(h, Continuity{1, 100, 100 * packetSize, 0, 0}), w.SetLive(h, LiveSlot{Map: 7, Epoch: 1, Slot: 3, BasePackets: 5}))
	say("begin devices")
	err = errors.Join(err, useDevices(w, handles))
	say("end devices")
	remove("b")
	remove("l")
	add("b2", false)
	add("l2", true)
	cycle()
	for class, name := range []string{"b3", "l3"} {
		say("begin growing")
		err = errors.Join(err, growBy(w, class))
		say("end growing")
		add(name, class == classRecords)
	}
	cycle()
	// Two swap their names, one moves to a record under another name, one gets labels.
	exchange(true, []string{"b2", "l2", "b3", "l3"}, Entry{Name: "l2", Text: "flow b2"}, Entry{Name: "b2", Text: "flow l2", Latency: true},
		Entry{Name: "b4", Text: "flow b3", Latency: true}, Entry{Name: "l3", Text: "flow l3", Latency: true, Labels: map[string]string{"k": "v"}})
	exchange(false, []string{"b4"}, Entry{Name: "b4", Text: "flow b4"})
	cycle()
	err = errors.Join(err, w.Close())

	say("begin take over")
	if w, err = Create(o); err != nil {
		return err
	}
	say("end take over")
	cycle()
	return errors.Join(err, w.Close())
}

// crashChild runs the script and stops at the step that the environment names.
func crashChild(path, at string) {
	name, count, _ := strings.Cut(at, "#")
	left, _ := strconv.Atoi(count)
	say := func(format string, a ...any) { fmt.Printf(format+"\n", a...) }
	err := script(path, func(step string) {
		if step == name {
			if left--; left < 0 {
				say("stopped")
				time.Sleep(time.Hour) // until killed
			}
		}
	}, say)
	say("done %v", err)
}

// The writer is killed at each kind of step: the first two times and the last time that the script comes
// to it, with -short the first time alone, with FLOWTALLY_STRESS every time.
func TestWriterKilledAtAnyStepLeavesAWholeMirror(t *testing.T) {
	var steps []string
	seen := make(map[string]int)
	err := script(mirrorPath(t), func(step string) {
		steps = append(steps, fmt.Sprintf("%s#%d", step, seen[step]))
		seen[step]++
	}, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("FLOWTALLY_STRESS") == "" {
		steps = slices.DeleteFunc(steps, func(step string) bool {
			name, time, _ := strings.Cut(step, "#")
			return time != "0" && (testing.Short() || time != "1" && time != strconv.Itoa(seen[name]-1))
		})
	}
	t.Logf("%d steps of %d kinds", len(steps), len(seen))
	for _, step := range steps {
		t.Run(step, func(t *testing.T) { killAt(t, step) })
	}
}

// told holds the calls that the child said it began and completed.
type told struct {
	live, maybe map[string]bool   // names that must, and that may, be live
	flows       map[string]uint64 // flows that are there under any name, by text: the cycle before each was added
	done, begun uint64            // cycles
	created     bool
	devices     bool // the words of devices were set, all of them
}

func (k *told) line(s string) {
	f := strings.Fields(s)
	n := uint64(0)
	if len(f) == 3 {
		n, _ = strconv.ParseUint(f[2], 10, 64)
	}
	switch {
	case s == "end create":
		k.created = true
	case s == "end devices":
		k.devices = true
	case s == "begin take over": // by the next writer, which ends them
		k.devices = false
	case strings.HasPrefix(s, "begin add"), strings.HasPrefix(s, "begin remove"):
		delete(k.live, f[2])
		delete(k.flows, "flow "+f[2])
		k.maybe[f[2]] = true
	case strings.HasPrefix(s, "end add"):
		k.live[f[2]] = true
		k.flows["flow "+f[2]] = k.done
	case strings.HasPrefix(s, "begin exchange true"): // no other name comes or goes
		delete(k.live, "b3")
		k.maybe["b4"] = true
	case strings.HasPrefix(s, "begin exchange false"): // begins at 0
		delete(k.flows, "flow b3")
		k.live["b4"] = true
	case s == "end exchange":
		delete(k.maybe, "b3")
	case strings.HasPrefix(s, "end remove"):
		delete(k.maybe, f[2])
	case strings.HasPrefix(s, "begin cycle"):
		k.begun = n
	case strings.HasPrefix(s, "end cycle"):
		k.done = n
	}
}

func killAt(t *testing.T, step string) {
	path := mirrorPath(t)
	cmd := child("crash", path, "FLOWTALLY_SHM_STEP="+step)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := told{live: map[string]bool{}, maybe: map[string]bool{}, flows: map[string]uint64{}}
	stopped := false
	for sc := bufio.NewScanner(out); !stopped && sc.Scan(); {
		stopped = sc.Text() == "stopped"
		k.line(sc.Text())
	}
	if !stopped {
		t.Fatalf("the child did not stop at %s: %v", step, cmd.Wait())
	}

	// A reader that was there before the kill, and one after it.
	var before *Reader
	var held []HandleCounter
	var devices []*Device
	if r, err := OpenReader(path, ReaderOptions{}); err == nil {
		before = r
		es, _ := r.Entries()
		for _, e := range es {
			held = append(held, mustCounter(t, r, e.Handle))
		}
		devices = devicesOf(t, r, es, k.devices)
	} else if k.created {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if before != nil {
		defer before.Close()
		checkFile(t, path)
		readAll(t, path, k)
	}

	w, err := Create(Options{Path: path, History: 4, CoolDown: -1})
	if err != nil {
		t.Fatal(err)
	}
	checkFile(t, path)
	devicesEnded(t, w, devices)
	live := make(map[Handle]bool)
	for _, e := range w.Entries() {
		live[e.Handle] = true
		if added, ok := k.flows[e.Text]; ok {
			delete(k.flows, e.Text)
			if v, err := w.Last(e.Handle); err != nil || added < k.done && v.Packets < k.done {
				t.Errorf("the total of %q under the name %s is %d, %v: cycle %d was published", e.Text, e.Name, v.Packets, err, k.done)
			}
		}
		if !k.maybe[e.Name] {
			t.Errorf("%s is live, and should not be", e.Name)
		}
		delete(k.live, e.Name)
		if e.Name == "a" && e.Source == "after" != (e.ByteBasis == "l2") {
			t.Errorf("half a source: %+v", e)
		}
		if v, err := w.Last(e.Handle); err != nil || !isPatterned(v) || v.Packets > k.begun {
			t.Errorf("%s: %v, %v", e.Name, v, err)
		} else if e.Name == "a" && v.Packets < k.done {
			t.Errorf("a was published in cycle %d, holds %v", k.done, v)
		}
	}
	for name := range k.live {
		t.Errorf("%s is gone", name)
	}
	for text := range k.flows {
		t.Errorf("%q is gone", text)
	}
	// Slots are used again; a reader that held a counter that is gone must not see them.
	for i := range 4 {
		_, _ = w.Add(Entry{Name: fmt.Sprintf("new%d", i), Latency: i < 2})
	}
	var hs []Handle
	for _, e := range w.Entries() {
		hs = append(hs, e.Handle)
	}
	for range 2 { // the parities of the blocks of a segment are the same again
		publishAll(w, hs, func(Handle) Value { return patterned(1000) })
	}
	sameParity(t, w)
	for i := range held {
		v, err := held[i].Load()
		if want := live[held[i].Handle()]; want != (err == nil) || (!want && !errors.Is(err, ErrGone)) || !isPatterned(v) {
			t.Errorf("%v: live %v: %v, %v", held[i].Handle(), want, v, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	checkFile(t, path)
}

// readAll reads the file that a killed writer left.
func readAll(t *testing.T, path string, k told) {
	t.Helper()
	r := mustOpen(t, path)
	es, err := r.Entries()
	if err != nil {
		t.Error(err)
	}
	var s Snapshot
	if err := r.Snapshot(&s); err != nil {
		t.Error(err)
	}
	if s.Sampled > 0 && s.MinCycle+1 < s.MaxCycle {
		t.Errorf("snapshot of cycles %d to %d", s.MinCycle, s.MaxCycle)
	}
	texts := make(map[string]bool)
	for _, e := range es {
		if texts[e.Text] {
			t.Errorf("%q is there twice", e.Text)
		}
		texts[e.Text] = true
		c := mustCounter(t, r, e.Handle)
		v, err := c.Load()
		sv, serr := s.Value(e.Handle)
		if added, ok := k.flows[e.Text]; ok && added < k.done && v.Packets < k.done {
			t.Errorf("%q under the name %s shows %d: cycle %d was published", e.Text, e.Name, v.Packets, k.done)
		}
		if err != nil || serr != nil || !isPatterned(v) || !isPatterned(sv) || v.Packets > k.begun {
			t.Errorf("%s: %v, %v; %v, %v", e.Name, v, err, sv, serr)
		}
		if h, err := r.Lookup(e.Name); err != nil || h != e.Handle {
			t.Errorf("%s: %v, %v", e.Name, h, err)
		}
	}
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cur.Rewind()
	recs := make([]Record, 20)
	n, lost, err := cur.Next(recs)
	if err != nil || lost != 0 {
		t.Error(n, lost, err)
	}
	for i, rec := range recs[:n] {
		if rec.Position != recs[0].Position+uint64(i) || !isPatterned(rec.Value) {
			t.Errorf("%+v", rec)
		}
	}
}

func init() {
	children["crash"] = func() { crashChild(os.Getenv("FLOWTALLY_SHM_PATH"), os.Getenv("FLOWTALLY_SHM_STEP")) }
}
