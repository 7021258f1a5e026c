package rdmacore

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// RanEnv names the file in which the tests write over which release they run: `make test-releases` compares it with the
// matrix of docs/rdma.md.
const RanEnv = "FLOWTALLY_RAN"

// Suites are those whose rdma-core is tested: of the distribution that the tests run on, of the next one,
// and of the one that changes every day. Each has the release that it holds on the day.
func Suites() []string { return []string{"bookworm", "trixie", "sid"} }

// Matrix is the table of docs/rdma.md: the tests that run over the real libraries of each suite, by suite.
type Matrix struct {
	Versions map[string]string   // the rdma-core of each suite, "44.0"
	Tests    map[string][]string // the tests in the cells of each suite, sorted, once each
	Shim     []string            // the tests in cells of the shim
}

var (
	matrixColumn = regexp.MustCompile("^([0-9]+\\.[0-9]+) \\(([a-z]+)\\)$")
	matrixTest   = regexp.MustCompile("^(shim: )?`(Test[A-Za-z0-9_]+)`$")
)

// ReadMatrix reads the matrix from the text of docs/rdma.md. A cell of a release is a test, several with commas between,
// or one of the known words.
func ReadMatrix(path string) (*Matrix, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := &Matrix{Versions: make(map[string]string), Tests: make(map[string][]string)}
	var suites []string // of the columns; "" for a column without a suite
	for lines := bufio.NewScanner(f); lines.Scan(); {
		cells := strings.Split(strings.Trim(lines.Text(), "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(suites) == 0 && len(cells) > 3 && cells[0] == "interface" && cells[1] == "device":
			suites = make([]string, len(cells))
			for i, c := range cells {
				if v := matrixColumn.FindStringSubmatch(c); v != nil {
					suites[i] = v[2]
					m.Versions[v[2]] = v[1]
				}
			}
		case len(suites) == 0 || strings.HasPrefix(cells[0], "---"):
		case len(cells) != len(suites):
			return m, m.tidy() // the end of the table
		default:
			for i, suite := range suites {
				if suite == "" {
					continue
				}
				if err := m.cell(suite, cells[i]); err != nil {
					return nil, fmt.Errorf("%s: row %q: %w", path, cells[0], err)
				}
			}
		}
	}
	return m, m.tidy()
}

func (m *Matrix) cell(suite, text string) error {
	switch text {
	case "never", "not in the release", "not in a suite":
		return nil
	}
	for part := range strings.SplitSeq(text, ", ") {
		switch t := matrixTest.FindStringSubmatch(part); {
		case t == nil:
			return fmt.Errorf("%s: %q is no test", suite, part)
		case t[1] != "":
			m.Shim = append(m.Shim, t[2])
		default:
			m.Tests[suite] = append(m.Tests[suite], t[2])
		}
	}
	return nil
}

func (m *Matrix) tidy() error {
	for suite, tests := range m.Tests {
		slices.Sort(tests)
		m.Tests[suite] = slices.Compact(tests)
	}
	for _, suite := range Suites() {
		if m.Versions[suite] == "" || len(m.Tests[suite]) == 0 {
			return fmt.Errorf("the matrix has no column of %s with tests", suite)
		}
	}
	return nil
}
