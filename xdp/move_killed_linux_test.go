package xdp

import (
	"context"
	"log/slog"
	"runtime"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// endAt ends the goroutine that logs a message.
type endAt struct {
	slog.Handler
	message string
}

func (endAt) Enabled(context.Context, slog.Level) bool { return true }

func (e endAt) Handle(_ context.Context, r slog.Record) error {
	if r.Message == e.message {
		runtime.Goexit()
	}
	return nil
}

// A process is killed in a move from XDP to TCX, while the program that marks is the only one. Packets that it cannot mark pass
// uncounted until the next process, which learns of the gap. A move that marks all packets leaves none.
func TestAKillInAMoveLeavesAGap(t *testing.T) {
	need.TCX(t)
	w, o := testWire(t), Options{PinDir: pinDir(t), MaxRules: 1024, Logger: slog.New(endAt{slog.DiscardHandler, "waiting for a grace period"})}
	rs, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	id := floodRules(t, rs, 1)[0]
	check := func(doing string, gap bool) {
		t.Helper()
		if got := rs.Attachments(); len(got) != 1 || got[0].Gap != gap {
			t.Fatalf("%s: got %+v, want one hook, with a gap: %t", doing, got, gap)
		}
	}
	a := attach(t, rs, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	check("attached", true)
	rs.hooks[hookKey{a[0].Port, HookIngress}].unmarked = 1 // as a move that fails leaves it
	rs.Declared(a...)
	check("declared without the unmarked packets", true)
	a = attach(t, rs, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	rs.Declared(a...)
	check("declared", false)
	for _, to := range []Mode{ModeTCX, ModeNative} {
		attach(t, rs, w.Near, AttachOptions{Mode: to, Ingress: true})
		check("moved", false)
	}
	rs.grace.outer.Close() // the grace period of the move fails, which is logged
	err = w.Near.NS.Do(func() error {
		_, err := rs.Attach(w.Near.Name, AttachOptions{Mode: ModeTCX, Ingress: true})
		t.Errorf("the move came to an end: %v", err)
		return err
	})
	if err == nil {
		t.Fatal("nothing ended the move")
	}
	marking, err := rs.hooks[hookKey{a[0].Port, HookIngress}].prog.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer marking.Close()
	if err := rs.Close(); err != nil {
		t.Fatal(err)
	}
	runUnmarked(t, marking)
	rs = openTest(t, o)
	if n := readOne(t, rs, id).Packets; n != 0 {
		t.Errorf("%d packets are counted", n)
	}
	check("adopted", true)
	rs.Declared(attach(t, rs, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})...)
	check("declared by the next process", false)
}
