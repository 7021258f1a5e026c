package plugin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ps, pgrep and the plugin itself find the plugin by its file, though a descriptor was executed.
func TestProcessIsNamedAfterItsFile(t *testing.T) {
	c := launch(t, options(t, "fake"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	proc := fmt.Sprintf("/proc/%d/", pid(t, c))
	if exe, err := os.Readlink(proc + "exe"); exe != self {
		t.Errorf("exe is %s, %v, want %s", exe, err, self)
	}
	args, err := os.ReadFile(proc + "cmdline")
	if first, _, _ := strings.Cut(string(args), "\x00"); first != self {
		t.Errorf("the first argument is %q, %v, want %s", first, err, self)
	}
	comm, err := os.ReadFile(proc + "comm")
	if want := filepath.Base(self); strings.TrimSpace(string(comm)) != want[:min(15, len(want))] {
		t.Errorf("the command is %q, %v, want the first 15 bytes of %s", comm, err, want)
	}
}
