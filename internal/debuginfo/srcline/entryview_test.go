package srcline

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// viewObjects are further programs, built by gcc -O2 -g.
var viewObjects = flag.String("view-objects", "", "compare the entry points in these `FILES`, too, separated by commas")

// TestEntryViews compares the rows at which inlined functions begin with what readelf says of
// DW_AT_entry_pc and DW_AT_GNU_entry_view, and with objdump's rows: each is one of them.
func TestEntryViews(t *testing.T) {
	var programs []string
	for i, flags := range [][]string{{"-O2"}, {"-O2", "-gdwarf-4"}, {"-O3"}} {
		programs = append(programs, compile(t, t.TempDir(), fmt.Sprint("prog", i), flags...))
	}
	if *viewObjects != "" {
		programs = append(programs, strings.Split(*viewObjects, ",")...)
	}
	for _, p := range programs {
		want := readelfEntryViews(t, p)
		rows := objdumpViews(t, p)
		o := open(t, p, Options{})
		var got []string
		later := 0
		for v := range o.Views() {
			for _, name := range v.Enters {
				got = append(got, fmt.Sprintf("%#x view %d %s", v.Addr, v.View, name))
				assert.True(t, rows[entryPoint{v.Addr, v.View}], "objdump has no row %#x view %d", v.Addr, v.View)
				if v.View > 0 {
					later++
				}
			}
		}
		require.NoError(t, o.Err())
		slices.Sort(want)
		slices.Sort(got)
		assert.Equal(t, want, got, p)
		t.Logf("%s: %d entry points, %d at a view above 0", filepath.Base(p), len(got), later)
		assert.Greater(t, later, 0)
	}
}

// objdumpViews are the rows of objdump.
func objdumpViews(t *testing.T, path string) map[entryPoint]bool {
	out, err := exec.Command("objdump", "--dwarf=decodedline", path).Output()
	require.NoError(t, err)
	row := regexp.MustCompile(`^\S+ +\d+ +0x([0-9a-f]+)(?: +(\d+))?(?: +x)?\s*$`)
	all := make(map[entryPoint]bool)
	for line := range strings.Lines(string(out)) {
		if m := row.FindStringSubmatch(line); m != nil {
			addr, err := strconv.ParseUint(m[1], 16, 64)
			require.NoError(t, err)
			n, _ := strconv.Atoi(m[2])
			all[entryPoint{addr, n}] = true
		}
	}
	return all
}

// readelfEntryViews are the inlined functions with the attribute, as readelf shows them.
func readelfEntryViews(t *testing.T, path string) (list []string) {
	out, err := exec.Command("readelf", "--debug-dump=info", path).Output()
	require.NoError(t, err)
	head := regexp.MustCompile(`^ <[0-9a-f]+><([0-9a-f]+)>: .*\(DW_TAG_(\w+)\)`)
	attr := regexp.MustCompile(`^    <[0-9a-f]+>   DW_AT_(\w+) *: (?:\(\w+\) )?(.*?)\s*$`)
	type die map[string]string
	all := make(map[string]die)
	var order []die
	var last die
	for line := range strings.Lines(string(out)) {
		if m := head.FindStringSubmatch(line); m != nil {
			last = die{"tag": m[2]}
			all["<0x"+m[1]+">"] = last
			order = append(order, last)
		} else if m := attr.FindStringSubmatch(line); m != nil && last != nil {
			v := m[2]
			if strings.HasPrefix(v, "(indirect") || strings.HasPrefix(v, "(alt") {
				v = v[strings.Index(v, "): ")+3:]
			}
			last[m[1]] = v
		}
	}
	name := func(d die) string {
		plain := ""
		for range 8 {
			if d["linkage_name"] != "" {
				return d["linkage_name"]
			}
			if plain == "" {
				plain = d["name"]
			}
			next := d["abstract_origin"] + d["specification"]
			if d = all[next]; d == nil {
				break
			}
		}
		return plain
	}
	for _, d := range order {
		if d["tag"] == "inlined_subroutine" && d["GNU_entry_view"] != "" {
			list = append(list, fmt.Sprintf("%s view %s %s", d["entry_pc"], d["GNU_entry_view"], name(d)))
		}
	}
	return list
}
