package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// The test kills the plugin within SetFlows, under traffic. The next process must have either the old set of flows or
// the new one, and never a mixture. Two flows must lose no packet: one that stays, and one that is renamed while its
// action changes.
func TestPluginKilledInSetFlowsHasTheOldFlowsOrTheNewOnes(t *testing.T) {
	need.Netns(t)
	need.TCX(t)
	pins := filepath.Join(need.BPFFS(t), lab.Unique("flowtally-plugin-test-"))
	t.Cleanup(func() { os.RemoveAll(pins) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here, err := lab.CurrentNetns() // where the plugin is started again
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	there, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	w, err := lab.NewPair(here, there, lab.Unique("near"), lab.Unique("far"), lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	flowTo := func(name, text string, edit ...func(*flow.Flow)) flow.Flow {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		f := flow.Flow{Name: name, Match: m, Priority: 1}
		for _, e := range edit {
			e(&f)
		}
		return f
	}
	drop := func(f *flow.Flow) { f.Action = flow.Drop }
	sets := [2][]flow.Flow{
		{flowTo("kept", "udp dport 1001"), flowTo("old", "udp dport 1002"), flowTo("other", "udp dport 2001"), flowTo("gone", "udp dport 2002")},
		{flowTo("kept", "udp dport 1001"), flowTo("new", "udp dport 1002", drop), flowTo("other", "udp dport 2002"), flowTo("added", "udp dport 2001")},
	}
	renames := [2]map[string]string{{"new": "old"}, {"old": "new"}}
	name := fmt.Sprintf("k%d-%d", os.Getpid(), instances.Add(1))
	mirror := filepath.Join(t.TempDir(), name+".mirror")
	c, err := plugin.Launch(t.Context(), plugin.Options{
		Path: self, Env: []string{roleEnv + "=plugin"},
		Config: dataplane.Config{
			Instance: name, Backend: "xdp", Interfaces: []dataplane.Interface{{Name: w.A.Name}}, Flows: sets[0],
			Mirror: dataplane.MirrorConfig{Path: mirror}, XDP: dataplane.XDPConfig{PinDir: pins, MaxFlows: 4096},
		},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	to := func(port uint16) lab.Stream {
		return lab.Stream{Frames: [][]byte{frame.Sized(60, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
			frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: 9, Dst: port})}}
	}
	snd, err := w.B.NewSender([]lab.Stream{to(1001), to(1002), to(2001), to(2002)}, lab.SenderOptions{Rate: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	ctx, enough := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer enough()
	wg.Go(func() {
		if err := snd.Run(ctx, 0); err != nil {
			t.Error(err)
		}
	})
	r, calls, kills, cut := seed.Rand(t), 0, 0, 0
	at := 0
	names := func() []string {
		var out []string
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			placed, err := c.Placements(t.Context())
			for _, p := range placed {
				out = append(out, fmt.Sprint(p.Flow.Name, p.Flow.Match, p.Flow.Action))
			}
			if err == nil {
				slices.Sort(out)
				return out
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	want := func(i int) []string {
		var out []string
		for _, f := range sets[i] {
			out = append(out, fmt.Sprint(f.Name, f.Match, f.Action))
		}
		slices.Sort(out)
		return out
	}
	for kills < 5 {
		info, err := c.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.PID == 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		restarts := c.Restarts()
		time.AfterFunc(time.Duration(r.IntN(30_000))*time.Microsecond, func() { _ = syscall.Kill(info.PID, syscall.SIGKILL) })
		for {
			d, err := c.SetFlows(t.Context(), sets[1-at], dataplane.SetOptions{Renames: renames[1-at]})
			if calls++; err == nil {
				if len(d.Renamed) != 1 {
					t.Fatalf("difference\n%s", d)
				}
				at = 1 - at
				continue
			}
			if !errors.Is(err, dataplane.ErrUnavailable) {
				t.Fatal(err)
			}
			cut++
			break
		}
		for end := time.Now().Add(60 * time.Second); c.Restarts() == restarts; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the plugin does not come back")
			}
		}
		kills++
		if got := names(); !slices.Equal(got, want(at)) {
			t.Fatalf("after kill %d flows are\n%q, want\n%q", kills, got, want(at))
		}
	}
	enough()
	wg.Wait()
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := snd.Sent()
	rd, err := shm.OpenReader(mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	totals := map[string]uint64{"kept": sent[0].Packets, sets[at][1].Name: sent[1].Packets}
	for _, name := range slices.Sorted(maps.Keys(totals)) {
		var v shm.Value
		for end := time.Now().Add(20 * time.Second); v.Packets != totals[name]; time.Sleep(5 * time.Millisecond) {
			h, err := rd.Lookup(name)
			if err == nil {
				var counter shm.HandleCounter
				if counter, err = rd.Counter(h); err == nil {
					v, err = counter.Load()
				}
			}
			if time.Now().After(end) {
				t.Errorf("%s: %d packets (%v), want %d", name, v.Packets, err, totals[name])
				break
			}
		}
	}
	entries, err := rd.Entries()
	if err != nil || len(entries) != 4 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	for _, en := range entries {
		if _, exact := totals[en.Name]; exact && en.Continuity.Discontinuities != 0 {
			t.Errorf("%s: %d discontinuities", en.Name, en.Continuity.Discontinuities)
		}
	}
	t.Logf("%d calls, %d kills, %d of them within a call; %v sent", calls, kills, cut, sent)
}
