// Package capture reads packet captures, pcap and pcapng, also compressed by gzip, record by record, as frames that
// the classifier reads: Ethernet frames, or packets that begin with IP.
//
// A capture is data of a stranger. Each record is returned or is an error: a length that the bytes do not bear out,
// a link type that is not supported, an end inside a record. No field of the file decides how much memory is used;
// memory grows with the bytes that arrive.
package capture
