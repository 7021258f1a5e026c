package cli

import (
	"bufio"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// unit is a setting of the unit that is shipped.
func unit(t *testing.T, setting string) string {
	t.Helper()
	f, err := os.Open("../../../configs/systemd/flowtally.service")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), setting+"="); ok {
			return value
		}
	}
	t.Fatalf("the unit has no %s=", setting)
	return ""
}

// They must also suffice to wake a group, if the unit names one.
func TestCapabilitiesOfTheUnitSuffice(t *testing.T) {
	need.Tool(t, "setpriv")
	const group = "4321"
	in := newInstance(t, "mirror: {wait_group: "+group+"}\n")
	unit(t, "SupplementaryGroups")
	bounding := "-all"
	for name := range strings.FieldsSeq(unit(t, "CapabilityBoundingSet")) {
		bounding += ",+" + strings.ToLower(strings.TrimPrefix(name, "CAP_"))
	}
	under := []string{"setpriv", "--bounding-set=" + bounding, "--inh-caps=-all", "--no-new-privs"}

	in.under = append(under, "--clear-groups")
	in.begin()
	if err := in.cmd.Wait(); err == nil || !strings.Contains(in.talk.String(), "SupplementaryGroups=") {
		t.Errorf("without the group it ended with %v:\n%s", err, in.talk)
	}
	in.cmd = nil

	in.under = append(under, "--groups="+group)
	in.start()
	in.send(1000)
	in.exact()
	info, err := os.Stat(strings.TrimSuffix(in.mirror, ".mirror") + ".wait")
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Gid != 4321 || info.Mode().Perm() != 0o640 {
		t.Errorf("the page of those who wait is of group %d, mode %v", st.Gid, info.Mode())
	}
	in.stop()
}
