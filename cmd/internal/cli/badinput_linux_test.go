package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// run runs a command line in this process.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	code = Main(t.Context(), strings.NewReader(""), &out, &talk, args)
	return code, out.String(), talk.String()
}

// TestForeignOwner: a mirror that neither root nor the reader owns is refused,
// unless its owner is named; a check looks at anybody's.
func TestForeignOwner(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	spec, path := filepath.Join(dir, "spec"), filepath.Join(dir, "m", "x.mirror")
	if err := os.WriteFile(spec, []byte("web flow 10 640 sim l2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := newTestWriter(path, spec)
	if err != nil {
		t.Fatal(err)
	}
	w.publish(false)
	if err := w.w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"get", "top", "watch"} {
		code, out, talk := run(t, command, "--mirror", path)
		if code != exitFailed || out != "" || !strings.Contains(talk, path) ||
			!strings.Contains(talk, "belongs to user 12345") || !strings.Contains(talk, "\n  try: --owner UID") {
			t.Errorf("%s: code %d, output %q, error %q", command, code, out, talk)
		}
	}
	if code, out, talk := run(t, "get", "--mirror", path, "--owner", "12345"); code != exitOK || !strings.Contains(out, "web") {
		t.Errorf("with its owner named: code %d, output %q, error %q", code, out, talk)
	}
	if code, out, talk := run(t, "check", "--mirror", path); code != exitOK || !strings.Contains(out, ": ok") {
		t.Errorf("check: code %d, output %q, error %q", code, out, talk)
	}
}
