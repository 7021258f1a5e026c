package rdmacore

import (
	"slices"
	"testing"
)

func TestVerdictsThatLeaveTheirListAreNamed(t *testing.T) {
	passes := []listedCase{{device: "mlx5_0", name: "tests.a", releases: []string{"44.0", newestListed}}}
	known := []listedCase{{reason: "no SRQ", device: "mlx5_0", name: "tests.b", releases: []string{"44.0", newestListed}}}
	for _, tt := range []struct {
		name, version string
		got           verdicts
		want          []string
	}{
		{"as listed", "44.0", verdicts{"tests.a": "pass", "tests.b": "error: 95", "tests.c": "skip"}, nil},
		{"a pass becomes a skip", "44.0", verdicts{"tests.a": "skip", "tests.b": "died"},
			[]string{"44.0, mlx5_0: tests.a no longer passes: skip"}},
		{"a pass becomes a failure", "44.0", verdicts{"tests.a": "fail: 1", "tests.b": "died"},
			[]string{"44.0, mlx5_0: tests.a no longer passes: fail: 1"}},
		{"a listed failure passes", "44.0", verdicts{"tests.a": "pass", "tests.b": "pass"},
			[]string{`44.0, mlx5_0: tests.b is in known.txt (no SRQ): it has the verdict "pass" now`}},
		{"a listed failure is skipped", "44.0", verdicts{"tests.a": "pass", "tests.b": "skip"},
			[]string{`44.0, mlx5_0: tests.b is in known.txt (no SRQ): it has the verdict "skip" now`}},
		{"a skip becomes a pass", "44.0", verdicts{"tests.a": "pass", "tests.b": "died", "tests.c": "pass"},
			[]string{"44.0, mlx5_0: tests.c passes, and passes.txt does not list it"}},
		{"a skip becomes a failure", "44.0", verdicts{"tests.a": "pass", "tests.b": "died", "tests.c": "died"},
			[]string{"44.0, mlx5_0: tests.c fails, and known.txt does not list it: died"}},
		{"cases are left unrun", "44.0", verdicts{"tests.a": "unrun", "tests.b": "unrun", "tests.c": "unrun"},
			[]string{"44.0, mlx5_0: tests.a did not run", "44.0, mlx5_0: tests.b did not run", "44.0, mlx5_0: tests.c did not run"}},
		{"a listed case is gone", "44.0", verdicts{"tests.b": "died"},
			[]string{"44.0, mlx5_0: tests.a is listed, and its judge does not have it"}},
		{"another judge ran", "44.0", verdicts{"ib_x": "pass"},
			[]string{"44.0, mlx5_0: ib_x passes, and passes.txt does not list it"}},
		{"nothing ran", "44.0", verdicts{}, []string{"44.0, mlx5_0: no case ran"}},
		{"a newer release loses a case and has a new one", "66.0", verdicts{"tests.b": "died", "tests.c": "pass"}, nil},
		{"a pass becomes a skip in a newer release", "66.0", verdicts{"tests.a": "skip", "tests.b": "died"},
			[]string{"66.0, mlx5_0: tests.a no longer passes: skip"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := compare(passes, known, "mlx5_0", tt.version, tt.got); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
