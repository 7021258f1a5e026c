package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/probe"
)

// Of a start that fails, the first line and the next step are about what has to be mended: on most
// hosts that is not that they have no RDMA.
func TestNothingCounts(t *testing.T) {
	verbs := &probe.UnsupportedError{Feature: "RDMA", Object: "this host", Reason: "it has none", Fix: "modprobe ib_uverbs"}
	none := &absentError{verbs}
	broken := &probe.UnsupportedError{Feature: "RDMA flows", Object: "nic0", Reason: "its firmware has none", Fix: "update it"}
	missing := dataplane.ErrNotFound
	for _, tt := range []struct {
		name    string
		reasons []error
		first   string
		fix     string // "": the table of the command line has one
	}{
		{"only RDMA was asked", []error{none}, none.Error(), verbs.Fix},
		{"the interface is missing", []error{none, missing}, missing.Error(), ""},
		{"a card that cannot", []error{broken, missing}, broken.Error(), broken.Fix},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := nothingCounts(tt.reasons)
			lines := strings.Split(err.Error(), "\n")
			if lines[0] != tt.first || len(lines) != len(tt.reasons) {
				t.Errorf("it says:\n%v", err)
			}
			var u *probe.UnsupportedError
			if found := errors.As(err, &u); found != (tt.fix != "") || found && u.Fix != tt.fix {
				t.Errorf("the next step is of %v", u)
			}
			for _, r := range tt.reasons {
				if !strings.Contains(err.Error(), r.Error()) {
					t.Errorf("%v is not said", r)
				}
			}
		})
	}
}
