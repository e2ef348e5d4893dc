package push

import (
	"crypto/rand"
	"maps"
	"slices"
	"strconv"

	"github.com/ehasm/ehasm/internal/profile/labels"

	"github.com/google/pprof/profile"
	"google.golang.org/protobuf/encoding/protowire"
)

// This file turns pprof profiles into OpenTelemetry's: a dictionary of strings, functions,
// mappings, locations and stacks, and samples that refer to it by index. Numbers of fields are those
// of opentelemetry/proto/profiles/v1development/profiles.proto.

// Tables of the dictionary: fields of ProfilesDictionary.
const (
	tableMapping protowire.Number = iota + 1
	tableLocation
	tableFunction
	tableLink
	tableString
	tableAttribute
	tableStack
)

// otlp is the dictionary of a request.
type otlp struct {
	dictionary message                // the entries of all tables, as they come
	size       [tableStack + 1]uint64 // of each table
	index      map[entry]uint64
}

// entry is an entry of a table, as it is encoded.
type entry struct {
	table protowire.Number
	text  string
}

// add returns the index of an entry in its table.
func (o *otlp) add(table protowire.Number, m message) uint64 {
	e := entry{table, string(m)}
	i, ok := o.index[e]
	if !ok {
		i = o.size[table]
		o.size[table]++
		o.index[e] = i
		o.dictionary = o.dictionary.part(table, m)
	}
	return i
}

// text returns the index of a string.
func (o *otlp) text(s string) uint64 { return o.add(tableString, message(s)) }

// otlpBody returns an ExportProfilesServiceRequest: opentelemetry/proto/collector/profiles of
// OpenTelemetry's protocol. It has one profile for each value type of the pprof.
func otlpBody(p *Profile) ([]byte, error) {
	in, err := p.parse()
	if err != nil {
		return nil, err
	}
	o := &otlp{index: make(map[entry]uint64)}
	// Entry 0 of each table is empty: references of 0 mean none.
	for table := tableMapping; table <= tableStack; table++ {
		o.add(table, nil)
	}
	locations := make(map[uint64]uint64)
	for _, l := range in.Location {
		locations[l.ID] = o.location(l)
	}
	// The resource is the profiled service, with the labels of the command line.
	resource := map[string]string{"service.name": p.Name}
	maps.Copy(resource, p.Labels)
	// Stacks and attributes are the same for all value types.
	samples := make([]message, len(in.Sample))
	for i, s := range in.Sample {
		// Host names are the resource's, not each sample's.
		for _, host := range s.Label[labels.HostName] {
			resource[labels.HostName] = host
		}
		delete(s.Label, labels.HostName)
		samples[i] = o.sample(s, locations)
	}
	var attributes, profiles message
	for _, k := range slices.Sorted(maps.Keys(resource)) {
		attributes = attributes.part(1, message(nil).text(1, k).part(2, message(nil).text(1, resource[k])))
	}
	scope := message(nil).part(1, message(nil).text(1, "ehasm"))
	for i := range in.SampleType {
		scope = scope.part(2, o.profile(p, in, i, samples))
	}
	profiles = profiles.part(1, attributes).part(2, scope)
	return message(nil).part(1, profiles).part(2, o.dictionary), nil
}

// profile returns the profile of a value type.
func (o *otlp) profile(p *Profile, in *profile.Profile, kind int, samples []message) message {
	m := message(nil).part(1, o.valueType(in.SampleType[kind]))
	for i, s := range in.Sample {
		m = m.part(2, slices.Concat(samples[i], message(nil).packed(4, uint64(s.Value[kind]))))
	}
	m = protowire.AppendFixed64(protowire.AppendTag(m, 3, protowire.Fixed64Type), uint64(p.Start.UnixNano()))
	// Clocks may be set back.
	m = m.number(4, uint64(max(0, p.End.Sub(p.Start))))
	if in.PeriodType != nil {
		m = m.part(5, o.valueType(in.PeriodType)).number(6, uint64(in.Period))
	}
	// Each profile has a random id.
	id := make(message, 16)
	rand.Read(id)
	return m.part(7, id)
}

// sample returns a Sample without values.
func (o *otlp) sample(s *profile.Sample, locations map[uint64]uint64) message {
	// Innermost frame first.
	stack := make([]uint64, len(s.Location))
	for i, l := range s.Location {
		stack[i] = locations[l.ID]
	}
	var attributes []uint64
	// Sorted: the order of a map changes.
	for _, k := range slices.Sorted(maps.Keys(s.Label)) {
		for _, v := range s.Label[k] {
			attributes = append(attributes, o.attribute(k, v))
		}
	}
	return message(nil).number(1, o.add(tableStack, message(nil).packed(1, stack...))).packed(2, attributes...)
}

// valueType returns a type and its unit, such as cpu in nanoseconds.
func (o *otlp) valueType(of *profile.ValueType) message {
	return message(nil).number(1, o.text(of.Type)).number(2, o.text(of.Unit))
}

// attribute returns the index of an attribute. OpenTelemetry's name stands for the label's, and
// numbers are numbers.
func (o *otlp) attribute(key, value string) uint64 {
	name, number := labels.Convention(key)
	of := message(nil).text(1, value) // AnyValue.string_value
	if n, err := strconv.ParseInt(value, 10, 64); number && err == nil {
		// int_value, which is written even if it is 0: one value must be there.
		of = protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(n))
	}
	return o.add(tableAttribute, message(nil).number(1, o.text(name)).part(2, of))
}

// location returns the index of a location, with the functions inlined there.
func (o *otlp) location(l *profile.Location) uint64 {
	m := message(nil).number(1, o.mapping(l.Mapping)).number(2, l.Address)
	for _, line := range l.Line {
		m = m.part(3, message(nil).number(1, o.function(line.Function)).number(2, uint64(line.Line)))
	}
	return o.add(tableLocation, m)
}

// function returns the index of a function; 0 for none.
func (o *otlp) function(f *profile.Function) uint64 {
	if f == nil {
		return 0
	}
	return o.add(tableFunction, message(nil).number(1, o.text(f.Name)).number(2, o.text(f.SystemName)).
		number(3, o.text(f.Filename)).number(4, uint64(f.StartLine)))
}

// buildID is the attribute for the note of GNU ld in OpenTelemetry's conventions.
const buildID = "process.executable.build_id.gnu"

// mapping returns the index of a mapping, with its build-id; 0 for none.
func (o *otlp) mapping(m *profile.Mapping) uint64 {
	if m == nil {
		return 0
	}
	to := message(nil).number(1, m.Start).number(2, m.Limit).number(3, m.Offset).number(4, o.text(m.File))
	if m.BuildID != "" {
		to = to.packed(5, o.attribute(buildID, m.BuildID))
	}
	return o.add(tableMapping, to)
}
