package cli

import (
	"io"
	"os"
	"strings"
	"testing"
)

// A next step must act on the instance of the failed command, through the same socket and mirror. sudo drops
// environment variables, so the next step must set them.
func TestNextStepsKeepTheSelection(t *testing.T) {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FLOWTALLY_") {
			t.Setenv(name, "") // restored at the end
			os.Unsetenv(name)
		}
	}
	t.Setenv("FLOWTALLY_PLUGIN", "/opt/a b/plugin")
	for _, c := range []struct{ line, try, want string }{
		{"get --instance lb web", "flowtally get # lists all counters", "flowtally get --instance lb # lists all counters"},
		{"get --mirror=/m/x.mirror", "flowtally run --config FILE # writes one", "flowtally run --config FILE --mirror /m/x.mirror # writes one"},
		{"get --owner 7 --owner 8", "flowtally get", "flowtally get --owner 7 --owner 8"},
		{"flows remove x --socket /s/lb.sock", "flowtally flows list", "flowtally flows list --socket /s/lb.sock"},
		{"flows add x any --instance lb", "another name, or: flowtally flows remove NAME", "another name, or: flowtally flows remove NAME --instance lb"},
		{"flows list --socket /s/lb.sock", "start the program again, or: flowtally queue-pairs release --instance lb app", "start the program again, or: flowtally queue-pairs release --instance lb app --socket /s/lb.sock"},
		{"flows list --instance lb", "mode: tcx for eth0, then: flowtally apply --instance lb", "mode: tcx for eth0, then: flowtally apply --instance lb"},
		{"get --instance lb", "flowtally instances", "flowtally instances"}, // which lists all
		{"clean --instance lb", "flowtally detach --instance lb", "flowtally detach --instance lb"},
		{"clean --instance lb", "AGAIN --yes", "flowtally clean --instance lb --yes"},
		{"flows list --instance lb", "SUDO # or not", "sudo env 'FLOWTALLY_PLUGIN=/opt/a b/plugin' " + quote(program()) + " flows list --instance lb # or not"},
	} {
		var r root
		p, err := newParser(&r, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Fields(c.line)
		ctx, err := p.Parse(args)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&commandLine{args, ctx}).complete(c.try); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}
