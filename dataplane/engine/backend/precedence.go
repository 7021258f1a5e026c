package backend

import "cmp"

// ByPrecedence compares flows for sorting, winners first: the lower priority number wins, then the flow added first.
func ByPrecedence(a, b Placed) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Order, b.Order))
}
