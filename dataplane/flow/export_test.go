package flow

// Canonical returns a match in the form in which ParseMatch returns it.
func Canonical(m Match) Match { return m.canonical() }
