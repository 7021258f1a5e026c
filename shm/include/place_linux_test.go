package include

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// placedEnv makes the test binary prepare a machine, and locateEnv a reader on it.
const (
	placedEnv = "FLOWTALLY_TEST_PLACED"
	locateEnv = "FLOWTALLY_TEST_LOCATE"
)

func init() {
	if instance := os.Getenv(locateEnv); instance != "" {
		locate(instance)
		os.Exit(0)
	}
	if text := os.Getenv(placedEnv); text != "" {
		if err := bePlaced(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

const (
	inRun  = "/run/flowtally/lb.mirror"
	inShm  = "/dev/shm/flowtally/lb.mirror"
	inUser = "/run/user/1234/flowtally/lb.mirror"

	user    = 1234 // the owner of /run/user/1234
	hostile = 4321
)

// placed is a machine: its mounts and its mirrors.
type placed struct {
	RunOnDisk bool   // /run is no tmpfs
	OwnMount  bool   // a tmpfs is mounted at /run/flowtally
	UID       int    // of the process that asks
	Runtime   string // its XDG_RUNTIME_DIR
	Setgid    bool   // its program has the privileges of another group
	Trusts    int    // an owner whom it names
	Instance  string // empty: lb
	Files     []placedFile
	Program   string // the C program
	Python    string // the directory of the Python reader
}

// placedFile is the file at a mirror's path.
type placedFile struct {
	Path string
	UID  int    // of the file and its directory
	File string // "live", "dead", "junk", "fifo", "link": a link to a live mirror, "dirlink": its directory is a link to one that holds a live mirror, "dir": there is a directory alone
}

// where holds the paths that a process on that machine finds.
type where struct {
	Writes   string // the path that it would write
	Reads    string // the path that Go finds, and the number of the error that there is
	ReadsInC string
	InPython string // the path that Python reads; empty: none
}

// TestReadersFindTheMirrorWhereTheWriterPutIt: where the writer of a user puts a mirror, and which one a reader finds, in Go, C and Python, on machines that
// differ in their mounts, their users and the files that these have left.
func TestReadersFindTheMirrorWhereTheWriterPutIt(t *testing.T) {
	need.Cap(t, "sys_admin")
	need.Root(t)
	need.Tool(t, "python3")
	python, err := filepath.Abs("../../examples/python-reader")
	if err != nil {
		t.Fatal(err)
	}
	program := build(t, "locate", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	const runtime = "/run/user/1234"
	const none, owner = "-2", "-6"
	live, dead := func(path string, uid int) placedFile { return placedFile{path, uid, "live"} }, func(path string, uid int) placedFile { return placedFile{path, uid, "dead"} }
	for _, tt := range []struct {
		name   string
		on     placed
		writes string
		reads  string
	}{
		// The writer's choice.
		{"root", placed{}, inRun, none},
		{"root with a runtime directory", placed{Runtime: "/run/user/0"}, inRun, none},
		{"root with the runtime directory of a user", placed{Runtime: runtime}, inRun, none},
		{"root, no tmpfs", placed{RunOnDisk: true}, inShm, none},
		{"root, no tmpfs but a runtime directory", placed{RunOnDisk: true, Runtime: "/run/user/0"}, inShm, none},
		{"root, a tmpfs of its own", placed{RunOnDisk: true, OwnMount: true}, inRun, none},
		{"user", placed{UID: user, Runtime: runtime}, inUser, none},
		{"user, no tmpfs", placed{UID: user, Runtime: runtime, RunOnDisk: true}, inUser, none},
		{"user without a runtime directory", placed{UID: user}, inShm, none},
		{"user with a relative one", placed{UID: user, Runtime: "run/user/1234"}, inShm, none},
		{"user with one that is not there", placed{UID: user, Runtime: "/run/user/none"}, inShm, none},
		{"user with one that is on a disk", placed{UID: hostile, Runtime: "/run/disk"}, inShm, none},
		{"user with another's", placed{UID: hostile, Runtime: runtime}, inShm, none},
		{"user with another's that is open", placed{UID: hostile, Runtime: "/run/open"}, inShm, none},
		{"user of a service", placed{UID: user, Runtime: runtime, Files: []placedFile{{inRun, user, "dir"}}}, inRun, none},
		{"user of a service, no tmpfs", placed{UID: user, RunOnDisk: true, Files: []placedFile{{inRun, user, "dir"}}}, inShm, none},

		// The readers' order.
		{"one of root", placed{UID: user, Files: []placedFile{live(inRun, 0)}}, inShm, inRun + " 0"},
		{"one of root, no tmpfs", placed{UID: user, RunOnDisk: true, Files: []placedFile{live(inShm, 0)}}, inShm, inShm + " 0"},
		{"one's own", placed{UID: user, Runtime: runtime, Files: []placedFile{live(inUser, user)}}, inUser, inUser + " 0"},
		{"one's own, not named by the environment", placed{UID: user, Files: []placedFile{live(inUser, user)}}, inShm, none},
		{"three live", placed{UID: user, Runtime: runtime, Files: []placedFile{live(inRun, 0), live(inShm, 0), live(inUser, user)}}, inUser, inRun + " 0"},
		{"two live", placed{UID: user, Runtime: runtime, Files: []placedFile{live(inShm, user), live(inUser, user)}}, inUser, inShm + " 0"},
		{"another instance", placed{UID: user, Instance: "other", Files: []placedFile{live(inRun, 0)}}, strings.ReplaceAll(inShm, "lb", "other"), none},

		{"one's own, by a program with privileges", placed{UID: user, Runtime: runtime, Setgid: true, Files: []placedFile{live(inUser, user)}}, inShm, none},

		// A dead writer's file hides no live one.
		{"dead before live", placed{UID: user, Runtime: runtime, Files: []placedFile{dead(inRun, 0), dead(inShm, 0), live(inUser, user)}}, inUser, inUser + " 0"},
		{"dead before live of root", placed{Files: []placedFile{dead(inRun, 0), live(inShm, 0)}}, inRun, inShm + " 0"},
		{"live before dead", placed{Files: []placedFile{live(inRun, 0), dead(inShm, 0)}}, inRun, inRun + " 0"},
		{"all dead", placed{UID: user, Runtime: runtime, Files: []placedFile{dead(inShm, 0), dead(inUser, user)}}, inUser, inShm + " 0"},
		{"junk before live", placed{Files: []placedFile{{inRun, 0, "junk"}, live(inShm, 0)}}, inRun, inShm + " 0"},
		{"junk before dead", placed{Files: []placedFile{{inRun, 0, "junk"}, dead(inShm, 0)}}, inRun, inShm + " 0"},
		{"junk alone", placed{Files: []placedFile{{inRun, 0, "junk"}}}, inRun, inRun + " -9"},
		{"a FIFO", placed{Files: []placedFile{{inRun, 0, "fifo"}, live(inShm, 0)}}, inRun, inShm + " 0"},

		// A hostile owner.
		{"hostile alone", placed{Files: []placedFile{live(inShm, hostile)}}, inRun, owner},
		{"hostile alone, no tmpfs", placed{RunOnDisk: true, Files: []placedFile{live(inShm, hostile)}}, inShm, owner},
		{"hostile to a user", placed{UID: user, Runtime: runtime, Files: []placedFile{live(inShm, hostile)}}, inUser, owner},
		{"hostile, and named", placed{Trusts: hostile, Files: []placedFile{live(inShm, hostile)}}, inRun, inShm + " 0"},
		{"hostile before one's own", placed{UID: user, Runtime: runtime, Files: []placedFile{live(inShm, hostile), live(inUser, user)}}, inUser, inUser + " 0"},
		{"hostile before one's own that is dead", placed{UID: user, Runtime: runtime, Files: []placedFile{live(inShm, hostile), dead(inUser, user)}}, inUser, inUser + " 0"},
		{"hostile behind dead", placed{Files: []placedFile{dead(inRun, 0), live(inShm, hostile)}}, inRun, inRun + " 0"},
		{"the runtime directory of a user, to root", placed{Runtime: runtime, Files: []placedFile{live(inUser, user)}}, inRun, owner},
		{"a link to a file", placed{Files: []placedFile{{inShm, 0, "link"}}}, inRun, inShm + " -4"},
		{"a link to a directory", placed{Files: []placedFile{{inShm, hostile, "dirlink"}}}, inRun, "-4"},
		{"a name with a slash", placed{Instance: "../lb", Files: []placedFile{live(inRun, 0)}}, "/run/lb.mirror", "-21"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.on.Program, tt.on.Python = program, python
			got := onMachine(t, tt.on)
			want := where{tt.writes, tt.reads, tt.reads, ""}
			if path, is := strings.CutSuffix(tt.reads, " 0"); is && tt.on.Trusts == 0 { // the reader in Python names no owner
				want.InPython = path
			}
			if got != want {
				t.Errorf("found %+v, want %+v", got, want)
			}
		})
	}
}

// onMachine asks in a mount namespace of its own.
func onMachine(t *testing.T, p placed) (w where) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), placedEnv+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &w)
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, talk.String())
	}
	return w
}

// bePlaced prepares the machine, asks as the user, and prints the paths.
func bePlaced(text string) error {
	var p placed
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	program, err := os.ReadFile(p.Program)
	self, err2 := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, err2, mountPlaces(p)); err != nil {
		return err
	}
	// In a directory that any user may enter.
	err = errors.Join(os.Mkdir("/dev/shm/programs", 0o755), os.WriteFile("/dev/shm/programs/c", program, 0o755), os.WriteFile("/dev/shm/programs/go", self, 0o755))
	for _, f := range p.Files {
		err = errors.Join(err, f.make())
	}
	for _, name := range []string{"c", "go"} {
		if p.Setgid {
			err = errors.Join(err, os.Chown("/dev/shm/programs/"+name, 0, hostile), os.Chmod("/dev/shm/programs/"+name, 0o755|fs.ModeSetgid))
		}
	}
	if err != nil {
		return err
	}
	ask := func(uid int, name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+p.Runtime, placedEnv+"=", locateEnv+"="+p.instance())
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		cmd.Dir = "/"
		cmd.Stderr = os.Stderr
		out, askErr := cmd.Output()
		err = errors.Join(err, askErr)
		return strings.TrimSpace(string(out))
	}
	args := []string{p.instance()}
	if p.Trusts != 0 {
		args = append(args, fmt.Sprint(p.Trusts))
	}
	w := where{ReadsInC: ask(p.UID, "/dev/shm/programs/c", args...)}
	if !p.Setgid { // a script has no privileges
		w.InPython = ask(0, "python3", "-Bc", locateInPython, p.Python, fmt.Sprint(p.UID), p.instance())
	}
	w.Writes, w.Reads, _ = strings.Cut(ask(p.UID, "/dev/shm/programs/go", args...), "\n")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(w)
}

// locateInPython prints the path of the mirror that the reader in Python opens. Python may be where only
// root can go, so the script becomes the user itself.
const locateInPython = `
import os, sys
sys.path.insert(0, sys.argv[1])
from mirror import Refused
from reader import Instance
uid = int(sys.argv[2])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
try:
    print(Instance(sys.argv[3]).mirror.path)
except (OSError, Refused) as error:
    print(error, file=sys.stderr)
`

func (p placed) instance() string {
	if p.Instance != "" {
		return p.Instance
	}
	return "lb"
}

// mountPlaces mounts p's file systems at /dev/shm and /run. The mount namespace is this process's own.
func mountPlaces(p placed) error {
	err := unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777")
	if !p.RunOnDisk {
		err = errors.Join(err, unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"))
	} else {
		err = errors.Join(err, mountOverlay("/run"))
	}
	err = errors.Join(err, os.MkdirAll("/run/user/1234", 0o755), os.Mkdir("/run/user/0", 0o700), os.Mkdir("/run/disk", 0o755), os.Mkdir("/run/open", 0o755),
		unix.Mount("tmpfs", "/run/user/0", "tmpfs", 0, "mode=0700"),
		unix.Mount("tmpfs", "/run/user/1234", "tmpfs", 0, fmt.Sprintf("mode=0700,uid=%d,gid=%d", user, user)),
		unix.Mount("tmpfs", "/run/open", "tmpfs", 0, fmt.Sprintf("mode=0755,uid=%d,gid=%d", user, user)),
		mountOverlay("/run/disk"), os.Chown("/run/disk", hostile, hostile))
	if p.OwnMount {
		err = errors.Join(err, os.Mkdir("/run/flowtally", 0o755), unix.Mount("tmpfs", "/run/flowtally", "tmpfs", 0, "mode=0755"))
	}
	return err
}

// mountOverlay mounts a file system that is no tmpfs, such as a container has.
func mountOverlay(at string) error {
	base, err := os.MkdirTemp("/dev/shm", "layers-")
	if err != nil {
		return err
	}
	options := ""
	for _, name := range []string{"lowerdir", "upperdir", "workdir"} {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		options += "," + name + "=" + dir
	}
	return unix.Mount("overlay", at, "overlay", 0, strings.TrimPrefix(options, ","))
}

// make makes the file with its directory, as root, and gives both away.
func (f placedFile) make() error {
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	create := func(path string) error {
		// Alive for its period: no heartbeat follows.
		w, err := shm.Create(shm.Options{Path: path, Counters: 64, LatencyCounters: -1, History: -1, HeartbeatPeriod: time.Hour})
		if err == nil && f.File == "dead" {
			err = w.Close()
		}
		return err
	}
	var err error
	elsewhere := filepath.Join(filepath.Dir(dir), "elsewhere", filepath.Base(f.Path))
	switch f.File {
	case "dir":
	case "junk":
		err = os.WriteFile(f.Path, bytes.Repeat([]byte("x"), 1<<16), 0o644)
	case "fifo":
		err = unix.Mkfifo(f.Path, 0o644)
	case "link":
		err = errors.Join(create(elsewhere), os.Symlink(elsewhere, f.Path))
	case "dirlink":
		err = errors.Join(create(elsewhere), os.Remove(dir), os.Symlink(filepath.Dir(elsewhere), dir))
	default:
		made := filepath.Join("/dev/shm", strings.ReplaceAll(f.Path, "/", "-"), "lb.mirror") // root makes none in the directory of a user
		if err = create(made); err == nil {
			var b []byte
			b, err = os.ReadFile(made)
			err = errors.Join(err, os.WriteFile(f.Path, b, 0o644))
		}
	}
	for _, path := range []string{f.Path, dir} {
		if chownErr := os.Lchown(path, f.UID, f.UID); !errors.Is(chownErr, fs.ErrNotExist) && !strings.Contains(f.File, "link") {
			err = errors.Join(err, chownErr)
		}
	}
	return err
}

// locate prints the place of an instance by package shm, as testdata/locate.c prints it.
func locate(instance string) {
	fmt.Println(shm.DefaultPath(instance))
	var o shm.ReaderOptions
	if len(os.Args) > 2 {
		var uid uint32
		fmt.Sscan(os.Args[2], &uid)
		o.Owners = []uint32{uid}
	}
	path, err := shm.Locate(instance, o)
	if err == nil {
		fmt.Print(path, " ")
		var r *shm.Reader
		if r, err = shm.OpenReader(path, o); err == nil {
			r.Close()
		}
	}
	for _, c := range []struct {
		is   error
		code int
	}{{syscall.ELOOP, -4}, {fs.ErrNotExist, -2}, {shm.ErrInvalid, -21}, {shm.ErrFormat, -9}} {
		if errors.Is(err, c.is) {
			fmt.Println(c.code)
			return
		}
	}
	switch {
	case err == nil:
		fmt.Println(0)
	case errors.Is(err, shm.ErrPermission) && strings.Contains(err.Error(), "links"):
		fmt.Println(-4)
	case errors.Is(err, shm.ErrPermission):
		fmt.Println(-6)
	default:
		fmt.Println(err)
	}
}
