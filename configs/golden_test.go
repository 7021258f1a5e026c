package configs_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/golden"
)

var update = flag.Bool("update", false, "write the golden files")

// Each file of testdata/bad is refused with the text that stands beside it.
func TestEachMistakeHasItsGoldenText(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = configs.Parse(filepath.Base(file), data)
			var bad *configs.Error
			if !errors.As(err, &bad) || !errors.Is(err, dataplane.ErrInvalid) {
				t.Fatalf("error %v, want an *Error that satisfies ErrInvalid", err)
			}
			for _, p := range bad.Problems {
				if p.Line < 1 || p.Col < 1 || p.Width < 1 {
					t.Errorf("%q has no place", p.Msg)
				}
			}
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n", *update)
		})
	}
}
