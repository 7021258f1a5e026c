package export

import (
	"bytes"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// writeMetrics encodes the metrics into b. It holds the lock meanwhile, because the series belong to the Exporter. A slow
// client reads from b, without the lock.
func (e *Exporter) writeMetrics(b *bytes.Buffer, format expfmt.Format, process prometheus.Gatherer) (stamp, error) {
	encoder := expfmt.NewEncoder(b, format)
	e.mu.Lock()
	defer e.mu.Unlock()
	list, err := e.gather(process)
	if err != nil {
		return stamp{}, err
	}
	for _, f := range list {
		if e.families.writeText(b, f, format) {
			continue
		}
		if err := encoder.Encode(f); err != nil {
			return stamp{}, fmt.Errorf("encoding %s: %w", f.GetName(), err)
		}
	}
	if c, ok := encoder.(expfmt.Closer); ok {
		if err := c.Close(); err != nil {
			return stamp{}, err
		}
	}
	return e.lastLook, nil
}
