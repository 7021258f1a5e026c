package engine

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// The error of a failed start names the cause that the user has to mend. On most hosts the lack of RDMA is not
// that cause.
func TestAStartThatFailsNamesTheCauseToMend(t *testing.T) {
	verbs := &probe.UnsupportedError{Feature: "RDMA", Object: "this host", Reason: "it has none", Fix: "modprobe ib_uverbs"}
	none := backend.NoDevice(verbs)
	broken := &probe.UnsupportedError{Feature: "RDMA flows", Object: "nic0", Reason: "its firmware has none", Fix: "update it"}
	missing := dataplane.ErrNotFound
	for _, tt := range []struct {
		name    string
		reasons []error
		says    string
		fix     string // "": the table of the command line has one
	}{
		{"only RDMA was asked", []error{none}, none.Error(), verbs.Fix},
		{"the interface is missing", []error{none, missing}, missing.Error(), ""},
		{"a card that cannot", []error{broken, missing}, broken.Error() + "\n" + missing.Error(), broken.Fix},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := nothingCounts(tt.reasons)
			if err.Error() != tt.says {
				t.Errorf("it says:\n%v", err)
			}
			var u *probe.UnsupportedError
			if found := errors.As(err, &u); found != (tt.fix != "") || found && u.Fix != tt.fix {
				t.Errorf("the next step is of %v", u)
			}
		})
	}
}

// TestRejectionsShowEveryReason: where one of several joined errors is "not supported", the other ones
// are shown too. The user can often mend the other one.
func TestRejectionsShowEveryReason(t *testing.T) {
	no := &probe.UnsupportedError{Feature: "DevX", Object: "mlx5_0", Reason: "the device is not one of mlx5"}
	cannot := func(device string, verbs, devx error) error { // as rdma says it
		return fmt.Errorf("%s cannot count flows: %w; %w", device, verbs, devx)
	}
	verbs := func(errno error) error { return fmt.Errorf("mlx5_0: calling ibv_create_qp: %w", errno) }
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"not supported", fmt.Errorf("opening mlx5_0 of eth0: %w", no), no.Error()},
		{"not supported, and no privilege for verbs", cannot("mlx5_0", verbs(syscall.EPERM), no),
			"mlx5_0 cannot count flows: mlx5_0: calling ibv_create_qp: operation not permitted; " + no.Error()},
		{"not supported, and no memory for verbs", fmt.Errorf("backend rdma: %w", cannot("mlx5_0", verbs(syscall.ENOMEM), no)),
			"mlx5_0 cannot count flows: mlx5_0: calling ibv_create_qp: cannot allocate memory; " + no.Error()},
		{"of two devices", errors.Join(no, verbs(syscall.EINVAL)), no.Error() + "; mlx5_0: calling ibv_create_qp: invalid argument"},
		{"neither", verbs(syscall.EIO), "mlx5_0: calling ibv_create_qp: input/output error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &choices{standard: "rdma", absent: map[string]error{"rdma": tt.err}}
			if _, refused := s.find(""); len(refused) != 1 || refused[0].Reason != tt.want {
				t.Errorf("a flow shows %+v, want %q", refused, tt.want)
			}
		})
	}
}

// TestInstanceHasAName: a configuration without one makes the instance "default",
// with the mirror where readers look for it.
func TestInstanceHasAName(t *testing.T) {
	cfg := withDefaults(dataplane.Config{})
	if cfg.Instance != "default" || cfg.Mirror.Path != shm.DefaultPath("default") || cfg.Backend != "auto" {
		t.Errorf("instance %q at %s with backend %q", cfg.Instance, cfg.Mirror.Path, cfg.Backend)
	}
}
