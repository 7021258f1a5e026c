package shmtest_test

import (
	"testing"

	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

func TestMirrorForATest(t *testing.T) {
	w := shmtest.MustCreate(t, shm.Options{Counters: 64})
	h, err := w.Add(shm.Entry{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := shmtest.MustOpen(t, w.Path()).Lookup("a"); err != nil || got != h {
		t.Fatal(got, err)
	}
}
