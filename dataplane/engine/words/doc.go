// Package words keeps the reserved words of an instance: counters that programs of other owners feed, by their own RDMA
// devices or by themselves. Each has two words in a file of its own, which the socket NAME.words hands out. A program
// can spoil the words that it has, and nothing else.
//
// A program has words for as long as its connection to the socket lives. When that ends the last values stay, and the
// next program gets a new file: a device, or a process that kept the old file, may still write there. docs/embedding.md
// describes it for programs, docs/mirror-format.md for authors of clients.
package words
