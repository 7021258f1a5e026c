package export

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

const shippedConfigs = "../../../configs"

// An alert on a series that does not exist would never fire. Each alert must find its series in an exporter with the
// flags of the shipped unit, and an optional alert with the flag named in its comment.
func TestEachAlertHasItsSeries(t *testing.T) {
	unit := readConfig(t, "systemd/flowtally-export.service")
	flags := regexp.MustCompile(`(?m)^ExecStart=\S+ export (.*)$`).FindStringSubmatch(unit)[1]
	alerts := 0
	for _, file := range []string{"alerts.yaml", "alerts-optional.yaml"} {
		for _, alert := range strings.Split(readConfig(t, "prometheus/"+file), "- alert: ")[1:] {
			alerts++
			name, rest, _ := strings.Cut(alert, "\n")
			expr, _, _ := strings.Cut(rest, "labels:")
			with := flags
			if asked := regexp.MustCompile(`# Needs (--\w+)\.`).FindStringSubmatch(expr); (asked != nil) != (file == "alerts-optional.yaml") {
				t.Errorf("%s: alert %s names a flag: %t", file, name, asked != nil)
			} else if asked != nil {
				with += " " + asked[1]
			}
			exported := exportedWith(t, with)
			for _, m := range regexp.MustCompile(`\b(flowtally_\w+)(?:\{([^}]*)\})?`).FindAllStringSubmatch(expr, -1) {
				if !slices.ContainsFunc(exported, func(series string) bool { return selects(m[1], m[2], series) }) {
					t.Errorf("%s: alert %s can never fire: %s is no series of flowtally export %s", file, name, m[0], with)
				}
			}
		}
	}
	if alerts < 10 {
		t.Errorf("only %d alerts were found", alerts)
	}
}

// selects reports whether a selector of PromQL, without its braces, selects a series.
func selects(metric, matchers, series string) bool {
	if series != metric && !strings.HasPrefix(series, metric+",") {
		return false
	}
	for _, m := range regexp.MustCompile(`(\w+)(=~?)"([^"]*)"`).FindAllStringSubmatch(matchers, -1) {
		value := regexp.QuoteMeta(m[3])
		if m[2] == "=~" {
			value = m[3]
		}
		if !regexp.MustCompile("," + m[1] + "=(?:" + value + ")(,|$)").MatchString(series) {
			return false
		}
	}
	return true
}

// exportedWith returns the series of an exporter with those flags, over a mirror with each kind of counter.
func exportedWith(t *testing.T, flags string) []string {
	t.Helper()
	drop, doubtful := webEntry("drop"), webEntry("doubtful")
	drop.Labels = map[string]string{"action": "drop"}
	doubtful.Ambiguous = true
	m := newMirror(t, drop, doubtful)
	m.publish(map[string][2]uint64{"drop": {10, 640}, "doubtful": {1, 64}})
	o := Options{Path: m.path}
	if keys := regexp.MustCompile(`--label-keys (\S+)`).FindStringSubmatch(flags); keys != nil {
		o.LabelKeys = strings.Split(keys[1], ",")
	}
	e := newExporter(t, o)
	if strings.Contains(flags, "--conditions") {
		e.conditions.asked = true
		e.conditions.list = []dataplane.Condition{{Code: "a", Severity: dataplane.High}, {Code: "b", Severity: dataplane.Medium}}
	}
	if strings.Contains(flags, "--otlp") {
		pusherOf(t, e)
	}
	var series []string
	for id := range scrape(t, e) {
		series = append(series, id)
	}
	return series
}

func readConfig(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(shippedConfigs, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
