package flowrows

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

func TestMain(m *testing.M) {
	uverbs.Preload()
	code := m.Run()
	if err := uverbs.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// uverbs is below the host's RDMA libraries, for the rows with a NIC.
var uverbs soft.Kernel

func TestRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	uverbs.Need(t)
	bin := rowtest.Programs(t)
	rows := slices.DeleteFunc(Rows(bin), func(r bench.Row) bool {
		return strings.HasPrefix(r.Name, "hooks.") || strings.HasPrefix(r.Name, "set.") // below, with less
	})
	rowtest.Measure(t, rowtest.NotInBenchShort(t, rows))
}

// TestStartThatTheLoadOfTheHostEndedIsMadeAgain: the bench asks for the instances again, and no other error is forgotten.
func TestStartThatTheLoadOfTheHostEndedIsMadeAgain(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	for _, tt := range []struct {
		says      string
		disturbed bool
	}{
		{"configuring plugin: no reply in time, so it was killed", true},
		{"no such file", false},
	} {
		bin := t.TempDir()
		for _, name := range []string{"flowtally", "flowtally-plugin"} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho '"+tt.says+"' >&2\nexit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		s := &site{bin: bin, made: make(map[kind]pair)}
		err := s.make(t.Context(), running)
		if err == nil || !strings.Contains(err.Error(), tt.says) || errors.Is(err, bench.ErrDisturbed) != tt.disturbed {
			t.Errorf("%s: got %v", tt.says, err)
		}
		if _, kept := s.made[running]; kept == tt.disturbed {
			t.Errorf("%s: the error is kept: %t", tt.says, kept)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSetRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	bin := rowtest.Programs(t)
	s := &site{bin: bin, made: make(map[kind]pair)}
	defer s.close()
	for _, r := range s.setRows(100, "100", false, 0, 0, 0) {
		sides, err := r.Open(t.Context(), bench.Env{})
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		for _, side := range []bench.Side{sides.Ours, sides.Ref} {
			if ns, err := side(t.Context(), 1); err != nil || ns <= 0 {
				t.Errorf("%s: %v ns, %v", r.Name, ns, err)
			}
		}
		if sides.Close != nil {
			if err := sides.Close(); err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
	}
}

// The rows of 240 interfaces take minutes. They differ from these in the number alone.
func TestHookRowsAreMeasured(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	s := &site{made: make(map[kind]pair)}
	rows := slices.DeleteFunc(s.hookRows(12, 4), func(r bench.Row) bool {
		return strings.HasPrefix(r.Name, "hooks.idle.") // a minute of looking on
	})
	rowtest.Measure(t, rows)
}
