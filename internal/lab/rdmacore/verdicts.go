package rdmacore

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// verdicts are the outcomes of cases, by the name of the case: "pass", "skip", "unrun", or what went wrong.
type verdicts map[string]string

// ran returns the number of the cases that have begun.
func (v verdicts) ran() int {
	n := 0
	for _, verdict := range v {
		if verdict != "unrun" {
			n++
		}
	}
	return n
}

// judges are the names of the judges, by the beginning of the names of their cases.
func judges() map[string]string {
	return map[string]string{"tests.": "pyverbs", "ibv_": "pingpongs", "ib_": "perftest", "fi_": "libfabric"}
}

func judgeOf(name string) string {
	for begin, judge := range judges() {
		if strings.HasPrefix(name, begin) {
			return judge
		}
	}
	return name // of a class or a module that could not begin, in unittest's words
}

// compare returns how the verdicts differ from the lists. A release that the lists do not name is like the newest of them,
// except that its suite may have lost cases of the lists, and may have new ones that pass.
func compare(passes, known []listedCase, device, version string, got verdicts) []string {
	var problems []string
	as := version
	if !names(known, version) {
		as = newestListed
	}
	wants := make(map[string]string)
	for _, k := range known {
		if k.is(device, as) {
			wants[k.name] = k.reason
		}
	}
	for _, p := range passes {
		if p.is(device, as) {
			wants[p.name] = "pass"
		}
	}
	present := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(got)) {
		present[judgeOf(name)] = true
		verdict, want := got[name], wants[name]
		problem := ""
		switch {
		case verdict == "unrun":
			problem = "did not run"
		case want == "pass" && verdict != "pass":
			problem = "no longer passes: " + verdict
		case want == "" && verdict == "pass" && as == version:
			problem = "passes, and passes.txt does not list it"
		case want != "" && want != "pass" && (verdict == "pass" || verdict == "skip"):
			problem = fmt.Sprintf("is in known.txt (%s): it has the verdict %q now", want, verdict)
		case want == "" && verdict != "pass" && verdict != "skip":
			problem = "fails, and known.txt does not list it: " + verdict
		}
		if problem != "" {
			problems = append(problems, fmt.Sprintf("%s, %s: %s %s", version, device, name, problem))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		if _, is := got[name]; !is && as == version && present[judgeOf(name)] {
			problems = append(problems, fmt.Sprintf("%s, %s: %s is listed, and its judge does not have it", version, device, name))
		}
	}
	if len(got) == 0 {
		problems = append(problems, fmt.Sprintf("%s, %s: no case ran", version, device))
	}
	return problems
}

// listedCase is the verdict on a case over releases.
type listedCase struct {
	reason, device, name string
	releases             []string
}

func (l listedCase) is(device, version string) bool {
	return l.device == device && slices.Contains(l.releases, version)
}

// names reports whether a case of the list is of the release.
func names(list []listedCase, version string) bool {
	return slices.ContainsFunc(list, func(l listedCase) bool { return slices.Contains(l.releases, version) })
}

// newestListed is the last release of the lists.
const newestListed = "65.0"

// readCases reads a list: reasons in lines that begin with "# ", and below each of them "RELEASES DEVICE CASE".
func readCases(path string) ([]listedCase, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []listedCase
	reason := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if said, is := strings.CutPrefix(line, "# "); is {
			reason = said
			continue
		}
		if line == "" {
			continue
		}
		part := strings.SplitN(line, " ", 3)
		if len(part) != 3 || reason == "" {
			return nil, fmt.Errorf("reading %s: %q is not RELEASES DEVICE CASE below a reason", path, line)
		}
		list = append(list, listedCase{reason: reason, device: part[1], name: part[2], releases: strings.Split(part[0], ",")})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return list, nil
}
