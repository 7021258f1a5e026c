package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
)

// listed returns the instance as flowtally instances prints it, or a zero value if it does not.
func (in *instance) listed() (i InstanceJSON) {
	in.t.Helper()
	code, out, talk := run(in.t, "instances", "-o", "json")
	var all InstancesJSON
	if err := json.Unmarshal([]byte(out), &all); code != exitOK || err != nil {
		in.t.Fatalf("instances: code %d, %v, %s%s", code, err, out, talk)
	}
	for _, i := range all.Instances {
		if i.Name == in.name {
			return i
		}
	}
	return i
}

// dies kills the host and its plugin, so that neither can clean up.
func (in *instance) dies() {
	in.t.Helper()
	plugin := in.pluginPID()
	in.standStill(in.cmd.Process.Pid) // so that the host starts no other plugin
	_ = syscall.Kill(plugin, syscall.SIGKILL)
	for !errors.Is(syscall.Kill(plugin, 0), syscall.ESRCH) {
		if state := in.stateOf(plugin); state == "Z" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	in.kill()
	in.cmd = nil
	// A zombie may have threads yet, which hold its files.
	lab.Eventually(in.t, "the end of the plugin", func() bool { return in.listed().State != "running" })
}

func (in *instance) stateOf(pid int) string {
	state, err := readStat(pid)
	if err != nil {
		return "Z"
	}
	_, rest, _ := strings.Cut(state, ") ")
	return rest[:1]
}

// The test follows one instance through its states. instances and doctor name what a dead instance has left, and clean
// removes it. clean refuses a running instance, but detach takes it off its hooks, even if it hangs. An instance
// stopped with keep_pins does not count as dead.
func TestDeadInstanceIsCleanedAndARunningOneDetached(t *testing.T) {
	in := newInstance(t, "xdp: {keep_pins: true}\n")
	must := func(code int, says string, args ...string) {
		t.Helper()
		got, out, talk := run(t, args...)
		if got != code || !strings.Contains(out+talk, says) {
			t.Fatalf("%v: code %d, want %d and %q:\n%s%s", args, got, code, says, out, talk)
		}
	}
	journal := newJournal(t)
	in.start()
	must(exitOK, "2 flows unchanged", "apply", "--instance", in.name, "--socket", filepath.Join(in.dir, "run", "s.sock"))
	journal.want("apply: " + filepath.Join(in.dir, "config.yaml") + " to instance " + in.name + ": 2 flows unchanged")
	in.said(fmt.Sprintf(`"for":"setting flows","user":%d,"process":%d`, os.Getuid(), os.Getpid()))
	if i := in.listed(); i.State != "running" || i.PID == nil || *i.PID != in.pluginPID() || i.Programs != 1 || i.MirrorBytes == 0 {
		t.Errorf("instances prints %+v of a running instance", i)
	}
	must(exitFailed, "try: stop it; in an emergency, also where it hangs: flowtally detach --instance "+in.name, "clean", "--instance", in.name, "--yes")
	must(exitUsage, "try: flowtally clean --instance NAME", "clean")
	must(exitFailed, "try: flowtally instances", "detach", "--instance", "absent")

	// A live instance does not take its hooks again after detach, and a restart of it does.
	must(exitOK, "took 1 program", "detach", "--instance", in.name)
	in.said("taken off its hooks by flowtally detach")
	journal.want("detach: took 1 program of instance " + in.name + " off its hooks")
	if in.attached() {
		t.Error("a program is attached after detach")
	}
	in.stop()
	in.start()
	if !in.attached() {
		t.Error("a restart does not take the hooks again")
	}

	// A hung one neither.
	in.standStill(in.pluginPID())
	must(exitOK, "took 1 program", "detach", "--instance", in.name)
	if in.attached() {
		t.Error("a program of a hung instance is attached after detach")
	}
	_ = syscall.Kill(in.pluginPID(), syscall.SIGCONT)
	in.stop()

	in.start()
	in.stop()
	if i := in.listed(); i.State != "kept" || i.PID != nil || !in.attached() {
		t.Errorf("instances prints %+v of an instance that was stopped with keep_pins", i)
	}
	must(exitOK, "", "clean", "--all-dead", "--yes")
	if !in.attached() || !exists(in.mirror) {
		t.Fatal("clean --all-dead has removed an instance that keeps its pins")
	}

	must(exitOK, "removed instance "+in.name+": 1 program", "clean", "--config", filepath.Join(in.dir, "config.yaml"), "--keep-mirror", "--yes")
	if in.attached() || exists(in.pins) || !exists(in.mirror) {
		t.Errorf("attached %v, pins %v, mirror %v after clean --keep-mirror", in.attached(), in.pinned(), exists(in.mirror))
	}

	in.start()
	in.dies()
	if i := in.listed(); i.State != "dead" || i.PID != nil || i.Programs != 1 {
		t.Errorf("instances prints %+v of a dead instance", i)
	}
	must(exitOK, "flowtally clean --instance "+in.name, "doctor", in.wire.Near.Name)
	must(exitFailed, "instance "+in.name+": no process runs it, and it has left 1 program on hooks, pinned in "+in.pins+": flowtally clean --instance "+in.name,
		"run", "--embedded", "--config", in.file("absent.yaml", "interfaces: [nosuch0]\nflows: [{name: a, match: any}]\n"), "--instance", lab.Unique("cli-"), "--socket", "-", "--mirror", filepath.Join(in.dir, "other", "x.mirror"))
	must(exitFailed, "try: flowtally clean --instance "+in.name+" --yes", "clean", "--instance", in.name)
	if !in.attached() {
		t.Fatal("clean has not waited for the answer")
	}
	must(exitOK, in.freeHook(), "doctor") // which names what the pins leave
	if in.attached() || exists(in.pins) || !exists(in.mirror) {
		t.Errorf("attached %v, pins %v, mirror %v after clean --pin-dir", in.attached(), in.pinned(), exists(in.mirror))
	}

	in.start()
	in.dies()
	must(exitOK, "removed instance "+in.name+": 1 program", "clean", "--all-dead", "--yes")
	if in.attached() || exists(in.pins) || exists(in.mirror) || in.listed().Name != "" {
		t.Errorf("attached %v, pins %v, mirror %v, %+v after clean", in.attached(), in.pinned(), exists(in.mirror), in.listed())
	}
	journal.want("clean: removed instance " + in.name + ": 1 program, ")
	must(exitFailed, "no pins and no mirror", "clean", "--instance", in.name, "--yes")
}

// file writes a file of the instance and returns its path.
func (in *instance) file(name, text string) string {
	in.t.Helper()
	path := filepath.Join(in.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		in.t.Fatal(err)
	}
	return path
}

// freeHook starts another instance on the interface, finds the hook taken, and does what the error says. It returns
// doctor's feature for a dead instance that has only a mirror left.
func (in *instance) freeHook() string {
	in.t.Helper()
	config := in.file("other.yaml", fmt.Sprintf("interfaces: [%s]\nxdp: {beside: [refuse]}\nflows: [{name: a, match: any}]\n", in.wire.Near.Name))
	var talk string
	if err := in.wire.Near.NS.Do(func() error {
		_, _, talk = run(in.t, "run", "--embedded", "--config", config, "--instance", lab.Unique("cli-"), "--socket", "-", "--mirror", filepath.Join(in.dir, "other", "x.mirror"))
		return nil
	}); err != nil {
		in.t.Fatal(err)
	}
	says := talk[max(strings.LastIndex(talk, "\nflowtally: "), 0):] // below the log
	step := lab.Step(in.t, says, "stop that instance; or, where it does not run any more: flowtally clean --pin-dir …")
	_, command, _ := strings.Cut(step, ": flowtally ")
	if code, out, talk := run(in.t, append(strings.Fields(command), "--yes")...); code != exitOK {
		in.t.Fatalf("%s: code %d, %s%s", step, code, out, talk)
	}
	return "nothing left of a dead instance"
}

// journal is a syslog in place of the host's. It is nil if the host has one.
type journal struct {
	t    *testing.T
	conn *net.UnixConn
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	const path = "/var/run/syslog"
	for _, own := range []string{"/dev/log", path} {
		if _, err := os.Lstat(own); err == nil {
			t.Logf("the journal is not looked at: the host has %s", own)
			return nil
		}
	}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); os.Remove(path) })
	return &journal{t, conn}
}

// want reads lines until one has the text, and the user and the process of this test.
func (j *journal) want(text string) {
	if j == nil {
		return
	}
	j.t.Helper()
	buffer, read := make([]byte, 4096), ""
	for j.conn.SetReadDeadline(time.Now().Add(patience)) == nil {
		n, err := j.conn.Read(buffer)
		if err != nil {
			j.t.Fatalf("%v; the journal has no line %q:\n%s", err, text, read)
		}
		line := string(buffer[:n])
		if read += line; strings.Contains(line, text) && strings.Contains(line, fmt.Sprintf("(by user %d, process %d)", os.Getuid(), os.Getpid())) {
			return
		}
	}
}

func readStat(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return string(text), err
}
