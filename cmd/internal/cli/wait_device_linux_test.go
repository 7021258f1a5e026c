package cli

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// wordsMirror is a mirror with the completion counter sent, to which a device writes. The poller has published 10
// completions and 1 error, and publishes nothing more.
type wordsMirror struct {
	t          *testing.T
	path       string
	w          *shm.Writer
	h          shm.Handle
	comp, errs []byte
}

func newWordsMirror(t *testing.T) *wordsMirror {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m", "words.mirror")
	w, err := shm.Create(shm.Options{Path: path, Counters: 64, HeartbeatPeriod: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	m := &wordsMirror{t: t, path: path, w: w}
	if m.h, err = w.Add(shm.Entry{Name: "sent", Kind: shm.KindCompletion, Source: "rdma efa0 comp_cntr+external", ByteBasis: "errors", Valid: true}); err != nil {
		t.Fatal(err)
	}
	m.publish(10, 1)
	seg, err := w.DeviceSegment(1)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := seg.Slot()
	if err != nil {
		t.Fatal(err)
	}
	m.comp, m.errs = slot.Words()
	if err := w.SetDevice(m.h, slot, 10, 1, math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *wordsMirror) publish(comp, errs uint64) {
	now := shm.Now()
	m.w.BeginCycle()
	var block shm.Block
	block[m.h.Index] = shm.Value{Packets: comp, Bytes: errs, SampledAt: now}
	m.w.PublishBlock(0, &block)
	m.w.EndCycle(now)
}

// count writes as the device does: totals are 10 and 1 above its words.
func (m *wordsMirror) count(comp, errs uint64) {
	binary.NativeEndian.PutUint64(m.comp, comp-10)
	binary.NativeEndian.PutUint64(m.errs, errs-1)
}

func (m *wordsMirror) run(args ...string) (code int, out, talk string) {
	m.t.Helper()
	return run(m.t, append(args, "--mirror", m.path)...)
}

// shows compares the output of get for the counter: in fields, and as JSON.
func (m *wordsMirror) shows(row string, comp, errs uint64, device bool) {
	m.t.Helper()
	code, out, talk := m.run("get")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if got := strings.Join(strings.Fields(lines[len(lines)-1]), " "); code != exitOK || got != row {
		m.t.Errorf("get ended with %d:\n%s%swant\n%s", code, out, talk, row)
	}
	_, out, _ = m.run("get", "-o", "json")
	var j view.ReadingJSON
	if err := json.Unmarshal([]byte(out), &j); err != nil {
		m.t.Fatal(err)
	}
	c := j.Counters[0]
	if *c.Completions != comp || *c.Errors != errs || c.Device != device || c.AgeNS == nil || (*c.AgeNS == 0) != (device && j.Writer.State == "run") {
		m.t.Errorf("json: %s", out)
	}
}

// It shows the published one if the device's memory is unreadable.
func TestGetShowsTheDevicesValueElseThePublishedOne(t *testing.T) {
	m := newWordsMirror(t)
	m.count(123_456, 7)
	m.shows("sent completion 123,456 7 now rdma efa0 comp_cntr+external, its words", 123_456, 7, true)

	device := filepath.Join(filepath.Dir(m.path), "words.device")
	if err := os.Rename(device, device+".away"); err != nil {
		t.Fatal(err)
	}
	code, out, _ := m.run("get")
	if code != exitOK || !strings.Contains(out, " 10 ") || !strings.Contains(out, "the device's words cannot be read") || strings.Contains(out, "now") {
		t.Errorf("without the words, get ended with %d:\n%s", code, out)
	}
	if err := os.Rename(device+".away", device); err != nil {
		t.Fatal(err)
	}

	// A writer that ended: the words may have stood still since.
	if err := m.w.Close(); err != nil {
		t.Fatal(err)
	}
	code, out, talk := m.run("get")
	if code != exitOK || !strings.Contains(out, "123,456") || strings.Contains(out, "now") || !strings.Contains(out, "stale") ||
		!strings.Contains(talk, "these are its last values; values that a device writes are current\n") {
		t.Errorf("get ended with %d:\n%s%s", code, out, talk)
	}
	if _, out, _ = m.run("get", "-o", "json"); !regexp.MustCompile(`"name":"sent",.*"age_ns":[1-9].*"completions":123456,.*"device":true`).MatchString(out) {
		t.Errorf("json: %s", out)
	}
}

func TestGetShowsThePublishedValueOnceTheDeviceStops(t *testing.T) {
	m := newWordsMirror(t)
	m.count(20, 1)
	if err := m.w.ClearDevice(m.h); err != nil {
		t.Fatal(err)
	}
	code, out, _ := m.run("get")
	if code != exitOK || !strings.Contains(out, " 10 ") || strings.Contains(out, "words") || strings.Contains(out, "now") {
		t.Errorf("get ended with %d:\n%s", code, out)
	}
}

// The rate is the change of the words between two screens, whatever the poller publishes.
func TestTopComputesRatesFromTheDevicesWords(t *testing.T) {
	m := newWordsMirror(t)
	o, err := openMirror(readerFlag{instanceFlag: instanceFlag{Mirror: m.path}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	m.count(10, 1)
	before, err := o.read(new(selection.Selection))
	if err != nil {
		t.Fatal(err)
	}
	m.count(1_000_010, 1)
	cur, err := o.read(new(selection.Selection))
	if err != nil {
		t.Fatal(err)
	}
	view.Rates(before, cur)
	c := cur.Counters[0]
	took := time.Duration(c.SampledAt - before.Counters[0].SampledAt)
	if !c.FromDevice || !c.HasRate || math.Abs(c.PacketsPerSec*took.Seconds()-1_000_000) > 1 || c.BytesPerSec != 0 {
		t.Errorf("%+v in %v", c, took)
	}
	if code, out, _ := m.run("top", "--count", "1"); code != exitOK || !strings.Contains(out, "1,000,010") || !strings.Contains(out, " now  rdma efa0 comp_cntr+external, its words") {
		t.Errorf("top ended with %d:\n%s", code, out)
	}
}

// wait runs in the background; begun reports that it has read the first value.
func (m *wordsMirror) wait(args ...string) (done chan string) {
	done = make(chan string, 1)
	go func() {
		code, out, talk := run(m.t, append([]string{"wait", "sent", "--mirror", m.path, "--timeout", "1m"}, args...)...)
		if (code == exitOK) != (out != "") {
			talk += "and the code is wrong"
		}
		done <- strings.Join(strings.Fields(out+talk), " ")
	}()
	return done
}

// The poller publishes nothing meanwhile.
func TestDevicesWordsEndAWait(t *testing.T) {
	for _, tt := range []struct {
		name       string
		args       []string
		comp, errs uint64 // counted each 5 ms, after an unknown number of reads by the wait
		want       string
	}{
		{"count", []string{"--at-least", "50"}, 1, 0, `^NAME .* sent completion [0-9,]+ 1 now rdma efa0 comp_cntr.external, its words$`},
		{"count, and an error with it", []string{"--at-least", "1000"}, 990, 1, `^NAME .* sent completion [0-9]*,[0-9]+ [0-9]+ now `},
		{"error", []string{"--at-least", "1000"}, 0, 1, `"sent": waiting for 1,000 completions: operations completed in error: it has 10 completions and [0-9]+ errors `},
		{"change", nil, 1, 0, `^NAME .* sent completion [1-9][0-9]* 1 now `},
		{"change of errors", nil, 0, 1, `^NAME .* sent completion 10 [1-9][0-9]* now `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newWordsMirror(t)
			comp, errs := uint64(10), uint64(1)
			m.count(comp, errs)
			done := m.wait(tt.args...)
			select {
			case got := <-done:
				t.Fatalf("ended before anything was counted: %s", got)
			case <-time.After(20 * time.Millisecond):
			}
			for {
				select {
				case got := <-done:
					if !regexp.MustCompile(tt.want).MatchString(got) {
						t.Errorf("ended with\n%s\nwant\n%s", got, tt.want)
					}
					return
				case <-time.After(5 * time.Millisecond):
				}
				comp, errs = comp+tt.comp, errs+tt.errs
				m.count(comp, errs)
			}
		})
	}
}

// The device counts completions and an error between the reads of the two words. The completions must win.
func TestWaitPrefersReachedCompletionsToErrors(t *testing.T) {
	threshold := uint64(50)
	for _, tt := range []struct {
		name string
		then shm.Value
		want error
	}{
		{"reached meanwhile", shm.Value{Packets: 50, Bytes: 2}, nil},
		{"not reached", shm.Value{Packets: 49, Bytes: 2}, shm.ErrCompletion},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &waiter{cmd: &waitCmd{AtLeast: &threshold}}
			w.see(shm.Value{Packets: 10, Bytes: 1}, true)
			looks := []shm.Value{{Packets: 10, Bytes: 2}, tt.then}
			over, err := w.readDevice(func() (v shm.Value, err error) {
				v, looks = looks[0], looks[1:]
				return v, nil
			})
			if !over || !errors.Is(err, tt.want) || w.last.value != tt.then {
				t.Errorf("%t, %v with %+v", over, err, w.last.value)
			}
		})
	}
}

// The first published value may be older than the words. That must not count as a change.
func TestWaitGoesOnWithPublishedValuesOnceTheDeviceStops(t *testing.T) {
	threshold := uint64(200)
	for _, atLeast := range []*uint64{&threshold, nil} {
		m := newWordsMirror(t)
		m.count(100, 5)
		o, err := followMirror(readerFlag{instanceFlag: instanceFlag{Mirror: m.path}})
		if err != nil {
			t.Fatal(err)
		}
		defer o.close()
		w := &waiter{mirror: o, cmd: &waitCmd{Name: "sent", AtLeast: atLeast}, talk: io.Discard}
		w.see(shm.Value{Packets: 100, Bytes: 5, SampledAt: shm.Now()}, true)
		if err := m.w.ClearDevice(m.h); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.wait(t.Context()) }()
		for comp, errs := uint64(20), uint64(2); ; comp, errs = comp+20, min(5, errs+1) {
			select {
			case err := <-done:
				if err != nil || w.last.words || w.last.value.Packets <= 100 || atLeast != nil && w.last.value.Packets < *atLeast {
					t.Errorf("ended with %+v, %v", w.last.value, err)
				}
			case <-time.After(5 * time.Millisecond):
				m.publish(comp, errs)
				continue
			}
			break
		}
	}
}
