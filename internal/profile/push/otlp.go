package push

import (
	"crypto/rand"
	"maps"
	"slices"
	"strconv"

	"github.com/ehasm/ehasm/internal/profile/labels"

	"github.com/google/pprof/profile"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// This file turns pprof profiles into OpenTelemetry's: a dictionary of strings, functions,
// mappings, locations and stacks, and samples that refer to it by index.

// otlpBody returns an ExportProfilesServiceRequest: opentelemetry/proto/collector/profiles of
// OpenTelemetry's protocol, whose fields are those of ProfilesData.
func otlpBody(p *Profile) ([]byte, error) {
	in, err := p.parse()
	if err != nil {
		return nil, err
	}
	return (&pprofile.ProtoMarshaler{}).MarshalProfiles(otlpProfiles(p, in))
}

// otlp turns a pprof profile into one of OpenTelemetry. The first entry of its
// tables means none.
type otlp struct {
	dictionary pprofile.ProfilesDictionary
	// The maps tell which entries are in the dictionary already: by text, by pprof's id, by name
	// and value.
	strings    map[string]int32
	functions  map[uint64]int32
	mappings   map[uint64]int32
	locations  map[uint64]int32
	attributes map[[2]string]int32
}

// otlpProfiles returns the profiles, one for each value type of the pprof.
func otlpProfiles(p *Profile, in *profile.Profile) pprofile.Profiles {
	out := pprofile.NewProfiles()
	o := &otlp{dictionary: out.Dictionary(), strings: make(map[string]int32), functions: make(map[uint64]int32),
		mappings: make(map[uint64]int32), locations: make(map[uint64]int32), attributes: make(map[[2]string]int32)}
	// Entry 0 of each table is empty: references of 0 mean none.
	o.text("")
	o.dictionary.MappingTable().AppendEmpty()
	o.dictionary.LocationTable().AppendEmpty()
	o.dictionary.FunctionTable().AppendEmpty()
	o.dictionary.LinkTable().AppendEmpty()
	o.dictionary.StackTable().AppendEmpty()
	o.dictionary.AttributeTable().AppendEmpty()
	resource := out.ResourceProfiles().AppendEmpty()
	// The resource is the profiled service, with the labels of the command line.
	resource.Resource().Attributes().PutStr("service.name", p.Name)
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		resource.Resource().Attributes().PutStr(k, p.Labels[k])
	}
	scope := resource.ScopeProfiles().AppendEmpty()
	scope.Scope().SetName("ehasm")
	// Stacks are the same for all value types.
	stacks := make([]int32, len(in.Sample))
	for i, s := range in.Sample {
		stacks[i] = o.stack(s)
		// Host names are the resource's, not each sample's.
		for _, host := range s.Label[labels.HostName] {
			resource.Resource().Attributes().PutStr(labels.HostName, host)
		}
		delete(s.Label, labels.HostName)
	}
	for i, kind := range in.SampleType {
		profile := scope.Profiles().AppendEmpty()
		// Each profile has a random id.
		var id pprofile.ProfileID
		rand.Read(id[:])
		profile.SetProfileID(id)
		profile.SetTime(pcommon.NewTimestampFromTime(p.Start))
		// Clocks may be set back.
		profile.SetDurationNano(uint64(max(0, p.End.Sub(p.Start))))
		o.valueType(profile.SampleType(), kind)
		if in.PeriodType != nil {
			o.valueType(profile.PeriodType(), in.PeriodType)
			profile.SetPeriod(in.Period)
		}
		for j, s := range in.Sample {
			sample := profile.Samples().AppendEmpty()
			sample.SetStackIndex(stacks[j])
			sample.Values().Append(s.Value[i])
			// Sorted: the order of a map changes.
			for _, k := range slices.Sorted(maps.Keys(s.Label)) {
				for _, v := range s.Label[k] {
					sample.AttributeIndices().Append(o.attribute(k, v))
				}
			}
		}
	}
	return out
}

// valueType sets a type and its unit, such as cpu in nanoseconds.
func (o *otlp) valueType(to pprofile.ValueType, from *profile.ValueType) {
	to.SetTypeStrindex(o.text(from.Type))
	to.SetUnitStrindex(o.text(from.Unit))
}

// text returns the index of a string in the dictionary.
func (o *otlp) text(s string) int32 {
	i, ok := o.strings[s]
	if !ok {
		i = int32(o.dictionary.StringTable().Len())
		o.dictionary.StringTable().Append(s)
		o.strings[s] = i
	}
	return i
}

// attribute returns the index of an attribute. OpenTelemetry's name stands for the label's, and
// numbers are numbers.
func (o *otlp) attribute(key, value string) int32 {
	k := [2]string{key, value}
	i, ok := o.attributes[k]
	if !ok {
		i = int32(o.dictionary.AttributeTable().Len())
		a := o.dictionary.AttributeTable().AppendEmpty()
		name, number := labels.Convention(key)
		a.SetKeyStrindex(o.text(name))
		a.Value().SetStr(value)
		if n, err := strconv.ParseInt(value, 10, 64); number && err == nil {
			a.Value().SetInt(n)
		}
		o.attributes[k] = i
	}
	return i
}

// stack adds a sample's stack, innermost frame first.
func (o *otlp) stack(s *profile.Sample) int32 {
	i := int32(o.dictionary.StackTable().Len())
	stack := o.dictionary.StackTable().AppendEmpty()
	for _, l := range s.Location {
		stack.LocationIndices().Append(o.location(l))
	}
	return i
}

// location returns the index of a location, with the functions inlined there.
func (o *otlp) location(l *profile.Location) int32 {
	if i, ok := o.locations[l.ID]; ok {
		return i
	}
	mapping := o.mapping(l.Mapping)
	var functions []int32
	for _, line := range l.Line {
		functions = append(functions, o.function(line.Function))
	}
	i := int32(o.dictionary.LocationTable().Len())
	to := o.dictionary.LocationTable().AppendEmpty()
	to.SetAddress(l.Address)
	to.SetMappingIndex(mapping)
	for k, line := range l.Line {
		at := to.Lines().AppendEmpty()
		at.SetFunctionIndex(functions[k])
		at.SetLine(line.Line)
	}
	o.locations[l.ID] = i
	return i
}

// function returns the index of a function; 0 for none.
func (o *otlp) function(f *profile.Function) int32 {
	if f == nil {
		return 0
	}
	if i, ok := o.functions[f.ID]; ok {
		return i
	}
	i := int32(o.dictionary.FunctionTable().Len())
	to := o.dictionary.FunctionTable().AppendEmpty()
	to.SetNameStrindex(o.text(f.Name))
	to.SetSystemNameStrindex(o.text(f.SystemName))
	to.SetFilenameStrindex(o.text(f.Filename))
	to.SetStartLine(f.StartLine)
	o.functions[f.ID] = i
	return i
}

// buildID is the attribute for the note of GNU ld in OpenTelemetry's conventions.
const buildID = "process.executable.build_id.gnu"

// mapping returns the index of a mapping, with its build-id; 0 for none.
func (o *otlp) mapping(m *profile.Mapping) int32 {
	if m == nil {
		return 0
	}
	if i, ok := o.mappings[m.ID]; ok {
		return i
	}
	i := int32(o.dictionary.MappingTable().Len())
	to := o.dictionary.MappingTable().AppendEmpty()
	to.SetMemoryStart(m.Start)
	to.SetMemoryLimit(m.Limit)
	to.SetFileOffset(m.Offset)
	to.SetFilenameStrindex(o.text(m.File))
	if m.BuildID != "" {
		to.AttributeIndices().Append(o.attribute(buildID, m.BuildID))
	}
	o.mappings[m.ID] = i
	return i
}
