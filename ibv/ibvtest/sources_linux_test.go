package ibvtest_test

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// A C file must not call a file that calls it, directly or through others. So you can read a file
// after the files it uses, and test it with only them.
func TestNoCircleOfSources(t *testing.T) {
	need.Tool(t, "gcc")
	files, err := filepath.Glob("src/*.c")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d C files, %v", len(files), err)
	}
	defines, uses := make(map[string]string), make(map[string][]string)
	for _, file := range files {
		name := filepath.Base(file)
		object := filepath.Join(t.TempDir(), name+".o")
		if out, err := exec.Command("gcc", "-std=gnu11", "-pthread", "-Isrc", "-I../internal/abi", "-c", "-o", object, file).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		f, err := elf.Open(object)
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.Symbols()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			switch {
			case elf.ST_BIND(s.Info) != elf.STB_GLOBAL:
			case s.Section == elf.SHN_UNDEF:
				uses[name] = append(uses[name], s.Name)
			default:
				defines[s.Name] = name
			}
		}
	}
	done := make(map[string]bool)
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if at := slices.Index(path, name); at >= 0 {
			t.Errorf("a circle: %s", strings.Join(append(path[at:], name), " calls "))
			return
		}
		if done[name] {
			return
		}
		for _, symbol := range uses[name] {
			if of := defines[symbol]; of != "" && of != name {
				visit(of, append(slices.Clone(path), name))
			}
		}
		done[name] = true
	}
	for _, file := range files {
		visit(filepath.Base(file), nil)
	}
}
