// Package labels says of which thread, process and machine a sample is, in the words of OpenTelemetry's semantic
// conventions: process, thread, container, host and cpu of its attribute registry.
package labels

import (
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/unwind"
)

// Set is a set of labels. The more there are, the more stacks of a profile differ only in them: a user chooses.
type Set uint16

// The labels.
const (
	Comm Set = 1 << iota // the thread's name, which formats take from the sample
	PID
	TID
	Executable
	BuildID
	Cgroup
	Container
	Host
	CPU
)

// kind is a label as users name it, and its key in profiles.
type kind struct {
	set       Set
	name, key string
	number    bool // the convention's value is a number
}

// kinds returns all labels, in the order in which samples have them: equal labels are then equal lists.
func kinds() []kind {
	return []kind{{Comm, "comm", "comm", false}, {PID, "pid", "process.pid", true}, {TID, "tid", "thread.id", true},
		{Executable, "executable", "process.executable.name", false}, {BuildID, "build-id", "process.executable.build_id.gnu",
			false},
		{Cgroup, "cgroup", "process.linux.cgroup", false}, {Container, "container", "container.id", false},
		{Host, "host", HostName, false}, {CPU, "cpu", "cpu.logical_number", true}}
}

// HostName is the key of the label that is the same for all samples of a recording.
const HostName = "host.name"

// Names returns the names of all labels.
func Names() string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// Parse returns the set of labels with these names; "none" alone names no label.
func Parse(names []string) (set Set, err error) {
	for _, name := range names {
		found := name == "none" && len(names) == 1
		for _, k := range kinds() {
			if k.name == name {
				set |= k.set
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("unknown label %q: want none, or a list of %s", name, Names())
		}
	}
	return set, nil
}

// Has reports whether all labels of t are in the set.
func (s Set) Has(t Set) bool { return s&t == t }

// Any reports whether some label of t is in the set.
func (s Set) Any(t Set) bool { return s&t != 0 }

// Origin is what is known of the origin of a sample. Only what a Set has is used.
type Origin struct {
	PID, TID int32
	CPU      uint32
	Program  *unwind.Object // nil: not known
	Cgroup   string         // the path from the hierarchy's root; "": not known
	Host     string
}

// Only returns an origin without what the set does not use, so that origins with equal labels are equal.
func (s Set) Only(o Origin) Origin {
	if !s.Has(PID) {
		o.PID = 0
	}
	if !s.Has(TID) {
		o.TID = 0
	}
	if !s.Has(CPU) {
		o.CPU = 0
	}
	if !s.Any(Executable | BuildID) {
		o.Program = nil
	}
	if !s.Any(Cgroup | Container) {
		o.Cgroup = ""
	}
	if !s.Has(Host) {
		o.Host = ""
	}
	return o
}

// Of returns the labels of an origin. Those that are not known are left out, and so is Comm.
func (s Set) Of(o *Origin) (list []stackfmt.Label) {
	for _, k := range kinds() {
		if value := k.value(o); s.Has(k.set) && value != "" {
			list = append(list, stackfmt.Label{Key: k.key, Value: value})
		}
	}
	return list
}

// value returns the label's text for an origin; "": it is not known, or the label is Comm.
func (k *kind) value(o *Origin) string {
	switch k.set {
	case PID:
		return strconv.Itoa(int(o.PID))
	case TID:
		return strconv.Itoa(int(o.TID))
	case CPU:
		return strconv.Itoa(int(o.CPU))
	case Executable:
		if o.Program != nil {
			return path.Base(o.Program.Name)
		}
	case BuildID:
		if o.Program != nil {
			return hex.EncodeToString(o.Program.BuildID())
		}
	case Cgroup:
		return o.Cgroup
	case Container:
		return procfs.ContainerID(o.Cgroup)
	case Host:
		return o.Host
	}
	return ""
}

// Convention returns the key that OpenTelemetry has for a key of a profile's label, and whether its value is a number.
func Convention(key string) (name string, number bool) {
	for _, k := range kinds() {
		switch {
		case k.key != key:
		case k.set == Comm:
			return "thread.name", false
		default:
			return key, k.number
		}
	}
	return key, false
}
