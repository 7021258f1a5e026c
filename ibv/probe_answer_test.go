package ibv

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// An error with a next step of its own keeps it.
func TestRefusalForLackOfPrivilegeNamesThePrivilege(t *testing.T) {
	own := &probe.UnsupportedError{Feature: "flows", Reason: "old firmware", Fix: "update it"}
	for _, c := range []struct {
		err error
		fix string
	}{
		{syscall.EPERM, fixRaw},
		{fmt.Errorf("creating a flow: %w", syscall.EPERM), fixRaw},
		{fmt.Errorf("creating a flow: %w: %w", own, syscall.EPERM), own.Fix},
		{syscall.ENOMEM, ""},
		{nil, ""},
	} {
		p := &prober{device: "nic0"}
		p.answer("flows", c.err)
		if len(p.results) != 1 || p.results[0].Fix != c.fix {
			t.Errorf("%v: results %+v, want the fix %q", c.err, p.results, c.fix)
		}
	}
}
