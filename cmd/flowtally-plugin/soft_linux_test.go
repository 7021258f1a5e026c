package main

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/flowtally/flowtally/dataplane/probe"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

var buildSoft = sync.OnceValues(func() (ibvtest.Libs, error) {
	dir, err := os.MkdirTemp("", "flowtally-plugin-")
	if err != nil {
		return ibvtest.Libs{}, err
	}
	softDir = dir
	return ibvtest.Build(dir)
})

// softLibs is the software libibverbs with its providers, built once per run.
func softLibs(t *testing.T) ibvtest.Libs {
	t.Helper()
	need.Tool(t, "gcc")
	libs, err := buildSoft()
	if err != nil {
		t.Fatal(err)
	}
	lib, err := ibv.Load(ibv.Options{Library: libs.Verbs})
	if errors.Is(err, probe.ErrNotSupported) {
		need.Missing(t, "cgo", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	lib.Close()
	return libs
}
