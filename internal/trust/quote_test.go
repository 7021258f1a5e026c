package trust

import "testing"

func TestPathsAreQuotedForAShell(t *testing.T) {
	for path, want := range map[string]string{
		"/run/flowtally/x.mirror": "/run/flowtally/x.mirror",
		"/run/a b":                "'/run/a b'",
		"/run/root's":             `'/run/root'\''s'`,
		"/run/$(reboot)":          "'/run/$(reboot)'",
	} {
		if got := Quote(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
