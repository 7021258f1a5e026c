package flexio

// kind is what a field holds.
type kind uint8

const (
	number  kind = iota // unsigned, of at most 64 bits
	octets              // bytes
	text                // a string, which in C ends with a 0
	object              // an object of the SDK or of libibverbs, by its number
	list                // a slice
	inner               // another structure
	ignored             // deprecated: every value is accepted
)

// field is a row of a table: a field of a structure.
type field struct {
	name  string // in the reference
	kind  kind
	first int               // where the structure has a layout: the first bit, counted from the highest of its first byte
	width int               // bits, at most 64 for a number; 0 for what has no fixed size
	unit  string            // of a number
	ref   string            // the reference's words for the place, or for the type where it gives no place
	names map[uint64]string // the values of an enumeration
	of    string            // the structure of an inner one
	align uint64            // an inner flexio_qmem begins at a multiple of it
}

// table has the fields of a structure.
type table struct {
	size   int  // bytes in memory; 0 if the reference gives no layout
	union  bool // exactly one of the inner structures is set
	fields []field
}

// find returns the field of that name.
func (t table) find(name string) (field, bool) {
	for _, f := range t.fields {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

// lookup returns the table of a structure.
func lookup(structure string) (table, error) {
	for _, tables := range []map[string]table{queueTables, commandTables, attributeTables} {
		if t, ok := tables[structure]; ok {
			return t, nil
		}
	}
	return table{}, &AttrError{Struct: structure, Reason: "no such structure"}
}

// num returns a field of a queue structure: a number at a byte, and the reference's words for its place.
func num(at, width int, name, place string) field {
	return field{name: name, first: 8 * at, width: width, ref: place}
}

// raw returns a field of a queue structure that has n bytes.
func raw(at, n int, name, place string) field {
	return field{name: name, kind: octets, first: 8 * at, width: 8 * n, ref: place}
}

// bit returns a field of a command, with the numbers of bits in the device's headers.
func bit(first, width int, name string) field {
	return field{name: name, first: first, width: width}
}

// in returns an inner structure of n bytes at a byte.
func in(at, n int, name, of string) field {
	return field{name: name, kind: inner, first: 8 * at, width: 8 * n, of: of}
}

// attr returns an attribute: a number of at most width bits. ctype is its type in the reference.
func attr(width int, name, ctype, unit string) field {
	return field{name: name, width: width, ref: ctype, unit: unit}
}

// boolean returns an attribute that is set or not.
func boolean(name, ctype string) field { return attr(1, name, ctype, "") }

// addr returns an attribute that is an address. 0 is none.
func addr(name, ctype string) field { return attr(64, name, ctype, unitAddress) }

// enum returns an attribute whose values have names.
func enum(name, ctype string, names map[uint64]string) field {
	return field{name: name, width: 32, ref: ctype, names: names}
}

// other returns an attribute of a kind without more to say.
func other(k kind, name, ctype string) field { return field{name: name, kind: k, ref: ctype} }

// sub returns an attribute that is a structure.
func sub(name, of string) field { return field{name: name, kind: inner, of: of, ref: "struct " + of} }

// memory returns an attribute that is a place of a queue, at a multiple of align.
func memory(name string, align uint64) field {
	f := sub(name, "flexio_qmem")
	f.align = align
	return f
}

// templates is the reference's type of a list of strings.
const templates = "const *"

// Units of numbers that are spelled in hexadecimal.
const (
	unitAddress = "address"
	unitAccess  = "enum ibv_access_flags"
)
