package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// server is a Prometheus of the distribution.
type server struct {
	t   *testing.T
	url string
}

// prometheusAddress is in the network namespace of the test, which no other process listens in.
const prometheusAddress = "127.0.0.1:9090"

// startPrometheus starts a Prometheus that scrapes targets every second, and evaluates the rules of configs.
func startPrometheus(t *testing.T, targets []string) *server {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(prometheusConfigs)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: flowtally
    static_configs: [{targets: ["%s"]}]
`, filepath.Join(rules, "*.yaml"), strings.Join(targets, `", "`))
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command("prometheus", "--config.file="+path, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+prometheusAddress))
	p.await("Server is ready to receive web requests")
	return &server{t: t, url: "http://" + prometheusAddress}
}

// sample is one element of an instant vector.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) value() float64 {
	text, _ := s.Value[1].(string)
	v, _ := strconv.ParseFloat(text, 64)
	return v
}

// query evaluates an expression now.
func (s *server) query(expr string) []sample {
	s.t.Helper()
	response, err := http.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	var result struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     []sample
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&result); err != nil {
		s.t.Fatal(err)
	}
	if result.Status != "success" || result.Data.ResultType != "vector" {
		s.t.Fatalf("%s: %s %s %s", expr, result.Status, result.Data.ResultType, result.Error)
	}
	return result.Data.Result
}

// await evaluates an expression until ok.
func (s *server) await(expr string, ok func([]sample) bool) []sample {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		got := s.query(expr)
		if ok(got) {
			return got
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s is %v after %s", expr, got, patience)
		}
	}
}
