package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestEveryFuzzTargetIsRun runs `make fuzz` with a go command whose test binaries only
// print their package and arguments, and compares with the targets in the sources.
func TestEveryFuzzTargetIsRun(t *testing.T) {
	need.Tool(t, "make", "bash", "awk")
	fake := filepath.Join(t.TempDir(), "go")
	script := `#!/bin/sh
case "$1" in
list | env) exec go "$@" ;;
test) # -c -fuzz . -o FILE DIR
	[ "$2 $3 $4 $5" = "-c -fuzz . -o" ] || exit 9
	printf '#!/bin/sh\necho "RUN %s $*"\n' "$(go list "$7")" >"$6" && chmod +x "$6" ;;
*) exit 9 ;;
esac
`
	if err := os.WriteFile(fake, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "-s", "fuzz", "GO="+fake)
	cmd.Dir = "../.."
	for _, kv := range os.Environ() { // this may run below a make
		if !strings.HasPrefix(kv, "MAKE") && !strings.HasPrefix(kv, "MFLAGS=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make fuzz: %v\n%s", err, out)
	}
	ran := make(map[string]int)
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "RUN" {
			for i, w := range words[:len(words)-1] {
				if w == "-test.fuzz" {
					ran[words[1]+" "+words[i+1]]++
				}
			}
		}
	}
	targets := 0
	for _, p := range packages(t) {
		for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && strings.HasPrefix(d.Name.Name, "Fuzz") {
					targets++
					if key := p.ImportPath + " ^" + d.Name.Name + "$"; ran[key] != 1 {
						t.Errorf("make fuzz runs %s of %s %d times", d.Name.Name, p.ImportPath, ran[key])
					}
				}
			}
		}
	}
	if targets < 10 || targets != len(ran) {
		t.Errorf("%d targets in the sources, %d are run", targets, len(ran))
	}
}
