package backend

import "context"

// Change is a change of the flows of a backend: Was[i], which is installed, becomes Now[i], and the flows of Add come with
// them.
type Change struct {
	Was, Now []Placed
	Add      []Placed
	Shadows  bool // of Add: SoftwareBackend.AddShadows, else Install
	// Leave are installed flows whose packets the others get. They stay installed, and count nothing any more: Remove follows.
	Leave []Placed
	// Return are flows of an earlier Leave, which count again.
	Return []Placed
}

// Alterer is implemented by a backend whose installed flows can become others in their places. Its methods are called as
// Install is.
type Alterer interface {
	Backend
	// Alter makes a change, for all flows or none. No packet finds a part of it: it counts for the flow that won before, or for
	// the one that wins afterwards. The result has the flows of Now, then those of Add. A flow of the same identity keeps its
	// slot, whatever else changes, and its Cookie is not returned. Any other flow gets another slot, and both slots can be read
	// until end is called.
	//
	// end(true) gives up the old slots. end(false) takes everything back, except flows of Add that were removed meanwhile. Until
	// end the engine calls Read and Source, for flows of Add also Remove and SetActive, for those of Leave Remove, and Alter to
	// take a change back: with Was and Now exchanged, and Leave as Return.
	Alter(ctx context.Context, c Change) (in []Installed, end func(keep bool) error, err error)
}
