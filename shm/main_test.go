package shm

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// children are the programs that this binary runs as another process of a test.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("FLOWTALLY_SHM_CHILD")]; child != nil {
		go outlive(os.Getenv("FLOWTALLY_SHM_PARENT"))
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// outlive ends a child whose parent is gone (killed, or ended by a time-out that no
// test sees), or that has been at it for longer than any test takes.
func outlive(parent string) {
	for end := time.Now().Add(15 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if strconv.Itoa(os.Getppid()) != parent {
			break
		}
	}
	os.Exit(3)
}

// emulator runs this binary's children where the binary itself is run by one.
const emulator = "FLOWTALLY_EMULATOR"

// child is this binary as another process, over the mirror at path.
func child(kind, path string, env ...string) *exec.Cmd {
	args := []string{os.Args[0]}
	if e := os.Getenv(emulator); e != "" {
		args = append([]string{e}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "FLOWTALLY_SHM_CHILD="+kind, "FLOWTALLY_SHM_PATH="+path,
		"FLOWTALLY_SHM_PARENT="+strconv.Itoa(os.Getpid())), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// needFaultAddress skips a test that truncates a mapped file where an emulator runs the test. For SIGBUS,
// qemu-user sets si_addr, but leaves the fault_address of the signal frame 0. Go's runtime on arm64 reads
// fault_address, so that Guard takes the fault for one of a nil pointer. The kernel of an arm64 machine sets both.
func needFaultAddress(t *testing.T) {
	t.Helper()
	if os.Getenv(emulator) != "" {
		t.Skip("the emulator leaves the fault_address of a SIGBUS 0")
	}
}
