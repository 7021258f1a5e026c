package backend

import "context"

// Change is a change of the flows of a backend. The installed flow Was[i] becomes Now[i], and the flows of Add are added.
type Change struct {
	Was, Now []Placed
	Add      []Placed
	Shadows  bool // add the flows of Add as AddShadows does, not as Install does
	// Leave are installed flows which stop counting, so other flows get their packets. They stay installed until the
	// engine calls Remove.
	Leave []Placed
	// Return are flows of an earlier Leave. They count again.
	Return []Placed
}

// Alterer is implemented by backends with flows that can change in place. The engine calls its methods as it calls Install.
type Alterer interface {
	Backend
	// Alter makes all of a change, or none of it and returns an error. It must make it in one step: each packet counts for the
	// winner from before the change or for the winner after it.
	//
	// The result has the flows of Now, then those of Add. If a flow keeps its identity, it keeps its slot, and its Cookie in the
	// result is undefined. Otherwise it gets another slot, and both slots can be read until end.
	//
	// end(true) frees the old slots. end(false) takes the change back, except for flows of Add removed meanwhile.
	// Before end the engine may call Read and Source, Remove for flows of Add and Leave, SetActive for flows of Add, and Alter
	// once more to take the change back: then Was and Now are exchanged, and Leave is Return.
	Alter(ctx context.Context, c Change) (in []Installed, end func(keep bool) error, err error)
}
