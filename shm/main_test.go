package shm

import (
	"os"
	"os/exec"
	"testing"
)

// children are what this binary does when a test runs it as another process.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("FLOWTALLY_SHM_CHILD")]; child != nil {
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
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
	cmd.Env = append(append(os.Environ(), "FLOWTALLY_SHM_CHILD="+kind, "FLOWTALLY_SHM_PATH="+path), env...)
	cmd.Stderr = os.Stderr
	return cmd
}
