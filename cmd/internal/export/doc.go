// Package export shows the counters of a mirror to monitoring systems: as metrics for Prometheus, as JSON, and pushed
// by OTLP. It only reads the mirror, so it needs no privilege, and it follows the mirror over restarts of the writer.
//
// An [Exporter] reads the mirror for each push. HTTP clients of one poll cycle share one reading and its response. The
// catalogue is decoded only after a change. A counter without a sample has no series, because absent is not zero.
package export
