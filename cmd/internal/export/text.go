package export

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/prometheus/common/expfmt"

	dto "github.com/prometheus/client_model/go"
)

// seriesText is the text of all series of a family in one format, without the values. Encoding names and labels is most
// of the work of a scrape, so expfmt does it once per change of the catalogue.
type seriesText struct {
	head  []byte   // the comments
	lines [][]byte // by row of the catalogue: what stands in front of the value; nil if the family does not apply to the row
}

// writeText appends a family to b, as an encoder of that format writes it. It returns false, and appends nothing, if the
// encoder has to: f is not one of the families with a series for each counter, or the format is none of text.
func (f *families) writeText(b *bytes.Buffer, list *dto.MetricFamily, format expfmt.Format) bool {
	k, is := kindOf(list)
	zero := zeroOf(format)
	if !is || zero == "" {
		return false
	}
	if f.textFormat != format {
		f.textFormat = format
		f.texts = [kinds]*seriesText{}
	}
	if f.texts[k] == nil {
		f.texts[k] = newSeriesText(list, f.byKind[k].series, format, zero)
	}
	t := f.texts[k]
	if t == nil {
		return false
	}

	b.Write(t.head)
	const longest = 32 // of a float and the end of the line
	for i, row := range f.byKind[k].rows {
		b.Grow(len(t.lines[row]) + longest)
		line := append(b.AvailableBuffer(), t.lines[row]...)
		number := len(line)
		line = strconv.AppendFloat(line, *list.Metric[i].Counter.Value, 'g', -1, 64)
		if zero == "0.0" && !bytes.ContainsAny(line[number:], "e.") {
			line = append(line, ".0"...)
		}
		b.Write(append(line, '\n'))
	}
	return true
}

// kindOf returns the kind of a family that families.render made.
func kindOf(list *dto.MetricFamily) (kind, bool) {
	for k := range described {
		if list.Name == &described[k].name {
			return kind(k), true
		}
	}
	return 0, false
}

// zeroOf returns how a format of text writes a value of 0, or "" for any other format.
func zeroOf(format expfmt.Format) string {
	switch format.FormatType() {
	case expfmt.TypeTextPlain:
		return "0"
	case expfmt.TypeOpenMetrics:
		if strings.Contains(string(format), "version="+expfmt.OpenMetricsVersion_1_0_0) || strings.Contains(string(format), "version="+expfmt.OpenMetricsVersion_0_0_1) {
			return "0.0"
		}
	}
	return ""
}

// newSeriesText lets expfmt encode every series with a value of 0. It returns nil if the text is not as expected.
func newSeriesText(list *dto.MetricFamily, series []*dto.Metric, format expfmt.Format, zero string) *seriesText {
	all := &dto.MetricFamily{Name: list.Name, Help: list.Help, Type: list.Type}
	for _, m := range series {
		if m != nil {
			all.Metric = append(all.Metric, &dto.Metric{Label: m.Label, Counter: &dto.Counter{Value: new(float64)}})
		}
	}
	var b bytes.Buffer
	if err := expfmt.NewEncoder(&b, format).Encode(all); err != nil {
		return nil // as an encoder of the whole family will say
	}

	t := &seriesText{lines: make([][]byte, len(series))}
	rest := b.Bytes()
	for bytes.HasPrefix(rest, []byte("#")) {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	t.head = b.Bytes()[:b.Len()-len(rest)]
	for row, m := range series {
		if m == nil {
			continue
		}
		line, behind, _ := bytes.Cut(rest, []byte("\n"))
		name, is := bytes.CutSuffix(line, []byte(" "+zero))
		if !is {
			return nil
		}
		t.lines[row] = line[:len(name)+1]
		rest = behind
	}
	if len(rest) > 0 {
		return nil
	}
	return t
}
