package servers

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/profile/push"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
)

// sample returns a profile of two stacks, one of which has a function inlined.
func sample(t *testing.T) *push.Profile {
	main, work, in := &profile.Function{ID: 1, Name: "main"}, &profile.Function{ID: 2, Name: "work(int)",
		SystemName: "_Z4worki", Filename: "w.c",
		StartLine: 7},
		&profile.Function{ID: 3, Name: "in"}
	m := &profile.Mapping{ID: 1, File: "/bin/x", BuildID: "abcd", Start: 8, Limit: 100, Offset: 4}
	l1 := &profile.Location{ID: 1, Mapping: m, Address: 16, Line: []profile.Line{{Function: main}}}
	l2 := &profile.Location{ID: 2, Mapping: m, Address: 32, Line: []profile.Line{{Function: in, Line: 4},
		{Function: work, Line: 9}}}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1001001,
		Sample: []*profile.Sample{
			{Location: []*profile.Location{l2, l1}, Value: []int64{3, 3003003},
				Label: map[string][]string{"comm": {"x"}, "process.pid": {"7"}, "host.name": {"h"}}},
			{Location: []*profile.Location{l1}, Value: []int64{1, 1001001}, Label: map[string][]string{"process.pid": {"0"}}},
			{Location: []*profile.Location{l2, l1}, Value: []int64{0, -1}},
		},
		Location: []*profile.Location{l1, l2}, Function: []*profile.Function{main, work, in},
		Mapping: []*profile.Mapping{m},
	}
	require.NoError(t, p.CheckValid())
	var b bytes.Buffer
	require.NoError(t, p.Write(&b))
	start := time.Unix(1700000000, 0)
	return &push.Profile{Pprof: b.Bytes(), Start: start, End: start.Add(15 * time.Second), Name: "shop",
		Labels: map[string]string{"zone": "b"}, Kind: "cpu"}
}

// TestOTLP reads the request by OpenTelemetry's own package.
func TestOTLP(t *testing.T) {
	var body []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/v1development/profiles", r.URL.Path)
		assert.Equal(t, "application/x-protobuf", r.Header.Get("Content-Type"))
		assert.Equal(t, "Bearer t", r.Header.Get("Authorization"))
		assert.Equal(t, "gzip", r.Header.Get("Content-Encoding"))
		plain, err := gzip.NewReader(r.Body)
		require.NoError(t, err)
		body, _ = io.ReadAll(plain)
	}))
	defer server.Close()
	protocol, err := push.ProtocolByName("otlp")
	require.NoError(t, err)
	p, err := push.New(push.Options{URL: server.URL, Protocol: protocol, Client: server.Client(),
		Header: http.Header{"Authorization": {"Bearer t"}}})
	require.NoError(t, err)
	sent := sample(t)
	p.Push(sent)
	assert.Equal(t, push.Counts{Sent: 1}, p.Close(time.Minute))

	got, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(body)
	require.NoError(t, err)
	require.Equal(t, 1, got.ResourceProfiles().Len())
	name, _ := got.ResourceProfiles().At(0).Resource().Attributes().Get("service.name")
	assert.Equal(t, "shop", name.Str())
	host, _ := got.ResourceProfiles().At(0).Resource().Attributes().Get("host.name")
	assert.Equal(t, "h", host.Str())
	d := got.Dictionary()
	text := func(i int32) string { return d.StringTable().At(int(i)) }
	profiles := got.ResourceProfiles().At(0).ScopeProfiles().At(0).Profiles()
	require.Equal(t, 2, profiles.Len())
	cpu := profiles.At(1)
	assert.Equal(t, "cpu", text(cpu.SampleType().TypeStrindex()))
	assert.Equal(t, uint64(15e9), cpu.DurationNano())
	assert.Equal(t, sent.Start.UTC(), cpu.Time().AsTime())
	assert.Equal(t, "cpu nanoseconds 1001001", fmt.Sprint(text(cpu.PeriodType().TypeStrindex()), " ",
		text(cpu.PeriodType().UnitStrindex()), " ", cpu.Period()))
	assert.NotEqual(t, cpu.ProfileID(), profiles.At(0).ProfileID())
	attributes := func(list pcommon.Int32Slice) (text string) {
		for _, i := range list.AsRaw() {
			a := d.AttributeTable().At(int(i))
			text += fmt.Sprintf(" %s=%v %v", d.StringTable().At(int(a.KeyStrindex())), a.Value().Type(), a.Value().AsRaw())
		}
		return text
	}
	location := func(i int32) string {
		l := d.LocationTable().At(int(i))
		m := d.MappingTable().At(int(l.MappingIndex()))
		mapping := fmt.Sprintf("%s %d-%d %d%s: %d", text(m.FilenameStrindex()), m.MemoryStart(), m.MemoryLimit(), m.FileOffset(),
			attributes(m.AttributeIndices()), l.Address())
		for _, line := range l.Lines().All() {
			f := d.FunctionTable().At(int(line.FunctionIndex()))
			mapping += fmt.Sprintf(" %s/%s %s %d+%d", text(f.NameStrindex()), text(f.SystemNameStrindex()),
				text(f.FilenameStrindex()),
				f.StartLine(), line.Line())
		}
		return mapping
	}
	const outer = "/bin/x 8-100 4 process.executable.build_id.gnu=Str abcd: 16 main/  0+0"
	const inner = "/bin/x 8-100 4 process.executable.build_id.gnu=Str abcd: 32 in/  0+4 work(int)/_Z4worki w.c 7+9"
	want := [][]string{{"[3003003] thread.name=Str x process.pid=Int 7", inner, outer},
		{"[1001001] process.pid=Int 0", outer},
		{"[-1]", inner, outer}}
	require.Equal(t, len(want), cpu.Samples().Len())
	for i, s := range cpu.Samples().All() {
		got := []string{fmt.Sprint(s.Values().AsRaw(), attributes(s.AttributeIndices()))}
		for _, l := range d.StackTable().At(int(s.StackIndex())).LocationIndices().AsRaw() {
			got = append(got, location(l))
		}
		assert.Equal(t, want[i], got)
	}
	for what, text := range map[string]string{"stack": fmt.Sprint(d.StackTable().At(0).LocationIndices().AsRaw()),
		"location": location(0), "attribute": fmt.Sprint(d.AttributeTable().At(0).Value().Type()), "string": text(0),
		"link": d.LinkTable().At(0).TraceID().String(), "function": text(d.FunctionTable().At(0).NameStrindex())} {
		assert.Contains(t, []string{"", "[]", "Empty", " 0-0 0: 0"}, text, "the first %s stands for none", what)
	}
}
