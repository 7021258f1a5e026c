package main

import (
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

func TestMain(m *testing.M) {
	_ = lab.Isolate(lab.ForTests) // without the privilege, each test names the privilege that it needs
	os.Exit(m.Run())
}
