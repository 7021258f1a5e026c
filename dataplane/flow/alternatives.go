package flow

import "fmt"

// mostAlternatives limits how many plain matches a match stands for.
const mostAlternatives = 4096

// Alternatives returns matches without choices, of which no packet matches two, and which together select the same packets as
// m. Sets become single values, masks and port ranges; ranges of other fields become masks. A match without a choice has
// itself alone as an alternative.
//
// The sets of several fields multiply. Alternatives fails with [ErrInvalid], as [Match.Validate] does, if m stands for more
// than 4,096 plain matches. It fails in the same way if m has a named set, whose elements no match has.
func (m Match) Alternatives() ([]Match, error) {
	if !m.anyChoice() {
		return []Match{m}, nil
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("taking sets apart: %w", err)
	}
	if err := m.RefuseNamedSets(); err != nil {
		return nil, err
	}
	return m.alternatives(), nil
}

// alternatives is Alternatives for a valid match with a choice, and without a named set. The results share no memory with m, nor
// with one another.
func (m *Match) alternatives() []Match {
	out := m.alternativesOfLevel()
	for inner := range m.inners() {
		ins := (*inner).alternativesOfLevel()
		all := make([]Match, 0, len(out)*len(ins))
		for _, o := range out {
			for _, in := range ins {
				one := o.cloneLevel()
				in = in.cloneLevel()
				for place := range one.inners() {
					*place = &in
				}
				all = append(all, one)
			}
		}
		out = all
	}
	return out
}

// alternativesOfLevel is alternatives for the outer or the inner headers alone. It leaves out values that contradict the rest
// of the match, such as protocol 17 of "ipv4 proto {6, 17} tcp": a backend that sets the protocol for tcp would overwrite it.
func (m *Match) alternativesOfLevel() []Match {
	base := m.cloneLevel()
	base.Choices = nil
	out := []Match{base}
	for i := range m.Choices {
		c := &m.Choices[i]
		pieces, _ := c.fieldOf().pieces(c, mostAlternatives)
		all := make([]Match, 0, len(out)*len(pieces))
		for _, v := range pieces {
			only := base.cloneLevel()
			storeValue(c.in(&only), v)
			if only.contradicts() {
				continue
			}
			for _, o := range out {
				one := o.cloneLevel()
				storeValue(c.in(&one), v)
				all = append(all, one)
			}
		}
		out = all
	}
	return out
}

// contradicts reports whether the headers and values of the match exclude one another.
func (m *Match) contradicts() (does bool) {
	bad := func(string, string, string) { does = true }
	m.checkLayers(bad)
	m.checkUpper(bad)
	m.checkIncomplete(bad)
	return does
}
