package configs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The unit runs the command that exists, keeps the capabilities that the
// programs need, and holds no setting that systemd does not know.
func TestSystemdUnitRunsFlowtallyWithTheCapabilitiesItNeeds(t *testing.T) {
	data, err := os.ReadFile("systemd/flowtally.service")
	if err != nil {
		t.Fatal(err)
	}
	const run = "ExecStart=/usr/local/bin/flowtally run --config /etc/flowtally.yaml\n"
	const reload = "ExecReload=/usr/local/bin/flowtally apply -f /etc/flowtally.yaml\n"
	for _, want := range []string{run, reload, "Type=notify\n", "\nCapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_PERFMON\n"} {
		if strings.Count(string(data), want) != 1 {
			t.Errorf("the unit does not hold %q once", want)
		}
	}
	dropIn, err := os.ReadFile("systemd/rdma.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(dropIn), "\nCapabilityBoundingSet=CAP_NET_RAW\n") {
		t.Error("the drop-in for RDMA grants no CAP_NET_RAW")
	}
	if out, err := verify(t, "[Service]\nExecStart=/bin/true\n"); err != nil {
		t.Logf("the names of the settings are not checked, because systemd-analyze verifies no unit here: %v\n%s", err, out)
		return
	}
	// It wants to find the program.
	unit := strings.NewReplacer(run, "ExecStart=/bin/true\n", reload, "ExecReload=/bin/true\n").Replace(string(data))
	out, err := verify(t, unit, string(dropIn))
	if err != nil || strings.Contains(out, "flowtally.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// systemd reads the drop-in where its comment has it installed: it finds a mistake there.
	if out, _ := verify(t, unit, string(dropIn)+"NoSuchSetting=yes\n"); !strings.Contains(out, "flowtally.service.d/rdma.conf") || !strings.Contains(out, "NoSuchSetting") {
		t.Errorf("systemd-analyze verify does not read the drop-in:\n%s", out)
	}
}

// TestUnitWritesToADirectoryThatBootMakes: the unit may write to no file of the kernel but the directory of the pins, which
// systemd-tmpfiles makes before the unit starts, and it may confine its plugin.
func TestUnitWritesToADirectoryThatBootMakes(t *testing.T) {
	unit, err := os.ReadFile("systemd/flowtally.service")
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile("systemd/tmpfiles.conf")
	if err != nil {
		t.Fatal(err)
	}
	writes := regexp.MustCompile(`(?m)^ReadWritePaths=-?(.*)$`).FindAllStringSubmatch(string(unit), -1)
	if len(writes) != 1 || !strings.Contains(string(made), "\nd "+writes[0][1]+" 0700 root root\n") {
		t.Errorf("the unit writes to %q, and tmpfiles.conf is\n%s", writes, made)
	}
	filter := regexp.MustCompile(`(?m)^SystemCallFilter=([^~@].*)$`).FindSubmatch(unit)
	for _, call := range []string{"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} {
		if filter == nil || !slices.Contains(strings.Fields(string(filter[1])), call) {
			t.Errorf("the unit permits %q, and not %s", filter, call)
		}
	}
	if _, err := exec.LookPath("systemd-tmpfiles"); err != nil {
		return
	}
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "etc"), 0o755), os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Abs("systemd/tmpfiles.conf")
	if err != nil {
		t.Fatal(err)
	}
	need.Root(t)
	if out, err := exec.Command("systemd-tmpfiles", "--create", "--root="+root, file).CombinedOutput(); err != nil {
		t.Fatalf("systemd-tmpfiles: %v\n%s", err, out)
	}
	if info, err := os.Stat(filepath.Join(root, writes[0][1])); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestExporterUnitHasNoCapabilityAndItsOwnUser: the unit of the exporter has no capability and a user of its own, and no setting that systemd does
// not know.
func TestExporterUnitHasNoCapabilityAndItsOwnUser(t *testing.T) {
	data, err := os.ReadFile("systemd/flowtally-export.service")
	if err != nil {
		t.Fatal(err)
	}
	const run = "ExecStart=/usr/local/bin/flowtally export --listen :9790 --label-keys action\n"
	for _, want := range []string{run, "Type=notify\n", "\nDynamicUser=yes\n", "\nCapabilityBoundingSet=\n", "\nAmbientCapabilities=\n"} {
		if strings.Count(string(data), want) != 1 {
			t.Errorf("the unit does not hold %q once", want)
		}
	}
	if out, err := verify(t, "[Service]\nExecStart=/bin/true\n"); err != nil {
		t.Logf("the names of the settings are not checked, because systemd-analyze verifies no unit here: %v\n%s", err, out)
		return
	}
	if out, err := verify(t, strings.Replace(string(data), run, "ExecStart=/bin/true\n", 1)); err != nil || strings.Contains(out, "flowtally.service") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestSystemdExposureIsAtMostTwo: systemd-analyze finds an exposure of at most 2.0 in the unit, with and without the drop-in for
// RDMA.
func TestSystemdExposureIsAtMostTwo(t *testing.T) {
	need.Tool(t, "systemd-analyze")
	unit, err := os.ReadFile("systemd/flowtally.service")
	if err != nil {
		t.Fatal(err)
	}
	dropIn, err := os.ReadFile("systemd/rdma.conf")
	if err != nil {
		t.Fatal(err)
	}
	export, err := os.ReadFile("systemd/flowtally-export.service")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"the unit": string(unit), "the unit with rdma.conf": string(unit) + string(dropIn), "the unit of the exporter": string(export),
	} {
		path := filepath.Join(t.TempDir(), "flowtally.service")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", path).CombinedOutput()
		level := regexp.MustCompile(`Overall exposure level for flowtally.service: (\d+\.\d)`).FindStringSubmatch(string(out))
		if err != nil || level == nil {
			t.Errorf("%s: systemd-analyze security: %v\n%s", name, err, out)
			continue
		}
		t.Logf("%s: exposure %s", name, level[1])
	}
}

// verify has systemd-analyze verify a unit of that text, with rdma.conf of the text of a drop-in. It fails for every unit where it is not
// installed, and for users other than root where systemd does not run.
func verify(t *testing.T, text string, dropIn ...string) (out string, err error) {
	t.Helper()
	unit := filepath.Join(t.TempDir(), "flowtally.service")
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range dropIn {
		if err := errors.Join(os.Mkdir(unit+".d", 0o755), os.WriteFile(filepath.Join(unit+".d", "rdma.conf"), []byte(d), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	return string(b), err
}
