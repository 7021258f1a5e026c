package ibvtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The variables of the environment. The kernel reads them when libibverbs lists the devices, but not in a set-id program.
const (
	// EnvDevices names the devices as Env.Devices does, for programs that add devices to an inherited environment.
	EnvDevices = "FLOWTALLY_IBVTEST_DEVICES"
	// EnvSysfs names a directory in which the kernel makes a sysfs for the libraries of the host. Who sets it removes it.
	EnvSysfs      = "FLOWTALLY_IBVTEST_SYSFS"
	envFail       = "FLOWTALLY_IBVTEST_FAIL"
	envDelay      = "FLOWTALLY_IBVTEST_DELAY"
	envWithout    = "FLOWTALLY_IBVTEST_WITHOUT"
	envControl    = "FLOWTALLY_IBVTEST_CONTROL"
	envStatistics = "FLOWTALLY_IBVTEST_STATISTICS"
	envMutant     = "FLOWTALLY_IBVTEST_MUTANT"

	envCompCntrMax = "FLOWTALLY_IBVTEST_COMP_CNTR_MAX"
	envCompCntrOps = "FLOWTALLY_IBVTEST_COMP_CNTR_OPS"
)

// envPaths allows a confined plugin what only the kernel in software needs: making files in the directory for temporary
// files, and opening Control and Statistics.
const envPaths = "FLOWTALLY_PLUGIN_PATHS"

// Env configures the kernel of a process. The zero value has no device.
type Env struct {
	Devices    []Device // a device without its netdev is not listed
	Fail       []Fault
	Delay      []Delay  // added to the verb's own time
	Without    []string // counters, flows, dont_trap, egress, raw, devx, comp_cntr; in the shim efadv, cq_ring. For one device: "mlx5_0/flows"
	Control    string   // path of a FIFO made by NewControl
	Statistics string   // path of a file for ReadStatistics
	Mutant     string   // makes the uverbs kernel misbehave: "wrong_handle"

	CompCntrMax []string // the largest value of completion counters, "0xffff"; for one device: "mlx5_0/0xffff"; default 2^48-1
	CompCntrOps []string // the operations they can count, "send" to "remote_rdma_write"; for one device: "mlx5_0/send"; default all
}

// Device is a device of the software NIC.
type Device struct {
	Name   string // "mlx5_0", "efa_0": the beginning is the driver
	Netdev string // its flows match the packets of this netdev
}

// Fault makes calls fail, from number From to number To. The first call has number 1. From 0 means the first,
// and To 0 means no end. Errno is the name or number of an errno, for example "EIO". With "ABORT" the call crashes the
// process, and with "EXIT" it ends the process with status 0.
type Fault struct {
	Device   string // "": any
	Verb     string // the kernel's name, or the verb's in the shim: "COUNTERS_READ", "ibv_post_send"
	Errno    string
	From, To int
}

func (f Fault) String() string {
	s := prefix(f.Device) + f.Verb + "=" + f.Errno
	if f.From > 1 || f.To > 0 {
		s += fmt.Sprintf("@%d", max(f.From, 1))
	}
	if f.To > 0 {
		s += fmt.Sprintf("-%d", f.To)
	}
	return s
}

// Delay makes each call of a verb take longer. With the verb "WQE" it instead delays the completion of each posted send,
// which then comes from a thread of the library.
type Delay struct {
	Device string // "": any
	Verb   string
	Time   time.Duration
}

func (d Delay) String() string {
	return fmt.Sprintf("%s%s=%dns", prefix(d.Device), d.Verb, d.Time.Nanoseconds())
}

func prefix(device string) string {
	if device == "" {
		return ""
	}
	return device + "/"
}

// Environ returns the environment of e in the form of os.Environ. It sets every variable, so a process inherits none.
func (e Env) Environ() []string {
	devices := make([]string, len(e.Devices))
	for i, d := range e.Devices {
		devices[i] = d.Name + "=" + d.Netdev
	}
	paths := []string{os.TempDir()}
	for _, file := range []string{e.Control, e.Statistics} {
		if file != "" {
			paths = append(paths, filepath.Dir(file))
		}
	}
	return []string{
		EnvDevices + "=" + strings.Join(devices, ","),
		envFail + "=" + join(e.Fail),
		envDelay + "=" + join(e.Delay),
		envWithout + "=" + strings.Join(e.Without, ","),
		envControl + "=" + e.Control,
		envStatistics + "=" + e.Statistics,
		envMutant + "=" + e.Mutant,
		envCompCntrMax + "=" + strings.Join(e.CompCntrMax, ","),
		envCompCntrOps + "=" + strings.Join(e.CompCntrOps, ","),
		envPaths + "=" + strings.Join(paths, string(filepath.ListSeparator)),
	}
}

// Set sets all variables of e by calling set, for example os.Setenv or the Setenv of a testing.T.
func (e Env) Set(set func(name, value string)) {
	for _, v := range e.Environ() {
		name, value, _ := strings.Cut(v, "=")
		set(name, value)
	}
}

func join[T fmt.Stringer](items []T) string {
	s := make([]string, len(items))
	for i, it := range items {
		s[i] = it.String()
	}
	return strings.Join(s, ",")
}

// Control changes a device at run time. It is the writing end of a FIFO, which a thread of the library reads, so a
// command takes effect some moments later.
type Control struct {
	path string
	file *os.File
}

// NewControl makes the FIFO at path, for Env.Control.
func NewControl(path string) (*Control, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("making the control FIFO: %w", err)
	}
	if err := mkfifo(path); err != nil {
		return nil, fmt.Errorf("making the control FIFO %s: %w", path, err)
	}
	// Open the FIFO for reading too. Otherwise opening it would wait for the library, and a command written before
	// the library reads would be lost.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the control FIFO: %w", errors.Join(err, os.Remove(path)))
	}
	return &Control{path, f}, nil
}

// Path returns the value for Env.Control.
func (c *Control) Path() string { return c.path }

// Fatal sends IBV_EVENT_DEVICE_FATAL. Afterwards every command on an open context returns EIO.
func (c *Control) Fatal(device string) error { return c.send("fatal", device) }

// Remove acts like Fatal and takes the device off the list.
func (c *Control) Remove(device string) error { return c.send("remove", device) }

// Silent makes every command on the device's contexts return EIO, without sending an event. The device stays listed,
// and memory written by it keeps its last values.
func (c *Control) Silent(device string) error { return c.send("silent", device) }

// Return puts the device back on the list, so that programs can open it again. Earlier contexts stay dead.
func (c *Control) Return(device string) error { return c.send("return", device) }

// PortDown sends IBV_EVENT_PORT_ERR.
func (c *Control) PortDown(device string) error { return c.send("port_down", device) }

// PortUp sends IBV_EVENT_PORT_ACTIVE, and undoes PortDown.
func (c *Control) PortUp(device string) error { return c.send("port_up", device) }

func (c *Control) send(word, device string) error {
	if _, err := fmt.Fprintf(c.file, "%s %s\n", word, device); err != nil {
		return fmt.Errorf("control FIFO %s: sending %s %s: %w", c.path, word, device, err)
	}
	return nil
}

// Close closes and removes the FIFO. It is idempotent.
func (c *Control) Close() error {
	err := errors.Join(c.file.Close(), os.Remove(c.path))
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
