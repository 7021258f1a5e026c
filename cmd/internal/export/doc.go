// Package export shows the counters of a mirror to monitoring systems: as metrics for Prometheus, as JSON, and pushed
// by OTLP. It reads the mirror alone, needs no privilege, and follows the mirror over restarts of the writer.
//
// A [Exporter] makes one look at the mirror for each scrape, request or push. The catalogue is decoded again only when
// it has changed. A counter that was never sampled has no series, because absent is not zero.
package export
