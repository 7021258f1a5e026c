package ibvtest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Numbers of the interface (src/uverbs/uverbs_abi.h).
const (
	uvMLX5, uvEFA = 1, 17

	objDevice, objPD, objCQ, objQP, objMR, objFlow, objCounters, objAsync, objCompCntr = 0, 1, 3, 4, 7, 9, 15, 16, 19

	invokeWrite, queryPort, getContext = 0, 2, 3

	uhwIn, uhwOut = 0x1000, 0x1001
)

// uvClient is a running testdata/uverbs/client.c over the kernel.
type uvClient struct {
	t *testing.T
	*lab.Lines
}

// A frontEnd is the command of a client over one of the kernel's front ends.
type frontEnd func(libs ibvtest.Libs, client string) *exec.Cmd

func preloaded(libs ibvtest.Libs, client string) *exec.Cmd {
	cmd := exec.Command(client)
	cmd.Env = []string{"LD_PRELOAD=" + libs.Kernel}
	return cmd
}

func served(libs ibvtest.Libs, client string) *exec.Cmd { return exec.Command(libs.Server, client) }

// overFrontEnds runs a test over both.
func overFrontEnds(t *testing.T, test func(*testing.T, frontEnd)) {
	t.Run("preload", func(t *testing.T) { test(t, preloaded) })
	t.Run("seccomp", func(t *testing.T) {
		need.Command(t, "seccomp", libraries(t, "strict", "-Werror").Server, "true")
		test(t, served)
	})
}

// newUVClient starts a client with the devices mlx5_0 and efa_0 and opens device number.
func newUVClient(t *testing.T, front frontEnd, e ibvtest.Env, number int) *uvClient {
	t.Helper()
	libs := libraries(t, "strict", "-Werror")
	program := filepath.Join(t.TempDir(), "client")
	if out, err := exec.Command("gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", program, "testdata/uverbs/client.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.Devices = []ibvtest.Device{{Name: "mlx5_0", Netdev: "lo"}, {Name: "efa_0", Netdev: "lo"}}
	cmd := front(libs, program)
	cmd.Env = slices.Concat(os.Environ(), cmd.Env, e.Environ())
	c := &uvClient{t, lab.StartLines(t, cmd)}
	if fd := c.Say("open %d", number); strings.HasPrefix(fd, "-") {
		t.Fatalf("opening uverbs%d: %s", number, fd)
	}
	return c
}

// uvResult is an attribute after a call.
type uvResult struct {
	flags int
	value uint64
	out   string
}

// call makes a call and returns its errno, and the attributes in their order.
func (c *uvClient) call(object, method, driver int, header string, attrs ...string) (syscall.Errno, []uvResult) {
	c.t.Helper()
	words := strings.Fields(c.Say("call %d %d %d %s %s", object, method, driver, header, strings.Join(attrs, " ")))
	err, _ := strconv.Atoi(words[0])
	var all []uvResult
	for _, w := range words[1:] {
		f := strings.Split(w, ",")
		flags, _ := strconv.Atoi(f[1])
		value, _ := strconv.ParseUint(f[2], 10, 64)
		all = append(all, uvResult{flags, value, f[3]})
	}
	return syscall.Errno(err), all
}

func value(id, len int, v uint64) string { return fmt.Sprintf("%d,1,0,%d,v,%d", id, len, v) }
func output(id, len int) string          { return fmt.Sprintf("%d,1,0,%d,o,", id, len) }
func input(id int, hex string) string    { return fmt.Sprintf("%d,1,0,%d,p,%s", id, len(hex)/2, hex) }
func handle(id int, h uint64) string     { return value(id, 0, h) }

// write is INVOKE_WRITE of a command with its structures.
func (c *uvClient) write(driver int, cmd uint32, in string, out int) (syscall.Errno, []uvResult) {
	c.t.Helper()
	attrs := []string{value(2, 8, uint64(cmd)), output(1, out), input(uhwIn, ""), output(uhwOut, 64)}
	if len(in) > 16 {
		attrs = append(attrs, input(0, in))
	} else {
		attrs = append(attrs, value(0, len(in)/2, 0))
	}
	return c.call(objDevice, invokeWrite, driver, "ok", attrs...)
}

// context makes the context of mlx5: 16 doorbells, 4 of them of low latency.
func (c *uvClient) context() {
	c.t.Helper()
	if err, _ := c.call(objDevice, getContext, uvMLX5, "ok", input(uhwIn, "1000000004000000"+strings.Repeat("0", 48)), output(uhwOut, 72)); err != 0 {
		c.t.Fatalf("GET_CONTEXT: %v", err)
	}
}

// pd makes a protection domain and returns its handle.
func (c *uvClient) pd() uint64 {
	c.t.Helper()
	err, r := c.write(uvMLX5, 3, "0000000000000000", 4)
	if err != 0 {
		c.t.Fatalf("ALLOC_PD: %v", err)
	}
	return le32(r[1].out)
}

func le32(hex string) uint64 {
	v, _ := strconv.ParseUint(hex[6:8]+hex[4:6]+hex[2:4]+hex[0:2], 16, 32)
	return v
}

func hex32(v ...uint64) string {
	var s strings.Builder
	for _, x := range v {
		fmt.Fprintf(&s, "%02x%02x%02x%02x", byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return s.String()
}

// libibverbs never makes these calls. The errnos are those of the kernel's uverbs_ioctl.c,
// rdma_core.c, uverbs_cmd.c and uverbs_std_types_*.c.
func TestUverbsInvalidCallsReturnTheKernelsErrnos(t *testing.T) { overFrontEnds(t, uverbsErrnos) }

func uverbsErrnos(t *testing.T, front frontEnd) {
	c := newUVClient(t, front, ibvtest.Env{}, 0)
	if err, _ := c.write(uvMLX5, 3, "0000000000000000", 4); err != syscall.EINVAL {
		t.Errorf("ALLOC_PD before GET_CONTEXT: %v", err)
	}
	c.context()
	pd := c.pd()
	used := c.pd()
	err, mr := c.write(uvMLX5, 9, hex32(0, 0, 0, 0, 8, 0, 0, 0, used, 1), 12)
	if err != syscall.EFAULT {
		t.Errorf("REG_MR of memory that is not mapped: %v %v", err, mr)
	}
	const mandatory, optional = 1, 0
	port := value(0, 8, 1)
	any := func(id, flags, reserved, len int, kind string) string {
		return fmt.Sprintf("%d,%d,%d,%d,%s", id, flags, reserved, len, kind)
	}
	for _, test := range []struct {
		rule           string
		object, method int
		driver         int
		header         string
		attrs          []string
		want           syscall.Errno
	}{
		{"header at a bad address", objDevice, queryPort, uvMLX5, "fault", nil, syscall.EFAULT},
		{"wrong length of the header", objDevice, queryPort, uvMLX5, "length", nil, syscall.EINVAL},
		{"reserved word of the header", objDevice, queryPort, uvMLX5, "reserved", nil, syscall.EPROTONOSUPPORT},
		{"another driver's id", objDevice, queryPort, uvEFA, "ok", nil, syscall.EINVAL},
		{"unknown object", 99, 0, uvMLX5, "ok", nil, syscall.EPROTONOSUPPORT},
		{"unknown method", objPD, 9, uvMLX5, "ok", nil, syscall.EPROTONOSUPPORT},
		{"QUERY_PORT", objDevice, queryPort, uvMLX5, "ok", []string{port, output(1, 48)}, 0},
		{"mandatory attribute missing", objDevice, queryPort, uvMLX5, "ok", []string{port}, syscall.EINVAL},
		{"attribute twice", objDevice, queryPort, uvMLX5, "ok", []string{port, port, output(1, 48)}, syscall.EINVAL},
		{"unknown mandatory attribute", objDevice, queryPort, uvMLX5, "ok", []string{port, output(1, 48), any(77, mandatory, 0, 8, "v,0")}, syscall.EPROTONOSUPPORT},
		{"unknown optional attribute", objDevice, queryPort, uvMLX5, "ok", []string{port, output(1, 48), any(77, optional, 0, 8, "v,0")}, 0},
		{"reserved word of an attribute", objDevice, queryPort, uvMLX5, "ok", []string{port, any(1, mandatory, 256, 48, "o,")}, syscall.EINVAL},
		{"constant of 4 bytes", objDevice, queryPort, uvMLX5, "ok", []string{value(0, 4, 1), output(1, 48)}, syscall.EINVAL},
		{"constant above its range", objDevice, queryPort, uvMLX5, "ok", []string{value(0, 8, 1<<32), output(1, 48)}, syscall.EINVAL},
		{"port 0", objDevice, queryPort, uvMLX5, "ok", []string{value(0, 8, 0), output(1, 48)}, syscall.EINVAL},
		{"output too short", objDevice, queryPort, uvMLX5, "ok", []string{port, output(1, 40)}, syscall.EINVAL},
		{"output longer than the kernel's", objDevice, queryPort, uvMLX5, "ok", []string{port, output(1, 400)}, 0},
		{"output at a bad address", objDevice, queryPort, uvMLX5, "ok", []string{port, any(1, mandatory, 0, 48, "e,")}, syscall.EFAULT},
		{"second context", objDevice, getContext, uvMLX5, "ok", []string{input(uhwIn, "1000000004000000"+strings.Repeat("0", 48)), output(uhwOut, 72)}, syscall.EINVAL},
		{"INVOKE_WRITE without the command's structure", objDevice, invokeWrite, uvMLX5, "ok", []string{value(2, 8, 1)}, syscall.ENOSPC},
		{"INVOKE_WRITE of an unknown command", objDevice, invokeWrite, uvMLX5, "ok", []string{value(2, 8, 44)}, syscall.EOPNOTSUPP},
		{"handle that is not there", objPD, 0, uvMLX5, "ok", []string{handle(0, 4711)}, syscall.ENOENT},
		{"negative handle", objPD, 0, uvMLX5, "ok", []string{handle(0, 1<<63)}, syscall.EINVAL},
		{"handle of another type", objMR, 1, uvMLX5, "ok", []string{handle(0, pd)}, syscall.EINVAL},
		{"handle with a length", objPD, 0, uvMLX5, "ok", []string{value(0, 8, pd)}, syscall.EINVAL},
		{"descriptor that is not open", objCQ, 0, uvMLX5, "ok", []string{handle(0, 0), value(1, 4, 8), value(2, 8, 0), handle(3, 999), value(4, 4, 0), output(6, 4)}, syscall.EBADF},
		{"descriptor of another file", objCQ, 0, uvMLX5, "ok", []string{handle(0, 0), value(1, 4, 8), value(2, 8, 0), handle(3, 1), value(4, 4, 0), output(6, 4)}, syscall.EBADF},
		{"completion vector out of range", objCQ, 0, uvMLX5, "ok", []string{handle(0, 0), value(1, 4, 8), value(2, 8, 0), value(4, 4, 99), output(6, 4), output(uhwOut, 8)}, syscall.EINVAL},
		{"unknown flag of a CQ", objCQ, 0, uvMLX5, "ok", []string{handle(0, 0), value(1, 4, 8), value(2, 8, 0), value(4, 4, 0), value(5, 4, 1<<9), output(6, 4)}, syscall.EINVAL},
		{"structure longer than the kernel's, zero", objQP, 0, uvMLX5, "ok", []string{handle(0, 0), handle(2, pd), value(7, 8, 0), input(8, strings.Repeat("00", 24)), value(9, 8, 2), output(13, 20), output(14, 4)}, syscall.EINVAL},
		{"structure longer than the kernel's, not zero", objQP, 0, uvMLX5, "ok", []string{handle(0, 0), handle(2, pd), value(7, 8, 0), input(8, strings.Repeat("00", 20)+"01000000"), value(9, 8, 2), output(13, 20), output(14, 4)}, syscall.EOPNOTSUPP},
		{"structure too short", objQP, 0, uvMLX5, "ok", []string{handle(0, 0), handle(2, pd), value(7, 8, 0), input(8, strings.Repeat("00", 16)), value(9, 8, 2), output(13, 20), output(14, 4)}, syscall.EINVAL},
		{"QP of an unknown type", objQP, 0, uvMLX5, "ok", []string{handle(0, 0), handle(2, pd), value(7, 8, 0), input(8, strings.Repeat("00", 20)), value(9, 8, 7), output(13, 20), output(14, 4)}, syscall.EINVAL},
		{"completion counters of a device without them", objDevice, 8, uvMLX5, "ok", []string{output(0, 4), output(1, 8), output(2, 4)}, syscall.EOPNOTSUPP},
	} {
		err, got := c.call(test.object, test.method, test.driver, test.header, test.attrs...)
		if err != test.want {
			t.Errorf("%s: %v, want %v", test.rule, err, test.want)
		}
		for i, r := range got {
			if written := r.flags&2 != 0; test.rule == "QUERY_PORT" && written != (i == 1) {
				t.Errorf("%s: attribute %d: VALID_OUTPUT is %v", test.rule, i, written)
			}
		}
	}
	if got := c.Say("cmd 1234"); got != strconv.Itoa(int(syscall.ENOTTY)) {
		t.Errorf("another ioctl: %s", got)
	}
	if err, r := c.call(objDevice, queryPort, uvMLX5, "ok", port, output(1, 60)); err != 0 || !strings.HasSuffix(r[1].out, strings.Repeat("00", 20)) {
		t.Errorf("the bytes behind the kernel's structure are not zeroed: %v %v", err, r)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, pd)); err != 0 {
		t.Errorf("destroying a PD: %v", err)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, pd)); err != syscall.ENOENT {
		t.Errorf("destroying a PD twice: %v", err)
	}
	if got := c.Say("close"); got != "0" {
		t.Errorf("close with live objects: %s", got)
	}
}

// The cases are the commands of INVOKE_WRITE and the uses of objects.
func TestUverbsCommandsAreCheckedAsInTheKernel(t *testing.T) { overFrontEnds(t, uverbsCommands) }

func uverbsCommands(t *testing.T, front frontEnd) {
	c := newUVClient(t, front, ibvtest.Env{}, 0)
	c.context()
	pd := c.pd()
	const (
		createAH, regMR, exQueryDevice, modifyQP, exCreateFlow = 5, 9, 1<<31 | 1, 26, 1<<31 | 50
	)
	gid := "fe80" + strings.Repeat("00", 14)
	ah := func(pd, sgid, port uint64) string {
		return hex32(0, 0, 0, 0, pd, 0) + gid + hex32(0, sgid) + hex32(0) + fmt.Sprintf("0001%02x00", port)
	}
	flow := func(compMask, flags, specs, size uint64) string {
		return hex32(compMask, 4711, 0, size, specs, flags)
	}
	for _, test := range []struct {
		rule string
		cmd  uint32
		in   string
		out  int
		want syscall.Errno
	}{
		{"EX_QUERY_DEVICE", exQueryDevice, "0000000000000000", 304, 0},
		{"an output shorter than the smallest response", exQueryDevice, "0000000000000000", 100, syscall.ENOSPC},
		{"REG_MR with start and address of different offsets", regMR, hex32(0, 0, 1, 0, 8, 0, 2, 0, pd, 1), 12, syscall.EINVAL},
		{"REG_MR with an unknown access flag", regMR, hex32(0, 0, 0, 0, 8, 0, 0, 0, pd, 1<<15), 12, syscall.EINVAL},
		{"REG_MR remote write without local write", regMR, hex32(0, 0, 0, 0, 8, 0, 0, 0, pd, 2), 12, syscall.EINVAL},
		{"REG_MR of a PD that is not there", regMR, hex32(0, 0, 0, 0, 8, 0, 0, 0, 99, 1), 12, syscall.ENOENT},
		{"REG_MR of no length", regMR, hex32(0, 0, 0, 0, 0, 0, 0, 0, pd, 1), 12, syscall.EINVAL},
		{"CREATE_AH of port 2", createAH, ah(pd, 0, 2), 4, syscall.EINVAL},
		{"CREATE_AH of GID 7", createAH, ah(pd, 7, 1), 4, syscall.EINVAL},
		{"CREATE_AH", createAH, ah(pd, 0, 1), 4, 0},
		{"MODIFY_QP of a QP that is not there", modifyQP, strings.Repeat("00", 112), 0, syscall.ENOENT},
		{"EX_CREATE_FLOW with a comp_mask", exCreateFlow, flow(1, 0, 0, 0), 8, syscall.EINVAL},
		{"EX_CREATE_FLOW with an unknown flag", exCreateFlow, flow(0, 8, 0, 0), 8, syscall.EINVAL},
		{"EX_CREATE_FLOW with 11 specs", exCreateFlow, flow(0, 0, 11, 0), 8, syscall.EINVAL},
		{"EX_CREATE_FLOW longer than its structure", exCreateFlow, flow(0, 0, 1, 40), 8, syscall.EINVAL},
	} {
		if strings.HasPrefix(test.rule, "EX_CREATE_FLOW") && os.Geteuid() != 0 && !strings.Contains(test.rule, "comp_mask") {
			test.want = syscall.EPERM
		}
		if err, _ := c.write(uvMLX5, test.cmd, test.in, test.out); err != test.want {
			t.Errorf("%s: %v, want %v", test.rule, err, test.want)
		}
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, pd)); err != syscall.EBUSY {
		t.Errorf("destroying a PD that an address handle uses: %v", err)
	}
	if got := c.Say("close"); got != "0" {
		t.Errorf("close with live objects: %s", got)
	}
}

// Methods and commands fail, calls are counted, and a device is lost.
func TestUverbsControlFailsCallsByTheirNames(t *testing.T) { overFrontEnds(t, uverbsControl) }

func uverbsControl(t *testing.T, front frontEnd) {
	need.Root(t)
	dir := t.TempDir()
	control, err := ibvtest.NewControl(filepath.Join(dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	calls := filepath.Join(dir, "calls")
	c := newUVClient(t, front, ibvtest.Env{
		Fail:       []ibvtest.Fault{{Verb: "ALLOC_PD", Errno: "ENOMEM", From: 2, To: 2}, {Device: "efa_0", Verb: "QUERY_PORT", Errno: "EIO"}, {Verb: "PD_DESTROY", Errno: "EBUSY", To: 1}},
		Control:    control.Path(),
		Statistics: calls,
	}, 0)
	c.context()
	pd := c.pd()
	if err, _ := c.write(uvMLX5, 3, "0000000000000000", 4); err != syscall.ENOMEM {
		t.Errorf("the second ALLOC_PD: %v", err)
	}
	c.pd()
	if err, _ := c.call(objDevice, queryPort, uvMLX5, "ok", value(0, 8, 1), output(1, 48)); err != 0 {
		t.Errorf("QUERY_PORT of the other device: %v", err)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, pd)); err != syscall.EBUSY {
		t.Errorf("the first PD_DESTROY: %v", err)
	}
	have, err := ibvtest.ReadStatistics(calls)
	if err != nil || have["ALLOC_PD"] != 3 || have["GET_CONTEXT"] != 1 || have["QUERY_PORT"] != 1 {
		t.Errorf("calls %v, %v", have, err)
	}
	if err := control.Fatal("mlx5_0"); err != nil {
		t.Fatal(err)
	}
	lost := func() bool {
		err, _ := c.call(objDevice, queryPort, uvMLX5, "ok", value(0, 8, 1), output(1, 48))
		return err == syscall.EIO
	}
	lab.Eventually(t, "the device is lost", lost) // the control thread obeys some moments later
	if err, _ := c.write(uvMLX5, 3, "0000000000000000", 4); err != syscall.EIO {
		t.Errorf("ALLOC_PD of a lost device: %v", err)
	}
	if err, _ := c.call(objPD, 0, uvMLX5, "ok", handle(0, pd)); err != 0 {
		t.Errorf("PD_DESTROY of a lost device: %v", err)
	}
	if got := c.Say("close"); got != "0" {
		t.Errorf("closing a lost device: %s", got)
	}
	if got := c.Say("open 0"); got != "-"+strconv.Itoa(int(syscall.ENXIO)) {
		t.Errorf("opening a lost device: %s", got)
	}
	if err := control.Return("mlx5_0"); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the device returns", func() bool { return !strings.HasPrefix(c.Say("open 0"), "-") })
	c.context()
}
