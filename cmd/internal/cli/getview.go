package cli

// getJSON is what get -o json prints. Programs read it: fields are only added.
type getJSON struct {
	Schema   int           `json:"schema"`
	Writer   writerJSON    `json:"writer"`
	Counters []counterJSON `json:"counters"`
}

type writerJSON struct {
	State string `json:"state"`
	AgeNS int64  `json:"age_ns"`
}

// counterJSON is one counter; packets, bytes and age are null where it was
// never sampled: absent is not zero.
type counterJSON struct {
	Name      string  `json:"name"`
	Kind      string  `json:"kind"`
	Packets   *uint64 `json:"packets"`
	Bytes     *uint64 `json:"bytes"`
	AgeNS     *int64  `json:"age_ns"`
	Source    string  `json:"source"`
	ByteBasis string  `json:"byte_basis"`
	Valid     bool    `json:"valid"`
}

func toJSON(r *reading) getJSON {
	out := getJSON{Schema: 1, Writer: writerJSON{r.Writer.State, r.Writer.Age}, Counters: make([]counterJSON, len(r.Counters))}
	for i, c := range r.Counters {
		j := counterJSON{Name: c.Name, Kind: c.Kind, Source: c.Source, ByteBasis: c.ByteBasis, Valid: c.Valid && c.present()}
		if c.present() {
			age := max(0, r.Now-c.SampledAt)
			j.Packets, j.Bytes, j.AgeNS = &c.Packets, &c.Bytes, &age
		}
		out.Counters[i] = j
	}
	return out
}

func renderGet(r *reading) string {
	t := table{heading: []string{"NAME", "KIND", ">PACKETS", ">BYTES", ">AGE", "SOURCE", "BASIS", "NOTE"}}
	for _, c := range r.Counters {
		t.add(c.Name, orDash(c.Kind), c.packetsCell(), c.bytesCell(), c.ageCell(r.Now), orDash(c.Source), orDash(c.ByteBasis), c.note())
	}
	return t.render()
}
