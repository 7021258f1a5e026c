package hostcheck

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

func TestKernelBefore61IsTooOld(t *testing.T) {
	for _, tt := range []struct {
		release string
		err     error
		want    probe.Answer
		reason  string
	}{
		{"6.18.44-fc", nil, probe.Yes, ""},
		{"7.0", nil, probe.Yes, ""},
		{"6.6.0", nil, probe.Yes, ""},
		{"6.1.0-13-amd64", nil, probe.Yes, "ingress only"},
		{"6.0.19", nil, probe.No, "too old"},
		{"5.15.0", nil, probe.No, "too old"},
		{"rolling", nil, probe.Inconclusive, "version"},
		{"", errors.New("no answer"), probe.Inconclusive, "no answer"},
	} {
		r := checkKernel(tt.release, tt.err)
		if r.Answer != tt.want || !strings.Contains(r.Reason, tt.reason) {
			t.Errorf("%s: %v (%s), want %v (%s)", tt.release, r.Answer, r.Reason, tt.want, tt.reason)
		}
		if r.Answer == probe.No && r.Fix == "" {
			t.Errorf("%s: no without a fix", tt.release)
		}
	}
}

func TestMissingCapabilityIsNo(t *testing.T) {
	answers := func(status string, err error) string {
		var s []string
		for _, r := range checkCapabilities(status, err) {
			s = append(s, r.Answer.String())
		}
		return strings.Join(s, " ")
	}
	for _, tt := range []struct {
		name, status string
		err          error
		want         string
	}{
		{"root", "Name:\tx\nCapEff:\t000001ffffffffff\n", nil, "yes yes yes"},
		{"none", "CapEff:\t0000000000000000\n", nil, "no no no"},
		{"net_admin and bpf", "CapEff:\t0000008000001000\n", nil, "yes yes no"},
		{"sys_admin stands for bpf and perfmon", "CapEff:\t0000000000200000\n", nil, "no yes yes"},
		{"no such line", "Name:\tx\n", nil, "inconclusive inconclusive inconclusive"},
		{"not a number", "CapEff:\tx\n", nil, "inconclusive inconclusive inconclusive"},
		{"unreadable", "", fs.ErrPermission, "inconclusive inconclusive inconclusive"},
	} {
		if got := answers(tt.status, tt.err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestMirrorDirectoryMustBeClosedToOthers(t *testing.T) {
	base := t.TempDir()
	mk := func(name string, mode fs.FileMode) string {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(mk("open", 0o777), "dir")
	for _, tt := range []struct {
		name, dir string
		want      probe.Answer
		reason    string
	}{
		{"below one that all write", below, probe.No, "open (mode 0777) can be written by others"},
		{"own, closed", mk("own", 0o755), probe.Yes, ""},
		{"group writes", mk("group", 0o775), probe.No, "mode 0775"},
		{"all write", mk("all", 0o777), probe.No, "mode 0777"},
		{"of all users", mk("tmp", 0o777|os.ModeSticky), probe.No, "mode 1777"},
		{"a file", file, probe.No, "not a directory"},
		{"a symbolic link", link, probe.No, "not a directory"},
		{"not there yet", filepath.Join(base, "new", "er"), probe.Yes, "not there yet"},
	} {
		r := checkMirrorDir(tt.dir)
		if r.Answer != tt.want || !strings.Contains(r.Reason, tt.reason) {
			t.Errorf("%s: %v (%s), want %v (%s)", tt.name, r.Answer, r.Reason, tt.want, tt.reason)
		}
		if tt.name == "of all users" && strings.Contains(r.Fix, "chmod") {
			t.Errorf("the fix changes the mode of a directory like /tmp: %s", r.Fix)
		}
	}
}

func TestMirrorOutsideATmpfsIsNo(t *testing.T) {
	if r := checkShm("/proc/x.mirror"); r.Answer != probe.No || !strings.Contains(r.Reason, "not a tmpfs") {
		t.Errorf("tmpfs at /proc: %+v", r)
	}
}
