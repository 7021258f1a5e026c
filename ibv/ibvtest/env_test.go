package ibvtest_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

func TestEnvironSetsEveryVariable(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp/t")
	for _, tt := range []struct {
		name string
		env  ibvtest.Env
		want []string
	}{
		{"nothing", ibvtest.Env{}, []string{
			"FLOWTALLY_IBVTEST_DEVICES=", "FLOWTALLY_IBVTEST_FAIL=", "FLOWTALLY_IBVTEST_DELAY=",
			"FLOWTALLY_IBVTEST_WITHOUT=", "FLOWTALLY_IBVTEST_CONTROL=", "FLOWTALLY_IBVTEST_STATISTICS=", "FLOWTALLY_IBVTEST_MUTANT=",
			"FLOWTALLY_IBVTEST_COMP_CNTR_MAX=", "FLOWTALLY_IBVTEST_COMP_CNTR_OPS=",
			"FLOWTALLY_PLUGIN_PATHS=/tmp/t",
		}},
		{"all", ibvtest.Env{
			Devices: []ibvtest.Device{{Name: "swnic0", Netdev: "v0"}, {Name: "swnic1", Netdev: "v1"}},
			Fail: []ibvtest.Fault{
				{Verb: "ibv_create_flow", Errno: "EPERM"},
				{Verb: "ibv_read_counters", Errno: "EIO", From: 3},
				{Verb: "ibv_read_counters", Errno: "5", From: 3, To: 5},
				{Device: "swnic1", Verb: "ibv_alloc_pd", Errno: "ENOMEM", To: 1},
			},
			Delay:      []ibvtest.Delay{{Verb: "ibv_read_counters", Time: 100 * time.Microsecond}, {Device: "swnic0", Verb: "QUERY_FLOW_COUNTER", Time: time.Second}},
			Without:    []string{"counters", "swnic1/flows"},
			Control:    "/run/c",
			Statistics: "/run/s",

			Mutant: "wrong_handle",

			CompCntrMax: []string{"7", "swnic0/0xff"},
			CompCntrOps: []string{"send", "swnic0/recv"},
		}, []string{
			"FLOWTALLY_IBVTEST_DEVICES=swnic0=v0,swnic1=v1",
			"FLOWTALLY_IBVTEST_FAIL=ibv_create_flow=EPERM,ibv_read_counters=EIO@3,ibv_read_counters=5@3-5,swnic1/ibv_alloc_pd=ENOMEM@1-1",
			"FLOWTALLY_IBVTEST_DELAY=ibv_read_counters=100000ns,swnic0/QUERY_FLOW_COUNTER=1000000000ns",
			"FLOWTALLY_IBVTEST_WITHOUT=counters,swnic1/flows",
			"FLOWTALLY_IBVTEST_CONTROL=/run/c",
			"FLOWTALLY_IBVTEST_STATISTICS=/run/s",
			"FLOWTALLY_IBVTEST_MUTANT=wrong_handle",
			"FLOWTALLY_IBVTEST_COMP_CNTR_MAX=7,swnic0/0xff",
			"FLOWTALLY_IBVTEST_COMP_CNTR_OPS=send,swnic0/recv",
			"FLOWTALLY_PLUGIN_PATHS=/tmp/t:/run:/run",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.env.Environ()); diff != "" {
				t.Errorf("Environ (-want +got):\n%s", diff)
			}
			var set []string
			tt.env.Set(func(name, value string) { set = append(set, name+"="+value) })
			if diff := cmp.Diff(tt.want, set); diff != "" {
				t.Errorf("Set (-want +got):\n%s", diff)
			}
		})
	}
}

func record(name string, calls uint64) []byte {
	r := make([]byte, 64)
	copy(r, name)
	binary.NativeEndian.PutUint64(r[56:], calls)
	return r
}

func TestReadStatisticsReturnsCallsByVerb(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls")
	if _, err := ibvtest.ReadStatistics(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	data := slices.Concat(record("ibv_open_device", 2), record("ibv_read_counters", 7), make([]byte, 640), []byte("cut"))
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ibvtest.ReadStatistics(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ibvtest.Statistics{"ibv_open_device": 2, "ibv_read_counters": 7}, got); diff != "" {
		t.Errorf("ReadStatistics (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(ibvtest.Statistics{"ibv_read_counters": 4}, got.Sub(ibvtest.Statistics{"ibv_open_device": 2, "ibv_read_counters": 3})); diff != "" {
		t.Errorf("Sub (-want +got):\n%s", diff)
	}
}
