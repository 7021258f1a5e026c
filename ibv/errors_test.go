package ibv

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// Wrapping must not hide the sentinels, and no errno may match a sentinel of another.
func TestErrorMatchesTheSentinelsOfItsErrno(t *testing.T) {
	all := []error{probe.ErrNotSupported, ErrBusy, ErrClosed, ErrDeviceGone, ErrNoDevice, fs.ErrPermission}
	for _, c := range []struct {
		err  Error
		want []error
	}{
		{Error{Errno: syscall.EOPNOTSUPP}, []error{probe.ErrNotSupported}},
		{Error{Errno: syscall.ENOTSUP}, []error{probe.ErrNotSupported}},
		{Error{Errno: syscall.ENOSYS}, []error{probe.ErrNotSupported}},
		{Error{Errno: syscall.EPROTONOSUPPORT}, []error{probe.ErrNotSupported}},
		{Error{Errno: syscall.EBUSY}, []error{ErrBusy}},
		{Error{Errno: syscall.ENODEV}, []error{ErrDeviceGone}},
		{Error{Errno: syscall.EIO}, nil},
		{Error{Errno: syscall.EIO, gone: true}, []error{ErrDeviceGone}},
		{Error{Errno: syscall.EPERM}, []error{fs.ErrPermission}},
		{Error{Errno: syscall.EINVAL}, nil},
		{Error{Errno: syscall.ENOMEM}, nil},
	} {
		err := fmt.Errorf("placing web: %w", &c.err)
		if !errors.Is(err, c.err.Errno) {
			t.Errorf("%v is not its own errno", err)
		}
		for _, s := range all {
			want := false
			for _, w := range c.want {
				want = want || w == s
			}
			if errors.Is(err, s) != want {
				t.Errorf("errors.Is(%v, %q) is %v", err, s, !want)
			}
		}
	}
}

func TestErrorNamesVerbDeviceAndErrno(t *testing.T) {
	for _, c := range []struct {
		err  Error
		want string
	}{
		{Error{Verb: "ibv_create_flow", Device: "mlx5_0", Errno: syscall.EPERM}, "mlx5_0: calling ibv_create_flow: operation not permitted"},
		{Error{Verb: "ibv_get_device_list", Errno: syscall.ENOMEM}, "calling ibv_get_device_list: cannot allocate memory"},
		{Error{Verb: "ibv_read_counters", Device: "mlx5_0", Errno: syscall.EIO, gone: true}, "mlx5_0: calling ibv_read_counters: input/output error: the device is gone"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
