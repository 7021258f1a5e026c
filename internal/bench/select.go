package bench

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Brief returns the rows of the short form.
func Brief(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Full })
}

// Select returns the rows whose names match any of patterns, as path.Match does ("shm.*"), in the order of rows.
// Without patterns it returns every row. It refuses a pattern that matches nothing.
func Select(rows []Row, patterns []string) ([]Row, error) {
	if len(patterns) == 0 {
		return rows, nil
	}

	chosen := make([]bool, len(rows))
	for _, p := range patterns {
		found := false
		for i, row := range rows {
			ok, err := path.Match(p, row.Name)
			if err != nil {
				return nil, fmt.Errorf("matching rows with %q: %w", p, err)
			}
			chosen[i] = chosen[i] || ok
			found = found || ok
		}
		if !found {
			return nil, fmt.Errorf("row %q: %w; there are: %s", p, ErrNoRow, strings.Join(names(rows), " "))
		}
	}

	var list []Row
	for i, row := range rows {
		if chosen[i] {
			list = append(list, row)
		}
	}
	return list, nil
}

func names(rows []Row) []string {
	list := make([]string, len(rows))
	for i, row := range rows {
		list[i] = row.Name
	}
	return list
}
