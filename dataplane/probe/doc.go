// Package probe is the vocabulary of capability answers. It holds no state and
// imports the standard library alone.
//
// What asks whether something works answers with an error:
//
//	err == nil                         yes
//	errors.Is(err, ErrNotSupported)    no; an *[UnsupportedError] says why, and what would lift it
//	any other err                      inconclusive: the question could not be asked
//
// Only the first two are conclusive, and only they may be remembered. A yes is no
// promise: what is refused later, when it is used, is refused. [Ask] makes a
// [Result] of the error, for people and for reports.
package probe
