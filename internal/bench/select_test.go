package bench

import (
	"errors"
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	rows := []Row{{Name: "shm.read"}, {Name: "shm.read.c"}, {Name: "xdp.one"}}
	for _, tt := range []struct {
		patterns []string
		want     string
		err      error
	}{
		{nil, "shm.read shm.read.c xdp.one", nil},
		{[]string{"xdp.one", "shm.read"}, "shm.read xdp.one", nil},
		{[]string{"shm.*"}, "shm.read shm.read.c", nil},
		{[]string{"shm.raed"}, "", ErrNoRow},
	} {
		got, err := Select(rows, tt.patterns)
		var names []string
		for _, r := range got {
			names = append(names, r.Name)
		}
		if strings.Join(names, " ") != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("Select(%q) = %q, %v; want %q, %v", tt.patterns, names, err, tt.want, tt.err)
		}
	}
	if _, err := Select(rows, []string{"["}); err == nil {
		t.Error("an invalid pattern was taken")
	}
}
