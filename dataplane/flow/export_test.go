package flow

// MaxUndivided is for tests.
const MaxUndivided = maxUndivided

// Candidates calls visit with the values that Overlapping compares with f.
func (x *Index[T]) Candidates(f *Flow, visit func(T)) { x.candidates(&x.root, 0, f, visit) }
