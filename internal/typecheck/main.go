// Command typecheck checks the types of all packages of this module, tests included, for other systems than this one.
//
// It reads the sources of the dependencies too, the standard library among them, and compiles nothing. So it takes a
// sixteenth of the time of go vet on a machine where nothing is compiled for those systems. The analyses of go vet are
// left to make lint.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: typecheck GOOS/GOARCH…")
		os.Exit(2)
	}
	for _, system := range os.Args[1:] {
		if err := check(".", system); err != nil {
			fmt.Fprintln(os.Stderr, "typecheck:", err)
			os.Exit(1)
		}
	}
}

// check type-checks the packages below dir as they are without cgo on a system, such as "darwin/arm64".
func check(dir, system string) error {
	goos, arch, ok := strings.Cut(system, "/")
	if !ok {
		return fmt.Errorf("reading the system %q: want GOOS/GOARCH", system)
	}

	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
		Dir:   dir,
		Env:   append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch),
		Tests: true,
	}, "./...")
	if err != nil {
		return fmt.Errorf("listing the packages for %s: %w", system, err)
	}
	if len(loaded) == 0 {
		return fmt.Errorf("listing the packages for %s: %s has none", system, dir)
	}

	var found []error
	packages.Visit(loaded, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			found = append(found, fmt.Errorf("checking %s for %s: %w", p.ID, system, e))
		}
	})
	return errors.Join(found...)
}
