// Package probe has the results of capability probes. It holds no state and imports only the
// standard library.
//
// A function that probes a feature returns an error:
//
//	err == nil                         yes
//	errors.Is(err, ErrNotSupported)    no; an *[UnsupportedError] has the reason and the remedy
//	any other err                      inconclusive: the probe could not run
//
// Only the first two are conclusive, and only they may be remembered. A yes is no promise: the
// feature may still be refused when it is used. [Ask] makes a [Result] of the error, for people
// and for reports.
package probe
