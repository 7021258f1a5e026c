package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

func TestReportPrintsTheErrorAndItsNextStep(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"none", nil, exitOK, ""},
		{"without a hint", errors.New("mirror x: boom"), exitFailed, "flowtally: mirror x: boom\n"},
		{
			"hint of a sentinel", fmt.Errorf("adding flow %q: %w", "a", dataplane.ErrExists), exitFailed,
			"flowtally: adding flow \"a\": flow exists\n  try: another name, or: flowtally flows remove NAME\n",
		},
		{
			"the more specific hint of two", fmt.Errorf("%w: %w", dataplane.ErrInUse, shm.ErrInUse), exitFailed,
			"flowtally: in use by another instance: mirror is in use by another writer\n  try: another --instance, or stop the one that runs\n",
		},
		{"its own hint before the table's", withHint(fmt.Errorf("x: %w", dataplane.ErrExists), "do %d", 1), exitFailed, "flowtally: x: flow exists\n  try: do 1\n"},
		{
			"fix of a probe", fmt.Errorf("attaching: %w", &probe.UnsupportedError{Feature: "native XDP", Object: "eth1", Reason: "driver has none", Fix: "mode: generic"}), exitFailed,
			"flowtally: attaching: native XDP on eth1: not supported: driver has none\n  try: mode: generic\n",
		},
		{"usage", usagef("--interval 1ns: at least 1ms"), exitUsage, "flowtally: --interval 1ns: at least 1ms\n"},
		{"degraded", exitError(exitDegraded), exitDegraded, ""},
		{"degraded, wrapped", fmt.Errorf("x: %w", exitError(exitDegraded)), exitDegraded, ""},
		{"several lines", errors.New("a\nb\n"), exitFailed, "flowtally: a\nb\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if code := report(&b, tt.err, nil); code != tt.code || b.String() != tt.want {
				t.Errorf("code %d, %q; want %d, %q", code, b.String(), tt.code, tt.want)
			}
		})
	}
}

// A line of the table would be unreachable after a more general sentinel.
func TestEachSentinelGetsItsOwnHint(t *testing.T) {
	for _, h := range hints {
		if got := hint(fmt.Errorf("object: doing: %w", h.is)); got != h.try || got == "" {
			t.Errorf("%v: hint %q, want %q", h.is, got, h.try)
		}
	}
	if got := hint(errors.New("x")); got != "" {
		t.Errorf("hint %q for an error that has none", got)
	}
}
