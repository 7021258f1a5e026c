package cli

import (
	"bytes"
	"testing"
)

func TestDemoRefusesContradictingFlags(t *testing.T) {
	for _, args := range [][]string{{"demo", "--seconds", "0"}, {"demo", "--mode", "magic"}, {"demo", "--backend", "dpdk"}, {"demo", "--backend", "rdma", "--mode", "generic"}, {"demo", "--rdma-by", "verbs"}, {"demo", "--backend", "rdma", "--rdma-by", "magic"}} {
		var stdout, stderr bytes.Buffer
		if code := Main(t.Context(), nil, &stdout, &stderr, args); code != exitUsage || stderr.Len() == 0 || stdout.Len() != 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}
