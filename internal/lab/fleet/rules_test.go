package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

const prometheusConfigs = "../../../configs/prometheus"

// TestRules: promtool accepts the rules, and its unit tests hold. Each alert has a test in which it fires.
func TestRules(t *testing.T) {
	need.Tool(t, "promtool")
	rules, err := filepath.Glob(filepath.Join(prometheusConfigs, "*.yaml"))
	if err != nil || len(rules) != 3 {
		t.Fatalf("the files of rules are %v, %v", rules, err)
	}
	tests, err := filepath.Glob(filepath.Join(prometheusConfigs, "tests", "*.yaml"))
	if err != nil || len(tests) != 3 {
		t.Fatalf("the files of tests are %v, %v", tests, err)
	}
	for _, args := range [][]string{append([]string{"check", "rules"}, rules...), append([]string{"test", "rules"}, tests...)} {
		out, err := exec.Command("promtool", args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("promtool %s:\n%s", strings.Join(args[:2], " "), out)
	}
	var alerts, tested string
	for _, name := range []string{"alerts.yaml", "alerts-optional.yaml"} {
		alerts += read(t, filepath.Join(prometheusConfigs, name))
		tested += read(t, filepath.Join(prometheusConfigs, "tests", name))
	}
	names := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(alerts, -1)
	if len(names) < 10 {
		t.Fatalf("only %d alerts were found", len(names))
	}
	for _, n := range names {
		fires := regexp.MustCompile(`alertname: ` + n[1] + `\n\s+exp_alerts:\n\s+- exp_labels`)
		if !fires.MatchString(tested) || !strings.Contains(tested, "alertname: "+n[1]+"}") {
			t.Errorf("alert %s has no test in which it fires, and none in which it is quiet", n[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
