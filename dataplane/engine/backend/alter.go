package backend

import "context"

// Alterer is implemented by a backend whose installed flows can become others in their places. Its methods are called as
// Install is.
type Alterer interface {
	Backend
	// Alter makes was[i], which is installed, now[i], for all flows or none. A flow of the same identity keeps its
	// slot, whatever else changes, and its Cookie is not returned. Any other flow gets another slot, and both slots
	// can be read until end is called: end(true) gives up the old slots, end(false) takes everything back. The engine
	// calls end before any other method but Read and Source, or Alter with was and now exchanged.
	Alter(ctx context.Context, was, now []Placed) (in []Installed, end func(keep bool) error, err error)
}
