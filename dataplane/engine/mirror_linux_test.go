package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/inject"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// The group has a number or a name.
func TestTheGroupThatMayWaitOwnsThePage(t *testing.T) {
	need.Root(t) // to give a file to another group
	for _, c := range []struct {
		name string
		gid  uint32
		mode os.FileMode
		bad  bool
	}{
		{name: "", gid: uint32(os.Getegid()), mode: 0o600}, {name: "4321", gid: 4321, mode: 0o640}, {name: "daemon", gid: 1, mode: 0o640},
		{name: "root", bad: true}, {name: "0", bad: true}, {name: "nobody-has-this-group", bad: true}, {name: "99999999999", bad: true},
	} {
		cfg := config(t)
		cfg.Mirror.WaitGroup = c.name
		if c.bad {
			if _, err := New(inject.Backends(t.Context(), newHand("hand")), cfg, Options{}); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), c.name) {
				t.Errorf("%q: %v", c.name, err)
			}
			continue
		}
		start(t, cfg, newHand("hand"))
		pages, _ := filepath.Glob(strings.TrimSuffix(cfg.Mirror.Path, ".mirror") + ".wait")
		if len(pages) != 1 {
			t.Fatalf("%q: pages %v", c.name, pages)
		}
		st, err := os.Stat(pages[0])
		if err != nil {
			t.Fatal(err)
		}
		if gid := st.Sys().(*syscall.Stat_t).Gid; gid != c.gid || st.Mode() != c.mode {
			t.Errorf("%q: the page is of group %d, mode %v, want %d, %v", c.name, gid, st.Mode(), c.gid, c.mode)
		}
	}
}
