package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/exportrows"
	"github.com/flowtally/flowtally/internal/bench/flowrows"
	"github.com/flowtally/flowtally/internal/bench/pollrows"
	"github.com/flowtally/flowtally/internal/bench/queuerows"
	"github.com/flowtally/flowtally/internal/bench/readrows"
	"github.com/flowtally/flowtally/internal/bench/shmrows"
	"github.com/flowtally/flowtally/internal/bench/toprows"
	"github.com/flowtally/flowtally/internal/bench/vethrows"
	"github.com/flowtally/flowtally/internal/bench/xdprows"
)

// everyRow is every row, in the order in which it is printed.
func everyRow() []bench.Row {
	bin := programs()
	return slices.Concat(
		shmrows.Rows(),
		readrows.Rows(bin),
		xdprows.Rows(),
		vethrows.Rows(),
		pollrows.Rows(),
		queuerows.Rows(),
		flowrows.Rows(bin),
		toprows.Rows(bin),
		exportrows.Rows(bin),
	)
}

// programs is the directory of this program. A row that needs another program of it says so where that is missing.
func programs() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	return filepath.Dir(self)
}

// everyFloor is every program that a row starts to compare with, by its name.
func everyFloor() map[string]bench.Floor {
	floors := pollrows.Floors()
	maps.Copy(floors, toprows.Floors())
	return floors
}
