package flow

import "bytes"

// appendChoice appends a choice as text: {22, 80}, != 80, != {22, 80}, @blocklist, 10-20 for a range that the field cannot hold, or
// {8/0x38} for such a mask.
func (f *field) appendChoice(text []byte, c *Choice) []byte {
	if c.Not {
		text = append(text, "!= "...)
	}
	if c.Set != "" {
		return append(append(text, namedSet), c.Set...)
	}
	one := newFull()
	ref := f.ref(one, 0)
	if v := c.Values; len(v) == 1 && (c.Not || !v[0].Last.isZero()) {
		return f.appendValue(text, ref, c.Values[0], false)
	}
	text = append(text, '{')
	for i, v := range c.Values {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = f.appendValue(text, ref, v, true)
	}
	return append(text, '}')
}

// appendValue appends one value. ref is a field of this kind, which appendValue may overwrite. within says that the value is
// in a set, where a comma ends it.
func (f *field) appendValue(text []byte, ref any, v Value, within bool) []byte {
	if !v.Last.isZero() && f.isPort() {
		storeValue(ref, v)
		return f.append(text, ref)
	}
	if !v.Last.isZero() {
		storeValue(ref, Value{Value: v.Value, Mask: whole(f.bits)})
		text = append(f.append(text, ref), '-')
		storeValue(ref, Value{Value: v.Last, Mask: whole(f.bits)})
		return f.append(text, ref)
	}
	storeValue(ref, v)
	if _, flags := ref.(*Masked[TCPFlags]); flags && within {
		return append(text, bytes.ReplaceAll(f.append(nil, ref), []byte(","), []byte("|"))...)
	}
	return f.append(text, ref)
}
