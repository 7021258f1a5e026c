// Package exportrows holds the rows of the bench about flowtally export.
//
//   - export.scrape.4k: CPU time of `flowtally export` for one scrape of 4,096 flows as Prometheus makes it: OpenMetrics,
//     compressed by gzip, over TCP. The reference is the most that a scrape may take.
//   - export.crowd: CPU time of `flowtally export` for each of 64 scrapes of 8,192 flows at a time, beside 300 clients
//     that have asked and read nothing. The reference is a scrape by a client that is alone.
//
// The exporter is a process of its own, on any CPU, with its own garbage collector: the clients, which run in this
// process, cost it nothing.
package exportrows
