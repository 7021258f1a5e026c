//go:build !linux || !cgo

package ibv

import (
	"errors"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

func TestLoadWithoutCgoIsNotSupported(t *testing.T) {
	_, err := Load(Options{})
	var u *probe.UnsupportedError
	if !errors.As(err, &u) || u.Object != "libibverbs" || !strings.Contains(u.Reason, "cgo") || u.Fix == "" {
		t.Errorf("got %v, want a reason that names cgo, and a fix", err)
	}
}
