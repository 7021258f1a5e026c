package xdp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/probe"
)

// Only some errors of the kernel mean a definite no. The fix must suit the cause.
func TestPermissionIsConclusive(t *testing.T) {
	for _, c := range []struct {
		err error
		fix string // "": inconclusive
	}{
		{unix.EPERM, "run as root"},
		{fmt.Errorf("loading: %w", unix.EACCES), "run as root"},
		{fmt.Errorf("loading: %w", ebpf.ErrNotSupported), "kernel"},
		{unix.ENOMEM, ""},
		{nil, ""},
	} {
		got := permission(c.err)
		var no *probe.UnsupportedError
		switch {
		case c.fix == "":
			if got != c.err {
				t.Errorf("%v became %v", c.err, got)
			}
		case !errors.As(got, &no) || !strings.Contains(no.Fix, c.fix):
			t.Errorf("%v became %#v, want a fix with %q", c.err, got, c.fix)
		}
	}
}
