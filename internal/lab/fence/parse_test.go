package fence

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAFenceYieldsItsCommandsAndTheirOutput(t *testing.T) {
	const document = "Text.\n\n```console until=\"counting\" fails\n$ cat >a <<'EOF'\n# no command\nEOF\n# run \\\n  --now\nout\n```\n" +
		"```console until=\"up\" not-run: needs a card\n# rdma\n```\n```yaml file=lb.yaml\na: b\n```\n```go\nfunc\n```\n"
	fences, errs := Parse(document)
	if len(errs) > 0 || len(fences) != 4 {
		t.Fatalf("%d fences, %v", len(fences), errs)
	}
	if f := fences[0]; f.Until != "counting" || !f.Fails || f.Line != 3 || !f.Runs() {
		t.Errorf("%+v", f)
	}
	got, err := fences[0].Commands()
	want := []Command{{4, false, "cat >a <<'EOF'\n# no command\nEOF", nil}, {7, true, "run \\\n  --now", []string{"out"}}}
	if err != nil || !cmp.Equal(got, want, cmp.AllowUnexported(Command{})) {
		t.Errorf("%v\n%s", err, cmp.Diff(want, got, cmp.AllowUnexported(Command{})))
	}
	if f := fences[1]; f.Runs() || f.NotRun != "needs a card" || f.Until != "up" {
		t.Errorf("%+v", f)
	}
	if f := fences[2]; !f.Runs() || f.File != "lb.yaml" {
		t.Errorf("%+v", f)
	}
	if fences[3].Runs() {
		t.Error("Go is run")
	}
}

func TestMistakesOfFencesAreRefused(t *testing.T) {
	for document, want := range map[string]string{
		"```console unless=x\n```\n":    `line 1: info string "unless=x"`,
		"```console not-run:\n```\n":    "not-run without a reason",
		"```\n# flowtally get\n```\n":   "line 2: a fence without a language holds the command",
		"```\nsudo make install\n```\n": "line 2: a fence without a language holds the command",
		"```console\n$ true\n":          "line 1: the fence does not end",
	} {
		if _, errs := Parse(document); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%q: %v, want %s", document, errs, want)
		}
	}
	if _, err := (Fence{Line: 1, Language: "console", Text: "output\n"}).Commands(); err == nil {
		t.Error("output without a command is accepted")
	}
}

func TestOutputMayDifferOnlyInFiguresThatVary(t *testing.T) {
	for _, c := range []struct {
		shown, output string
		want          bool
	}{
		{"web  1,234  5.1 MiB  21ms  xdp:eth0/native", "web   7  12 B  1.5s  xdp:eth0/native\n", true},
		{"web  1  xdp:eth0/native", "web  1  xdp:eth1/native\n", false},
		{"web: 1,000 packets", "web: 1006 packets\n", false},
		{"web: 1000 packets", "web: 1,006 packets\n", false},
		{"web: 1,000 packets", "web: 22,006 packets\n", true},
		{"web: 1000 packets", "web: 22006 packets\n", true},
		{"web: 1000 packets", "web: 6 packets\n", true},
		{"cpus 0,1,2", "cpus 4096\n", true},
		{"web 1", "dns 1\n", false},
		{"web 1", "web 1\nmore 1\n", false},
		{"web 1\n…", "web 1\nmore 1\nand more\n", true},
		{"web 1\n…\nend", "web 1\nend\n", true},
		{"web …, ok", "web 12 of 15, ok\n", true},
		{"pid 17 at 2026-11-22T10:00:01Z on 02:42:ac:11:00:02", "pid 4 at 2027-01-02T11:12:13.5Z on 0e:42:ac:11:00:ff\n", true},
		{"AGE  SOURCE\n---- ----", "AGE     SOURCE\n------- ------\n", true},
	} {
		if got := Matches(strings.Split(c.shown, "\n"), c.output); got != c.want {
			t.Errorf("Matches(%q, %q) = %t", c.shown, c.output, got)
		}
	}
}
