// Package capture reads packet captures: pcap and pcapng, plain or compressed by gzip. It returns them record by record
// in the two forms that the classifier understands: Ethernet frames, and packets beginning with IP.
//
// A capture is untrusted input. Contradicting lengths, an unsupported link type and an end inside a record are errors,
// and never a wrong or missing record. Memory grows with the bytes read, and not with what a length field claims.
package capture
