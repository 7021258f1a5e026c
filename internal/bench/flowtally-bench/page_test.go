package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/bench/curves"
	"github.com/flowtally/flowtally/internal/bench/keep"
	"github.com/flowtally/flowtally/internal/lab/golden"
)

//go:generate go test -run TestPageHasTheKeptFigures -update

// What `make bench` keeps, and what is made of it.
const (
	kept    = "../../../docs/performance"
	page    = "../../../docs/performance.md"
	picture = "../../../docs/performance.svg"
)

// TestPageHasTheKeptFigures: the tables of the page have a text for each row, and they and the picture are what the kept
// figures give.
func TestPageHasTheKeptFigures(t *testing.T) {
	files, err := keep.Read(kept)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Fatalf("%d files of figures in %s", len(files), kept)
	}

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	made, err := keep.Page(string(text), everyRow(), files)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, page, made, *update)

	var image bytes.Buffer
	if err := curves.Draw(&image, files); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, picture, image.String(), *update)
}
