//go:build vm

package guest

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/shm"
)

// flows are ingress flows on an interface, in the order of their precedence.
func flows(t *testing.T, iface string, matches ...string) []flow.Flow {
	t.Helper()
	var fs []flow.Flow
	for i, text := range matches {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, flow.Flow{Name: fmt.Sprintf("f%d", i), Match: m, Priority: uint16(i), Interface: iface})
	}
	return fs
}

// counted reads the mirror of an instance, as any reader would, until every value was
// sampled after the call.
func counted(t *testing.T, svc dataplane.Service, fs []flow.Flow) []shm.Value {
	t.Helper()
	info, err := svc.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := shm.OpenReader(info.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var handles []shm.Handle
	for _, f := range fs {
		h, err := r.Lookup(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	after, deadline := shm.Now(), time.Now().Add(patience)
	for {
		var s shm.Snapshot
		err := r.SnapshotOf(&s, handles)
		fresh := err == nil
		for _, v := range s.List {
			fresh = fresh && v.SampledAt > after
		}
		if fresh {
			return s.List
		}
		if time.Now().After(deadline) {
			t.Fatalf("the mirror shows nothing newer: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
