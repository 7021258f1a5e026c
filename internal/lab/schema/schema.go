// Package schema makes JSON Schemas (2020-12) of Go types, and compares the output of commands with them.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Of returns the schema of an output whose values have one of the types. Fields that a later version adds are allowed.
// Descriptions are the comments of the fields, where docs has them.
func Of(title string, docs Docs, types ...reflect.Type) (*jsonschema.Schema, error) {
	var all []*jsonschema.Schema
	for _, t := range types {
		s, err := jsonschema.ForType(t, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		docs.describe(s, t)
		if version := s.Properties["schema"]; version != nil {
			version.Const = jsonschema.Ptr(any(1))
		}
		all = append(all, s)
	}
	top := all[0]
	if len(all) > 1 {
		top = &jsonschema.Schema{AnyOf: all}
	}
	walk(top, func(s *jsonschema.Schema) {
		if s.Properties != nil {
			s.AdditionalProperties = nil
		}
		if slices.Contains(s.Types, "array") { // an empty list is [], not null
			s.Type, s.Types = "array", nil
		}
	})
	top.Schema, top.Title = draft, title
	return top, nil
}

const draft = "https://json-schema.org/draft/2020-12/schema"

// Same returns the schema of an output that has the schema of another file in the same directory.
func Same(title, file string) *jsonschema.Schema {
	return &jsonschema.Schema{Schema: draft, Title: title, Ref: file}
}

// walk calls f for s and every schema in it.
func walk(s *jsonschema.Schema, f func(*jsonschema.Schema)) {
	if s == nil {
		return
	}
	f(s)
	for _, p := range s.Properties {
		walk(p, f)
	}
	for _, p := range s.AnyOf {
		walk(p, f)
	}
	walk(s.Items, f)
	walk(s.AdditionalProperties, f)
}

// Text returns the schema as the repository has it.
func Text(s *jsonschema.Schema) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return "", err
	}
	return b.String(), nil
}

// Read reads a schema that Text wrote. Of one by Same it reads the other file.
func Read(path string) (*jsonschema.Schema, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Ref != "" {
		return Read(filepath.Join(filepath.Dir(path), s.Ref))
	}
	return s, nil
}

// Lost lists the promises of an old schema that a new one breaks: a field that is gone, that may be left out, or that
// has another type. A schema of one kind of values may become one of several, of which the first is that kind.
func Lost(old, now *jsonschema.Schema) []string {
	if old != nil && now != nil && len(old.AnyOf) == 0 && len(now.AnyOf) > 0 {
		now = now.AnyOf[0]
	}
	return lost("", old, now)
}

func lost(at string, old, now *jsonschema.Schema) (out []string) {
	if old == nil {
		return nil
	}
	if now == nil {
		return []string{at + " is gone"}
	}
	for _, t := range typesOf(now) {
		if is := typesOf(old); len(is) > 0 && !slices.Contains(is, t) {
			out = append(out, fmt.Sprintf("%s was of type %v, and can be %s", at, is, t))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Properties)) {
		if slices.Contains(old.Required, name) && !slices.Contains(now.Required, name) {
			out = append(out, at+"."+name+" was always there, and can be left out")
		}
		out = append(out, lost(at+"."+name, old.Properties[name], now.Properties[name])...)
	}
	out = append(out, lost(at+"[]", old.Items, now.Items)...)
	if old.AdditionalProperties != nil {
		out = append(out, lost(at+".*", old.AdditionalProperties, now.AdditionalProperties)...)
	}
	for i := range old.AnyOf {
		var of *jsonschema.Schema
		if i < len(now.AnyOf) {
			of = now.AnyOf[i]
		}
		out = append(out, lost(fmt.Sprintf("%s(%d)", at, i), old.AnyOf[i], of)...)
	}
	return out
}

func typesOf(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return s.Types
}

// Validate compares each JSON value of out, at least one, with a schema. A field that the schema lacks is an error.
func Validate(s *jsonschema.Schema, out []byte) error {
	strict := s.CloneSchemas()
	walk(strict, func(s *jsonschema.Schema) {
		if s.Properties != nil {
			s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
		}
	})
	resolved, err := strict.Resolve(nil)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for n := 1; ; n++ {
		var v any
		switch err := dec.Decode(&v); {
		case errors.Is(err, io.EOF) && n > 1:
			return nil
		case err != nil:
			return fmt.Errorf("value %d: %w", n, err)
		}
		if err := resolved.Validate(v); err != nil {
			return fmt.Errorf("value %d: %w", n, err)
		}
	}
}
