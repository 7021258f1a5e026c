package ibv

import (
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane/probe"
)

// TestSystemLibrary opens the distribution's own: whatever it is, it is used or refused
// with a reason.
func TestSystemLibrary(t *testing.T) {
	lib, err := Load(Options{})
	if errors.Is(err, probe.ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	t.Log(lib.Path(), lib.Has("ibv_open_device"), lib.Has("ibv_create_comp_cntr"))
	list, err := lib.Devices()
	if err != nil && !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("the device list: %v", err)
	}
	t.Log(list, err)
	if _, err := lib.Open("nosuch0"); !errors.Is(err, ErrNoDevice) && !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("opening a device that is not there: %v", err)
	}
}
