// Package words manages the reserved words of an instance. These are counters fed by other programs, with their own RDMA devices
// or by themselves. Each counter has two words in a file of its own, and the socket NAME.words hands the file out. So a program
// can write nonsense to the words that it has, and to nothing else.
//
// A program has its words as long as its connection to the socket lives. After that the counter keeps the last values, and the
// next program gets a new file, because a device, or a process that kept the old file, may still write to that one.
// docs/embedding.md describes all this for programs, docs/mirror-format.md for authors of clients.
package words
