package ibvtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
)

// Statistics contains the number of calls by the kernel's method or command ("COUNTERS_READ", "ALLOC_PD"), by firmware
// command ("QUERY_FLOW_COUNTER"), and by verb of the shim ("ibv_post_send"). It is the sum over all devices and
// processes that write to one file. NIC_DROPS is the number of packets lost by the NIC's socket, as of
// the last call to the kernel. If it is not 0, counts are too low.
type Statistics map[string]uint64

// recordSize is the size of a record in verbs_calls.c: a name of 56 bytes and a count.
const recordSize = 64

// ReadStatistics reads the file of Env.Statistics. Call it at any time, also after the process has
// ended: the counts are always current.
func ReadStatistics(path string) (Statistics, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading call statistics: %w", err)
	}
	s := make(Statistics)
	for ; len(data) >= recordSize; data = data[recordSize:] {
		name, _, _ := bytes.Cut(data[:recordSize-8], []byte{0})
		if len(name) > 0 {
			s[string(name)] += binary.NativeEndian.Uint64(data[recordSize-8:])
		}
	}
	return s, nil
}

// Sub returns the calls since an earlier reading; verbs without calls are absent.
func (s Statistics) Sub(earlier Statistics) Statistics {
	d := make(Statistics)
	for name, n := range s {
		if n -= earlier[name]; n > 0 {
			d[name] = n
		}
	}
	return d
}
