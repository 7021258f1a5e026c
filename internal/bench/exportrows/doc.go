// Package exportrows holds the rows of the bench about flowtally export.
//
//   - export.scrape.4k: CPU time of `flowtally export` for one scrape of 4,096 flows as Prometheus makes it: OpenMetrics,
//     compressed by gzip, over TCP. The reference formats the text of such a scrape in this process: names and labels
//     are ready, strconv appends each value, and the same library compresses the buffer at the same level. It leaves out
//     reading the mirror, HTTP, the socket and the garbage collector.
//   - export.crowd: CPU time of `flowtally export` for each of 64 scrapes of 8,192 flows at a time, beside 300 clients
//     that have asked and read nothing. The reference is a scrape by a client that is alone.
//
// The exporter is a process of its own, on any CPU, with its own garbage collector: the clients, which run in this
// process, cost it nothing.
package exportrows
