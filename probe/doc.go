// Package probe describes whether a host supports a feature.
//
// A function that probes a feature returns an error:
//
//	err == nil                         yes
//	errors.Is(err, ErrNotSupported)    no; an *[UnsupportedError] has the reason and the next step
//	any other err                      inconclusive: the probe could not run
//
// Only yes and no are conclusive. Callers must not cache an inconclusive result. Note that a supported feature can still
// fail when it is used. [Ask] turns the error into a [Result], for reports.
package probe
