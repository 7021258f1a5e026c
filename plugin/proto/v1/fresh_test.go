package pluginv1_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The committed code is the output of protoc for flowtally.proto. The machine's version of protoc
// stands in a comment and is left out.
func TestGeneratedIsFresh(t *testing.T) {
	need.Tool(t, "protoc", "sh")
	out := t.TempDir()
	if b, err := exec.Command("sh", "generate.sh", out).CombinedOutput(); err != nil {
		t.Fatalf("generating: %v\n%s", err, b)
	}
	protoc := regexp.MustCompile(`(?m)^//\s+(- )?protoc\s+v.*$`)
	for _, name := range []string{"flowtally.pb.go", "flowtally_grpc.pb.go"} {
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(out, "plugin", "proto", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(protoc.ReplaceAll(have, nil), protoc.ReplaceAll(want, nil)) {
			t.Errorf("%s is stale: run go generate ./plugin/proto/v1", name)
		}
	}
}
