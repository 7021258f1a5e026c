package xdp

// constants of one load of the programs, without the constants of an interface.
type constants struct {
	need   uint32
	tuples []flowtallyFtTuple
}

// loadedTuple is the meta map's record of a tuple in the programs.
type loadedTuple struct {
	id     uint8
	single bool
	key    words // of a single tuple: the key that its programs compare with
}
