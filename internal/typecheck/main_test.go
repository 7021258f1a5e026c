package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaultsOfOneSystemAreFoundThere checks a module in which a file for Darwin and a test for arm64 have wrong types.
func TestFaultsOfOneSystemAreFoundThere(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                "module example.org/m\n\ngo 1.26\n",
		"m.go":                  "package m\n\nimport \"os\"\n\nfunc pid() int { return os.Getpid() }\n",
		"m_darwin.go":           "package m\n\nvar name string = pid()\n",
		"m_linux_arm64_test.go": "package m\n\nvar absent = missing\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	for _, tt := range []struct{ system, want string }{
		{"linux/amd64", ""},
		{"darwin/arm64", "m_darwin.go:3:19: cannot use pid()"},
		{"linux/arm64", "m_linux_arm64_test.go:3:14: undefined: missing"},
		{"darwin", `reading the system "darwin": want GOOS/GOARCH`},
	} {
		t.Run(tt.system, func(t *testing.T) {
			err := check(dir, tt.system)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
