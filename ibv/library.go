package ibv

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// Options names the libraries to open. The zero value opens the libraries of the system.
type Options struct {
	Library string       // path of libibverbs; "": libibverbs.so.1 as the loader finds it
	MLX5    string       // path of libmlx5; "": libmlx5.so.1 as the loader finds it
	EFA     string       // path of libefa; "": libefa.so.1 as the loader finds it
	Logger  *slog.Logger // nil discards the log
	Calls   Calls        // observes every call of a verb (optional)
}

// fix returns the next step if libmlx5 or libefa cannot be opened. Usually this is to install a
// package. But the system's library fits only the system's libibverbs (IBVERBS_PRIVATE). If Options
// name another libibverbs, a package does not help, and the option key must name its library too.
func (o Options) fix(key, soname, install string) string {
	if o.Library == "" {
		return install
	}
	return "set " + key + " to the " + soname + " of the release that " + o.Library + " is of: the system's own fits the system's libibverbs alone"
}

// Library is an open libibverbs.
type Library struct {
	object
	v    verbs
	opts Options
	log  *slog.Logger
}

// Load opens the library. If the file is absent or is not libibverbs, it returns a
// *[probe.UnsupportedError] with the name of the file and the package to install.
//
// If root runs the program, or if it has more privileges than its caller, Load returns
// [ErrUntrusted] for a named file that another user can write: loading the file would let this user
// run code with the program's privileges.
func Load(o Options) (*Library, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Library{opts: o, log: o.Logger}

	loading := l.opts.begin("", "dlopen of libibverbs")
	v, err := loadVerbs(o.Library)
	loading.end()
	if err != nil {
		return nil, err
	}

	l.v = v
	l.kind = "libibverbs"
	l.log.Debug("libibverbs is open", "path", l.path())
	return l, nil
}

// CheckInstalled returns nil if the libibverbs and the libmlx5 of the options can be loaded. If one is absent, the error is
// a *[probe.UnsupportedError] with the package to install.
func CheckInstalled(o Options) error {
	l, err := Load(o)
	if err != nil {
		return err
	}
	m, err := loadMLX5("RDMA", o)
	if err == nil {
		m.unload()
	}
	return errors.Join(err, l.Close())
}

// path returns the path of the loaded file, or "" if the library is closed.
func (l *Library) path() string {
	if l.use() != nil {
		return ""
	}
	defer l.done()

	return l.v.path()
}

// has reports whether the library exports the symbol, in any version. The flow and counter verbs
// have no symbols, so only [Probe] of a device finds them.
func (l *Library) has(symbol string) bool {
	if l.use() != nil {
		return false
	}
	defer l.done()

	return l.v.has(symbol)
}

// Devices returns the current device list. On a kernel without user-space verbs the error is a
// *[probe.UnsupportedError].
func (l *Library) Devices() ([]Device, error) {
	if err := l.use(); err != nil {
		return nil, err
	}
	defer l.done()
	const verb = "ibv_get_device_list"
	defer l.opts.begin("", verb).end()

	list, errno := l.v.devices()
	switch errno {
	case 0:
		return list, nil
	case syscall.ENOSYS:
		return nil, fmt.Errorf("%w: %w", &probe.UnsupportedError{
			Feature: "RDMA",
			Object:  "this host",
			Reason:  "the kernel has no user-space verbs (no /sys/class/infiniband_verbs)",
			Fix:     "modprobe ib_uverbs, and the driver of the RDMA device",
		}, &Error{Verb: verb, Errno: errno})
	}
	return nil, &Error{Verb: verb, Errno: errno}
}

// Open opens a device by its name in the list, for example "mlx5_0". It returns [ErrNoDevice] if the
// list has no such device.
func (l *Library) Open(name string) (*Context, error) {
	c := &Context{
		lib:        l,
		v:          l.opts.name(l.v, name),
		qpByHandle: make(map[handle]*QP),
		cqByHandle: make(map[handle]*CQ),
	}

	var asyncFD int
	err := c.init("context", name, func() (handle, error) {
		h, fd, errno := c.v.openDevice(name)
		if errno == syscall.ENODEV {
			return 0, &noDeviceError{name}
		}
		asyncFD = fd
		return h, c.err("ibv_open_device", errno)
	}, &l.object)
	if err != nil {
		return nil, err
	}

	if c.events, err = newEventFile(asyncFD, name); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close unloads the library. If an object could not be destroyed, the library stays in memory, because
// its code may still run for this object.
func (l *Library) Close() error {
	return l.close(func(handle) error {
		l.v.unload(l.abandoned)
		return nil
	})
}

// noDeviceError is ErrNoDevice with the name of the device.
type noDeviceError struct{ name string }

func (e *noDeviceError) Error() string {
	return "opening " + e.name + ": " + ErrNoDevice.Error() + ": see rdma link"
}

func (e *noDeviceError) Is(target error) bool { return target == ErrNoDevice }
