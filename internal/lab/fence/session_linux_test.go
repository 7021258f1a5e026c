package fence

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
)

// patience bounds the wait for one command: a hang, not a slow machine.
const patience = 10 * time.Minute

// setup makes the environment of a document in the mount namespace of the shell. Its arguments are
// a directory for the copies, the repository, and the directory of the programs.
const setup = `set -e
mount -t tmpfs -o mode=0755 tmpfs "$1"
for d in /etc /usr /var/lib "$2"; do
	mkdir -p "$1/upper$d" "$1/work$d"
	chown --reference="$d" "$1/upper$d" && chmod --reference="$d" "$1/upper$d"
	mount -t overlay -o "lowerdir=$d,upperdir=$1/upper$d,workdir=$1/work$d" overlay "$d"
done
mount -t tmpfs -o mode=0755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t bpf -o mode=0700 bpf /sys/fs/bpf
export PATH="$3:$PATH"
cd "$2"
set +e -m
`

// session is the shell of one document.
type session struct {
	t     *testing.T
	dir   string // of the commands and their output
	owner *user.User
	in    io.Writer
	ended *bufio.Reader // a line for each command: its number and its exit code
	n     int
	dead  chan struct{}
}

// newSession starts the shell of a document in an environment of its own.
func newSession(t *testing.T, root, programs string) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir(), dead: make(chan struct{})}
	st, err := os.Stat(root)
	check(t, err)
	s.owner, err = user.LookupId(strconv.Itoa(int(st.Sys().(*syscall.Stat_t).Uid)))
	check(t, err)
	// The path of t.TempDir leads through directories that only root may enter.
	check(t, os.Chmod(s.dir, 0o755), os.Chmod(filepath.Dir(s.dir), 0o755))
	out, w, err := os.Pipe()
	check(t, err)
	copies := filepath.Join(s.dir, "copies")
	check(t, os.Mkdir(copies, 0o755))
	cmd := exec.Command("bash", "-c", setup+"exec 4<&0 </dev/null\nwhile read -r line <&4; do eval \"$line\"; done", "bash", copies, root, programs)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = root, t.Output(), t.Output(), []*os.File{w}
	cmd.Env = append(os.Environ(), "SECONDS_OF_DEMO=1", "NO_COLOR=1", "COLUMNS=200",
		"MAKEFLAGS=", "MAKELEVEL=0") // make below another make names its directory
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	in, err := cmd.StdinPipe()
	check(t, err)
	s.in, s.ended = in, bufio.NewReader(out)
	ns := machine(t)
	check(t, ns.Do(cmd.Start))
	w.Close()
	go func() { _ = cmd.Wait(); close(s.dead) }()
	t.Cleanup(func() {
		s.endJobs()
		in.Close()
		select {
		case <-s.dead:
		case <-time.After(time.Minute):
			t.Error("the shell of the document does not end")
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		out.Close()
	})
	return s
}

// machine makes the network of a document: eth0 and eth1, and a neighbor behind each.
func machine(t *testing.T) *lab.Netns {
	t.Helper()
	near, err := lab.NewNetns("")
	check(t, err)
	t.Cleanup(func() { near.Close() })
	far, err := lab.NewNetns("")
	check(t, err)
	t.Cleanup(func() { far.Close() })
	for i, prefix := range []string{"192.0.2.", "198.51.100."} {
		p, err := lab.NewPair(near, far, "eth"+strconv.Itoa(i), "peer"+strconv.Itoa(i), lab.PairOptions{})
		check(t, err)
		a, b := netip.MustParsePrefix(prefix+"10/24"), netip.MustParsePrefix(prefix+"1/24")
		check(t, p.A.AddAddr(a), p.B.AddAddr(b), p.A.AddNeighbor(b.Addr(), p.B.MAC), p.B.AddNeighbor(a.Addr(), p.A.MAC))
	}
	return near
}

// wrap returns the line that runs the script of a command in the shell.
func (s *session) wrap(c Command, script string) string {
	first, _, _ := strings.Cut(c.Text, " ")
	if c.Root || s.owner.Uid == "0" || first == "cd" || first == "export" {
		return ". " + script
	}
	return fmt.Sprintf("setpriv --reuid=%s --regid=%s --init-groups env HOME=%s USER=%s bash %s",
		s.owner.Uid, s.owner.Gid, s.owner.HomeDir, s.owner.Username, script)
}

// run runs a command. With until, it leaves the command in the background once its output has that text.
func (s *session) run(c Command, until string) (code int, stdout, both string) {
	s.t.Helper()
	s.n++
	base := filepath.Join(s.dir, strconv.Itoa(s.n))
	check(s.t, os.WriteFile(base, []byte(c.Text+"\n"), 0o644))
	line := fmt.Sprintf("{ trap : TERM; %[1]s; } >%[2]s.out 2>%[2]s.err", s.wrap(c, base), base)
	if until != "" {
		fmt.Fprintf(s.in, "{ %s; } & jobs_of_document=\"$jobs_of_document $!\"; echo %d 0 >&3\n", line, s.n)
	} else {
		fmt.Fprintf(s.in, "%s; echo %d $? >&3\n", line, s.n)
	}
	code = s.await()
	read := func() {
		out, _ := os.ReadFile(base + ".out") // not there until the command begins
		messages, _ := os.ReadFile(base + ".err")
		stdout, both = string(out), string(out)+string(messages)
	}
	if until != "" {
		lab.Eventually(s.t, fmt.Sprintf("the output of %q with %q", c.Text, until), func() bool {
			read()
			return strings.Contains(both, until)
		})
	}
	read()
	return code, stdout, both
}

// await returns the exit code of the command that runs.
func (s *session) await() (code int) {
	s.t.Helper()
	type result struct {
		line string
		err  error
	}
	c := make(chan result, 1)
	go func() {
		line, err := s.ended.ReadString('\n')
		c <- result{line, err}
	}()
	select {
	case r := <-c:
		n := 0
		if _, err := fmt.Sscan(r.line, &n, &code); err != nil || r.err != nil || n != s.n {
			s.t.Fatalf("the shell of the document sent %q for command %d: %v", r.line, s.n, errors.Join(err, r.err))
		}
	case <-time.After(patience):
		s.t.Fatalf("command %d does not end", s.n)
	}
	return code
}

// endJobs ends the commands in the background, the last one first, and fails where one ends with an error.
func (s *session) endJobs() {
	s.n++
	const end = `for j in $(printf '%s\n' $jobs_of_document | tac); do kill -TERM -- -$j 2>/dev/null; wait $j; ended=$?; ` +
		`[ $ended = 0 ] || [ $ended = 143 ] || bad="$bad $ended"; done; echo N ${bad:-0} >&3`
	fmt.Fprintln(s.in, strings.Replace(end, "N", strconv.Itoa(s.n), 1))
	if code := s.await(); code != 0 {
		s.t.Errorf("a command in the background ended with %d", code)
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
