// Package setfile reads the files of named sets, in the forms in which people have them:
//
//   - an element a line, with "#" ahead of a comment, or ";" as in the lists of Spamhaus;
//   - nftables: what "nft list set" prints, "elements = { … }", or the braces alone;
//   - ipset: what "ipset save" prints of a set of type hash:ip or hash:net.
//
// An element is an address, a prefix or first-last, of IPv4 or IPv6.
//
// The file may be hostile: [Read] never panics, and holds only the elements and one word.
package setfile
