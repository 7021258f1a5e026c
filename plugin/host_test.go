package plugin_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startHost runs a host in a process group of its own, and returns it with the
// process of its plugin.
func startHost(t *testing.T) (host *exec.Cmd, plugin int, marker, tmp string) {
	t.Helper()
	opts, marker := marked(t, "host")
	tmp = t.TempDir()
	host = exec.Command(opts.Path)
	host.Env = append(os.Environ(), roleEnv+"=host", markerEnv+"="+marker, "TMPDIR="+tmp)
	host.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	host.Stderr = t.Output()
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = host.Process.Kill()
		_ = host.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	plugin, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return host, plugin, marker, tmp
}

func alive(pid int) bool {
	state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(state), ") Z ")
}

// However the host dies, the plugin closes its instance and goes.
func TestPluginClosesIfItsHostIsKilled(t *testing.T) {
	host, plugin, marker, tmp := startHost(t)
	if !alive(plugin) {
		t.Fatal("the plugin is not there")
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plugin to end", func() bool { return !alive(plugin) })
	if got := lines(t, marker); !slices.Contains(got, "close") {
		t.Errorf("the instance was not closed: %q", got)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// Ctrl-C goes to the foreground process group: the host decides how the plugin ends.
func TestInterruptSparesThePlugin(t *testing.T) {
	host, plugin, marker, _ := startHost(t)
	group, err := syscall.Getpgid(plugin)
	if err != nil {
		t.Fatal(err)
	}
	if group == host.Process.Pid {
		t.Error("the plugin is in the host's process group")
	}
	if err := syscall.Kill(-host.Process.Pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if !alive(plugin) || slices.Contains(lines(t, marker), "close") {
		t.Error("the plugin ended at the interrupt")
	}
}
